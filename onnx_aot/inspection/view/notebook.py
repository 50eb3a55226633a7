"""Renders a program for a notebook."""

from __future__ import annotations

from onnx_aot.inspection.text import size_text
from onnx_aot.inspection.view.collect import GraphData
from onnx_aot.inspection.view.descriptions import type_text
from onnx_aot.inspection.view.page import ASSETS, render_page
from onnx_aot.inspection.view.tree import Item

__all__ = ["notebook_html"]

LARGE = 2000
"""The view of a model with more nodes is closed until the user opens it."""


def notebook_html(data: GraphData) -> str:
    """Renders a table of inputs and outputs, and the page in a frame isolated from the notebook."""
    rows = [
        (item.kind, item.title, _type_of(data, item))
        for item in _top_level_boxes(data.items[0])
        if item.kind in ("input", "output")
    ]
    summary = data.summary
    return ASSETS.template("notebook.html").render(
        rows=rows,
        summary=summary,
        size=size_text(summary["bytes"]),
        closed=summary["nodes"] > LARGE,
        page=render_page(data),
    )


def _top_level_boxes(root: Item) -> list[Item]:
    """Top-level boxes of the model, with grouped ones, such as many inputs, taken out of groups."""
    found: list[Item] = []
    for child in root.children:
        found += _top_level_boxes(child) if child.kind == "part" else [child]
    return found


def _type_of(data: GraphData, item: Item) -> str:
    (_, number), *_ = item.details["outputs" if item.kind == "input" else "inputs"]
    return type_text(data.values[number])
