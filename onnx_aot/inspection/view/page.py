"""Renders the view as a single HTML page that loads nothing else."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from onnx_aot.inspection.pages import Assets, embed_json
from onnx_aot.inspection.view.collect import GraphData
from onnx_aot.inspection.view.tree import Item

__all__ = ["ASSETS", "render_page", "to_json"]

ASSETS = Assets("onnx_aot.inspection.view")

SCRIPTS = (
    "dagre/dagre.min.js",
    "graph.js",
    "measure.js",
    "layout.js",
    "scene.js",
    "draw.js",
    "panel.js",
    "search.js",
    "main.js",
)
"""Scripts in the order of their dependencies."""


def render_page(data: GraphData) -> str:
    """Renders the view of a model as the text of an HTML page.

    Names and texts of the model are embedded as data, never as markup; a script shows them as text.
    """
    assets = {name: ASSETS.read(name) for name in ("view.css", "dagre/LICENSE", *SCRIPTS)}
    return ASSETS.template("page.html").render(
        title=data.summary["name"],
        style=assets["view.css"],
        license=assets["dagre/LICENSE"],
        scripts=[assets[name] for name in SCRIPTS],
        data=embed_json(to_json(data)),
    )


def to_json(data: GraphData) -> dict[str, Any]:
    """Data for the page's scripts; texts that repeat, such as stack traces, are stored once."""
    texts: dict[str, int] = {}
    return {
        "items": [_item_to_json(item, texts) for item in data.items],
        "edges": [[edge.source.number, edge.target.number, edge.value] for edge in data.edges],
        "values": data.values,
        "summary": data.summary,
        "first": None if data.first is None else data.first.number,
        "texts": list(texts),
    }


def _item_to_json(item: Item, texts: dict[str, int]) -> dict[str, Any]:
    details = dict(item.details)
    if "metadata" in details:
        details["metadata"] = _pool_texts(details["metadata"], texts)
    written = {
        "parent": item.parent,
        "kind": item.kind,
        "title": item.title,
        "subtitle": item.subtitle,
        "path": item.path,
        "difference": item.difference,
        **details,
    }
    return {key: value for key, value in written.items() if value not in ("", None, [], {})}


def _pool_texts(properties: Mapping[str, str], texts: dict[str, int]) -> dict[str, int]:
    return {key: texts.setdefault(value, len(texts)) for key, value in properties.items()}
