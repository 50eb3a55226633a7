"""Queries on the recorded shapes of values."""

from __future__ import annotations

from collections.abc import Sequence

import onnx_ir as ir

__all__ = ["Dim", "broadcasts_to", "dims", "rank", "same_shape", "same_sizes"]

Dim = int | str | None


def dims(value: ir.Value | None) -> list[Dim] | None:
    """Sizes of a value: numbers, names (equal names are equal sizes), or None if unknown."""
    if value is None or value.shape is None:
        return None
    return [size if isinstance(size, int) else size.value for size in value.shape.dims]


def rank(value: ir.Value | None) -> int | None:
    """Number of dimensions, or None if it is unknown."""
    return None if value is None or value.shape is None else len(value.shape)


def same_sizes(left: Sequence[Dim] | None, right: Sequence[Dim] | None) -> bool:
    """Returns True if all sizes are known and equal."""
    if left is None or right is None or len(left) != len(right):
        return False
    return all(a is not None and a == b for a, b in zip(left, right, strict=True))


def same_shape(left: ir.Value | None, right: ir.Value | None) -> bool:
    """Returns True if two values have the same shape for every input."""
    if left is None or right is None or left.shape is None or right.shape is None:
        return False
    return len(left.shape) == len(right.shape) and same_sizes(dims(left), dims(right))


def broadcasts_to(small: ir.Value | None, large: ir.Value | None) -> bool:
    """Returns True if ``small`` is broadcast to ``large`` without changing the latter's shape."""
    inner, outer = dims(small), dims(large)
    if inner is None or outer is None or len(inner) > len(outer):
        return False
    behind = outer[len(outer) - len(inner) :]
    return all(a == 1 or (a is not None and a == b) for a, b in zip(inner, behind, strict=True))
