"""Containers of inputs: their leaves, the leaves' names, and their structure."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping
from typing import Any

from onnx_aot.torch_compat import pytree

__all__ = [
    "Leaf",
    "children_of",
    "count_leaves",
    "is_named_tuple",
    "is_registered",
    "leaves_of",
    "mirrored",
]


@dataclasses.dataclass(frozen=True)
class Leaf:
    """One leaf of the inputs: its path, the name torch gives it, and its value."""

    path: str
    name: str
    value: Any


def leaves_of(bound: Mapping[str, Any]) -> Iterator[Leaf]:
    """The leaves of the arguments by name, in the order in which torch flattens them."""
    found, _ = pytree.tree_flatten_with_path(dict(bound))
    for path, value in found:
        parts = [str(plain_key(entry)) for entry in path]
        yield Leaf(parts[0] + pytree.keystr(path[1:]), "_".join(parts), value)


def mirrored(value: Any, remaining: Iterator[Any]) -> Any:
    """The leaves' specifications in containers of the inputs' structure."""
    children = children_of(value)
    if children is None:
        return next(remaining)
    parts = [mirrored(child, remaining) for _, child in children]
    if is_named_tuple(value):
        return type(value)(*parts)
    if is_registered(value):
        return parts  # what a registered class flattens to
    node = pytree.SUPPORTED_NODES[type(value)]
    return node.unflatten_fn(parts, node.flatten_fn(value)[1])


def children_of(value: Any) -> list[tuple[Any, Any]] | None:
    """Keys and children of a container, one level deep; None for a leaf."""
    if is_named_tuple(value):
        return list(zip(value._fields, value, strict=True))
    node = pytree.SUPPORTED_NODES.get(type(value))
    if node is None:
        return None
    children = node.flatten_fn(value)[0]
    if isinstance(value, dict):
        return list(zip(value, children, strict=True))
    if type(value) in pytree.BUILTIN_TYPES or node.flatten_with_keys_fn is None:
        return list(enumerate(children))
    return [(plain_key(key), child) for key, child in node.flatten_with_keys_fn(value)[0]]


def plain_key(entry: Any) -> Any:
    """``0`` of ``SequenceKey(0)``, ``"keys"`` of ``GetAttrKey("keys")``."""
    found = [getattr(entry, name) for name in ("key", "idx", "name") if hasattr(entry, name)]
    return found[0] if found else entry


def is_named_tuple(value: Any) -> bool:
    """Whether a value is a tuple with named fields, which torch knows without registration."""
    return isinstance(value, tuple) and hasattr(value, "_fields")


def is_registered(value: Any) -> bool:
    """Whether a container is of a class that was registered with torch's pytree."""
    return not is_named_tuple(value) and type(value) not in pytree.BUILTIN_TYPES


def count_leaves(value: Any) -> int:
    """How many leaves a value has."""
    children = children_of(value)
    return 1 if children is None else sum(count_leaves(child) for _, child in children)
