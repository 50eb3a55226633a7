"""Boxes of a view: nodes within the modules, bodies and functions that they belong to."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterator
from typing import Any, Literal

from onnx_aot.inspection.view.difference_table import find_worst

__all__ = ["Edge", "Item", "arrange"]

MOST_CHILDREN = 100
"""Larger groups are split into groups of consecutive children: the time for a layout grows faster
than the number of boxes."""

Kind = Literal["module", "node", "function", "body", "part", "input", "output"]


@dataclasses.dataclass(eq=False)
class Item:
    """A box.

    Attributes:
        kind: ``module``: a call of a PyTorch module; ``node``: an operator; ``function``: a call of
            a local function; ``body``: a graph within a node; ``part``: some of many children;
            ``input`` and ``output``: an input or output of a graph.
        title: First line of the box; ``subtitle`` the second line.
        path: Path of the module that it is, or that it belongs to.
        details: Information that is shown when it is selected.
        children: Boxes within it, in execution order.
        difference: The worst of ``VERDICTS`` on its outputs, and those of the boxes within it, if
            these were compared with PyTorch's.
        number: Its index in the list that ``arrange`` returns; ``parent`` the index of its group.
    """

    kind: Kind
    title: str
    subtitle: str = ""
    path: str = ""
    details: dict[str, Any] = dataclasses.field(default_factory=dict)
    children: list[Item] = dataclasses.field(default_factory=list)
    difference: str | None = None
    number: int = -1
    parent: int = -1


@dataclasses.dataclass(frozen=True)
class Edge:
    """A value, by number, that goes from the item that computes it to one that takes it."""

    source: Item
    target: Item
    value: int


def arrange(root: Item) -> list[Item]:
    """Simplifies the tree for display, and numbers its items.

    Modules around a single box are left out; the subtitle of the box names them. Groups with too
    many children are split into groups of consecutive ones.

    Returns:
        Every item, parents before children, the root first.
    """
    _without_single(root)
    _in_parts(root)
    _take_worst(root)
    items = list(_in_order(root))
    for number, item in enumerate(items):
        item.number = number
        for child in item.children:
            child.parent = number
    return items


def _without_single(item: Item) -> None:
    for place, child in enumerate(item.children):
        _without_single(child)
        if child.kind == "module" and len(child.children) == 1:
            only = child.children[0]
            if only.kind != "module":
                only.subtitle = only.subtitle or child.title
            item.children[place] = only


def _in_parts(item: Item) -> None:
    for child in item.children:
        _in_parts(child)
    while len(item.children) > MOST_CHILDREN:
        count = math.ceil(len(item.children) / MOST_CHILDREN)
        size = math.ceil(len(item.children) / count)
        starts = range(0, len(item.children), size)
        item.children = [_group_children(item, i, item.children[i : i + size]) for i in starts]


def _group_children(item: Item, start: int, children: list[Item]) -> Item:
    """Groups consecutive children, titled by their places; nested parts pass their places on."""
    first = children[0].details.get("first", start + 1)
    last = children[-1].details.get("last", start + len(children))
    details = {"first": first, "last": last}
    return Item("part", f"{first} to {last}", path=item.path, details=details, children=children)


def _take_worst(item: Item) -> None:
    for child in item.children:
        _take_worst(child)
    item.difference = find_worst([item.difference, *(child.difference for child in item.children)])


def _in_order(item: Item) -> Iterator[Item]:
    yield item
    for child in item.children:
        yield from _in_order(child)
