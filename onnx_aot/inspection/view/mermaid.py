"""Draws a model as mermaid text."""

from __future__ import annotations

import re
from collections.abc import Iterator

from onnx_aot.errors import InvalidOptionError
from onnx_aot.inspection.view.collect import GraphData
from onnx_aot.inspection.view.descriptions import type_text
from onnx_aot.inspection.view.tree import Item

__all__ = ["mermaid_text"]

MOST_LINES = 6
"""A value that goes to more boxes gets one line, which says how many others it goes to."""

_SPECIAL = re.compile(r"[^A-Za-z0-9_ .,:/()\[\]=-]")


def mermaid_text(data: GraphData, depth: int) -> str:
    """Draws a flowchart of the modules down to a depth.

    Args:
        data: The result of ``collect``.
        depth: 1 draws the model's own modules as boxes; 2 opens these, and so on.

    Raises:
        InvalidOptionError: The depth is not a positive integer.
    """
    if isinstance(depth, bool) or not isinstance(depth, int) or depth < 1:
        raise InvalidOptionError(
            f"depth={depth!r}: expected 1, which draws the model's modules as boxes, or more"
        )
    drawn: dict[int, int] = {}  # number of the box that shows each item
    lines = ["flowchart TD", *_draw_boxes(data.items[0], depth, 0, drawn, "    ")]
    lines += [f"    {line}" for line in _draw_edges(data, drawn)]
    return "\n".join(lines) + "\n"


def _draw_boxes(
    group: Item, depth: int, level: int, drawn: dict[int, int], indent: str
) -> Iterator[str]:
    for child in group.children:
        drawn[child.number] = child.number
        if child.kind == "part":  # some of many siblings: not a level of its own
            yield from _draw_boxes(child, depth, level, drawn, indent)
        elif child.children and level + 1 < depth:
            yield f'{indent}subgraph n{child.number}["{_escape(_name_box(child))}"]'
            yield from _draw_boxes(child, depth, level + 1, drawn, indent + "    ")
            yield f"{indent}end"
        else:
            _draw_within(child, child.number, drawn)
            yield indent + _draw_box(child)


def _draw_within(item: Item, box: int, drawn: dict[int, int]) -> None:
    drawn[item.number] = box
    for child in item.children:
        _draw_within(child, box, drawn)


def _name_box(item: Item) -> str:
    return f"{item.title} {item.subtitle}".strip()


def _draw_box(item: Item) -> str:
    label = _escape(item.title)
    if item.subtitle:
        label += f"<br/>{_escape(item.subtitle)}"
    if item.kind in ("input", "output"):
        return f'n{item.number}(["{label}"])'
    return f'n{item.number}["{label}"]'


def _draw_edges(data: GraphData, drawn: dict[int, int]) -> Iterator[str]:
    takers: dict[tuple[int, int], list[int]] = {}  # by source and value: the target boxes
    for edge in data.edges:
        source, target = drawn[edge.source.number], drawn[edge.target.number]
        boxes = takers.setdefault((source, edge.value), [])
        if source != target and target not in boxes:
            boxes.append(target)
    between: dict[tuple[int, int], list[str]] = {}
    for (source, value), boxes in takers.items():
        shared = len(boxes) > MOST_LINES
        for target in boxes[:1] if shared else boxes:
            text = type_text(data.values[value])
            text += f", and to {len(boxes) - 1} more" if shared else ""
            between.setdefault((source, target), []).append(text)
    for (source, target), texts in between.items():
        label = texts[0] if len(texts) == 1 else f"{len(texts)} values"
        yield f'n{source} -->|"{_escape(label)}"| n{target}'


def _escape(text: str) -> str:
    """Escapes text within quotes: special and non-ASCII characters become their code points."""
    return _SPECIAL.sub(lambda found: f"#{ord(found[0])};", text)
