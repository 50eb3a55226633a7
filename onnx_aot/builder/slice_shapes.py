"""Infers the shapes of slices whose bounds are known to be inside the axis."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import onnx_ir as ir

from onnx_aot.builder.size_table import Dimension, Op

__all__ = ["infer_slice_shape", "numbers_of"]

Dimensions = list[Dimension]
Inputs = Sequence[ir.Value | None]
Attributes = Mapping[str, Any]

OPEN = 2**62
"""A slice bound of at least this, or below its negative, stands for an end of the axis."""


def numbers_of(op: Op, inputs: Inputs, index: int) -> list[int] | None:
    """Returns the elements of a constant input, or None."""
    literal = op.literal(inputs[index]) if index < len(inputs) else None
    return None if literal is None else literal.flatten().tolist()


def _vector_length(op: Op, value: ir.Value | None) -> int | None:
    """Returns the number of elements of a vector, or None if it is not known."""
    shape = value.shape if value is not None else None
    return shape[0] if shape is not None and len(shape) == 1 and isinstance(shape[0], int) else None


def infer_slice_shape(
    op: Op, shape: Dimensions, inputs: Inputs, _: Attributes
) -> Dimensions | None:
    given = [op.contents(value) for value in inputs[1:]]
    count = _vector_length(op, inputs[1])
    axes = numbers_of(op, inputs, 3) if len(inputs) > 3 else list(range(count or 0))
    if axes is None or (len(inputs) <= 3 and count is None):
        return [op.fresh() for _ in shape]
    starts, ends = given[0], given[1]
    steps = given[3] if len(given) > 3 else [1] * len(axes)
    sizes = list(shape)
    for position, axis in enumerate(axes):
        size = None
        if starts is not None and ends is not None and steps is not None:
            bounds = (starts[position], ends[position], steps[position])
            size = _slice_length(op, sizes[axis], *bounds)
        sizes[axis] = op.fresh() if size is None else size
    return sizes


def _slice_length(
    op: Op, size: Dimension, start: Dimension, end: Dimension, step: Dimension
) -> Dimension | None:
    """Returns the length of a slice, or None if it is not known."""
    if not isinstance(step, int) or step == 0:
        return None
    if isinstance(size, int) and isinstance(start, int) and isinstance(end, int):
        return len(range(size)[start:end:step])
    if step < 0:
        whole = start == -1 and isinstance(end, int) and end < -OPEN
        return size if whole and step == -1 else None
    first = _resolve_bound(op, size, start)
    last = _resolve_bound(op, size, end)
    if first is None or last is None:
        return None
    length = op.combine("sub", last, first)
    if not op.at_least(length, 0):
        return None
    if step == 1:
        return length
    return op.combine("floordiv", op.combine("add", length, step - 1), step)


def _resolve_bound(op: Op, size: Dimension, bound: Dimension) -> Dimension | None:
    """Returns a slice bound as a position from the front, or None if it may be outside."""
    if isinstance(bound, int):
        if bound >= OPEN or bound == size:
            return size
        if bound == 0:
            return 0
        if bound < 0:
            return op.combine("add", size, bound) if op.at_least(size, -bound) else None
        return bound if op.at_least(size, bound) else None
    if bound == size:
        return size
    room = op.combine("sub", size, bound)
    return bound if op.at_least(bound, 0) and op.at_least(room, 0) else None
