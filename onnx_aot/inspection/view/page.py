"""Renders the view as a single HTML page that loads nothing else."""

from __future__ import annotations

import functools
import json
from collections.abc import Mapping
from typing import Any

import jinja2

from onnx_aot.inspection.view.collect import GraphData
from onnx_aot.inspection.view.tree import Item

__all__ = ["load_template", "render_page", "to_json"]

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
    assets = {name: _read_asset(name) for name in ("view.css", "dagre/LICENSE", *SCRIPTS)}
    return load_template("page.html").render(
        title=data.summary["name"],
        style=assets["view.css"],
        license=assets["dagre/LICENSE"],
        scripts=[assets[name] for name in SCRIPTS],
        data=_escape_for_script(json.dumps(to_json(data), separators=(",", ":"), allow_nan=False)),
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


def _escape_for_script(text: str) -> str:
    """Escapes JSON so that nothing in it can end the script element that holds it."""
    for character in "<>&":
        text = text.replace(character, f"\\u{ord(character):04x}")
    return text


@functools.cache
def _environment() -> jinja2.Environment:
    loader = jinja2.PackageLoader("onnx_aot.inspection.view", "assets")
    return jinja2.Environment(loader=loader, autoescape=True, undefined=jinja2.StrictUndefined)


def load_template(name: str) -> jinja2.Template:
    """Loads a template from the assets; it escapes its arguments."""
    return _environment().get_template(name)


@functools.cache
def _read_asset(name: str) -> str:
    environment = _environment()
    assert environment.loader is not None
    return environment.loader.get_source(environment, name)[0]
