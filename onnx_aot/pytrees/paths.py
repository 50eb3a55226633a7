"""Finds the pytree leaves of inputs, the leaves' names, and the structure of the containers."""

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
    "mirror_containers",
]


@dataclasses.dataclass(frozen=True)
class Leaf:
    """One leaf of the inputs: its path, the name torch gives it, and its value."""

    path: str
    name: str
    value: Any


def leaves_of(bound: Mapping[str, Any]) -> Iterator[Leaf]:
    """Yields the leaves of the named arguments, in the order in which torch flattens them."""
    found, _ = pytree.tree_flatten_with_path(dict(bound))
    for path, value in found:
        parts = [str(plain_key(entry)) for entry in path]
        yield Leaf(parts[0] + pytree.keystr(path[1:]), "_".join(parts), value)


def mirror_containers(value: Any, remaining: Iterator[Any]) -> Any:
    """Arranges the specifications of leaves in containers with the inputs' structure."""
    children = children_of(value)
    if children is None:
        return next(remaining)
    parts = [mirror_containers(child, remaining) for _, child in children]
    if is_named_tuple(value):
        return type(value)(*parts)
    if is_registered(value):
        return parts  # a registered class is given as the list it flattens to
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
    """Returns ``0`` for ``SequenceKey(0)``, ``"keys"`` for ``GetAttrKey("keys")``."""
    found = [getattr(entry, name) for name in ("key", "idx", "name") if hasattr(entry, name)]
    return found[0] if found else entry


def is_named_tuple(value: Any) -> bool:
    """True if a value is a tuple with named fields, which torch knows without registration."""
    return isinstance(value, tuple) and hasattr(value, "_fields")


def is_registered(value: Any) -> bool:
    """True if a container is of a class that was registered with torch's pytree."""
    return not is_named_tuple(value) and type(value) not in pytree.BUILTIN_TYPES


def count_leaves(value: Any) -> int:
    """Number of leaves of a value."""
    children = children_of(value)
    return 1 if children is None else sum(count_leaves(child) for _, child in children)
