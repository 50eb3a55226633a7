"""Translates reads by index: advanced indexing, gathering, selecting."""

from __future__ import annotations

import functools
import itertools
from collections.abc import Sequence
from typing import Any

import onnx_ir as ir
import torch

from onnx_aot.builder.builder import Builder, Size
from onnx_aot.builder.peephole import FOLD_LIMIT
from onnx_aot.ops.core.movement import annotate_shape, reshape
from onnx_aot.ops.core.size_math import add_sizes, multiply_sizes, subtract_sizes
from onnx_aot.ops.registry import register
from onnx_aot.torch_compat import aten

__all__ = ["IndexPlan", "as_positions", "clamp_indices", "diagonal_length", "range_of_length"]

Value = ir.Value
BOOL = ir.DataType.BOOL
INT32 = ir.DataType.INT32
INT64 = ir.DataType.INT64


@register(aten.gather.default)
def aten_gather(
    op: Builder, self: Value, dim: int, index: Value, sparse_grad: bool = False
) -> Value:
    """Treats a 0-d tensor as a tensor of one element.

    A single row, as of the positions of a language model, is read by Gather: ONNX's reference
    implementation has no GatherElements for long rows.
    """
    if op.rank(self) == 0:
        return op.Expand(self, op.Shape(index))
    index = as_positions(op, index)
    if op.rank(index) == 0:
        return op.Gather(self, index, axis=0)
    if op.rank(index) != op.rank(self):  # torch allows this for an empty index
        return op.Expand(op.constant(0, self.dtype), op.Shape(index))
    axis = op.axis(self, dim)
    if _is_row(self, axis) and _is_row(index, axis):
        flat = index if op.rank(index) == 1 else op.Reshape(index, [-1])
        return op.Gather(self, flat, axis=axis)
    return op.GatherElements(self, index, axis=dim)


def _is_row(value: Value, axis: int) -> bool:
    """True if all axes but one are known to have one element."""
    sizes = list(value.shape or ())
    return all(size == 1 for size in (*sizes[:axis], *sizes[axis + 1 :]))


@register(aten.take_along_dim.default)
def aten_take_along_dim(op: Builder, self: Value, indices: Value, dim: int | None = None) -> Value:
    """Broadcasts both to each other on the other axes; flattens both without a dim."""
    if dim is None:
        return op.GatherElements(op.Reshape(self, [-1]), op.Reshape(indices, [-1]), axis=0)
    axis = op.axis(self, dim)
    return op.GatherElements(
        _broadcast_other_axes(op, self, indices, axis),
        _broadcast_other_axes(op, indices, self, axis),
        axis=axis,
    )


def _broadcast_other_axes(op: Builder, value: Value, other: Value, but: int) -> Value:
    """Broadcasts a value to another on all axes but one."""
    same = [
        axis == but or (mine == theirs and (isinstance(mine, int) or mine.value is not None))
        for axis, (mine, theirs) in enumerate(
            zip(value.shape or (), other.shape or (), strict=True)
        )
    ]
    if all(same):
        return value
    sizes = op.all_sizes(other)
    return op.Expand(
        value, op.sizes([1 if s else size for s, size in zip(same, sizes, strict=True)])
    )


def as_positions(op: Builder, index: Value) -> Value:
    """Casts an index to a type that ONNX takes; torch takes an empty one of any type."""
    return index if index.dtype in (INT32, INT64) else op.Cast(index, to=INT64)


@register(aten.index_select.default)
def aten_index_select(op: Builder, self: Value, dim: int, index: Value) -> Value:
    if op.rank(self) == 0:
        return self
    if op.rank(index) == 0:
        index = op.Unsqueeze(index, [0])
    return op.Gather(self, index, axis=op.axis(self, dim))


@register(aten.index.Tensor)
def aten_index(op: Builder, self: Value, indices: Sequence[Value | None]) -> Value:
    """``x[i, :, j]`` with integer or boolean tensors: one Gather or Compress, or one GatherND."""
    plan = IndexPlan(op, self, indices)
    if len(plan.axes) == 1:
        if plan.mask is not None:
            return op.Compress(self, plan.mask, axis=plan.axes[0])
        return op.Gather(self, plan.indices[0], axis=plan.axes[0])
    front = op.Transpose(self, perm=plan.order)
    gathered = op.GatherND(front, plan.positions(op))
    kept = op.rank(self) - len(plan.axes)
    return _move_indexed_axes(op, gathered, plan.rank, kept, plan.position)


class IndexPlan:
    """Positions that advanced indexing reads or writes.

    Attributes:
        axes: The indexed axes of the tensor.
        mask: The boolean tensor, if it is the only index.
        indices: Otherwise one integer tensor per indexed axis, broadcast to a common shape.
        order: A permutation that brings the indexed axes to the front.
        rank: Rank of the common shape of the indices.
        position: Position of the common shape in the result: at the first indexed axis if the
            indexed axes are adjacent, else at the front.
    """

    def __init__(self, op: Builder, value: Value, indices: Sequence[Value | None]) -> None:
        self.axes: list[int] = []
        self.mask: Value | None = None
        self.indices: list[Value] = []
        alone = sum(index is not None for index in indices) == 1
        axis = 0
        for index in indices:
            if index is None:
                axis += 1
                continue
            if index.dtype != BOOL:
                self.indices.append(op.cast(index, INT64))
            elif alone:
                self.mask = index
            else:
                self.indices += _true_positions(op, index)
            count = op.rank(index) if index.dtype == BOOL else 1
            self.axes += range(axis, axis + count)
            axis += count
        self.indices = _broadcast_indices(op, self.indices)
        self.rank = op.rank(self.indices[0]) if self.indices else 1
        rest = [a for a in range(op.rank(value)) if a not in self.axes]
        self.order = [*self.axes, *rest]
        adjacent = self.axes == list(range(self.axes[0], self.axes[0] + len(self.axes)))
        self.position = self.axes[0] if adjacent else 0

    def positions(self, op: Builder) -> Value:
        """Returns one vector per element of the indices' common shape, as the last axis."""
        if self.mask is not None:
            return op.Transpose(op.NonZero(self.mask), perm=[1, 0])
        return op.Concat(*(op.Unsqueeze(index, [-1]) for index in self.indices), axis=-1)


def _true_positions(op: Builder, mask: Value) -> list[Value]:
    """Returns one 1-d tensor per dimension of a mask, in row-major order."""
    positions = op.NonZero(mask)
    axes = range(op.rank(mask))
    return [annotate_shape(op.Gather(positions, axis, axis=0), [None]) for axis in axes]


def _broadcast_indices(op: Builder, indices: list[Value]) -> list[Value]:
    """Broadcasts indices to their common shape, that of one of them or that of their sum."""
    if len(indices) < 2:
        return indices
    widest = next(
        (i for i in indices if all(_is_broadcastable_to(other, i) for other in indices)), None
    )
    if widest is None:
        widest = indices[0]
        for index in indices[1:]:
            widest = op.Add(widest, index)
    shape = op.Shape(widest)
    rank = max(map(op.rank, indices))
    wide = []
    for index in indices:
        if index is widest or _has_same_shape(index, widest):
            wide.append(index)
            continue
        wide.append(annotate_shape(op.Expand(index, shape), [None] * rank))
    return wide


def _is_broadcastable_to(index: Value, other: Value) -> bool:
    """True if broadcasting one shape to the other is known to give the other."""
    if index is other:
        return True
    assert index.shape is not None
    assert other.shape is not None
    dims, others = index.shape.dims, other.shape.dims
    tail = others[len(others) - len(dims) :]
    return len(dims) <= len(others) and all(
        a == 1 or (a == b and _is_known(a)) for a, b in zip(dims, tail, strict=True)
    )


def _has_same_shape(index: Value, other: Value) -> bool:
    assert index.shape is not None
    return index.shape == other.shape and all(map(_is_known, index.shape.dims))


def _is_known(dimension: int | ir.SymbolicDim) -> bool:
    return isinstance(dimension, int) or dimension.value is not None


def _move_indexed_axes(op: Builder, value: Value, rank: int, kept: int, position: int) -> Value:
    """Moves the first ``rank`` axes to ``position`` among the kept ones."""
    if position == 0:
        return value
    moved = list(range(rank))
    rest = list(range(rank, rank + kept))
    return op.Transpose(value, perm=[*rest[:position], *moved, *rest[position:]])


@register(aten.nonzero.default)
def aten_nonzero(op: Builder, self: Value) -> Value:
    """Returns one row per nonzero element; for a 0-d tensor the rows have no columns."""
    if op.rank(self) == 0:
        rows = op.Transpose(op.NonZero(op.Reshape(self, [1])), perm=[1, 0])
        return op.Slice(rows, [0], [0], [1])
    return op.Transpose(op.NonZero(self), perm=[1, 0])


@register(aten.tril_indices.default)
def aten_tril_indices(op: Builder, row: int, col: int, offset: int = 0, dtype: Any = None) -> Value:
    return _triangle_indices(op, row, col, offset, upper=False)


@register(aten.triu_indices.default)
def aten_triu_indices(op: Builder, row: int, col: int, offset: int = 0, dtype: Any = None) -> Value:
    return _triangle_indices(op, row, col, offset, upper=True)


def _triangle_indices(op: Builder, rows: int, columns: int, offset: int, *, upper: bool) -> Value:
    """Returns rows and columns of a triangle's elements, a constant for a small matrix."""
    if rows * columns <= FOLD_LIMIT:
        indices = torch.triu_indices if upper else torch.tril_indices
        return op.constant(indices(rows, columns, offset, dtype=op.result.dtype))
    ones = op.Expand(op.constant(1, INT64), op.constant([rows, columns]))
    triangle = op.Trilu(ones, op.constant(offset, INT64), upper=int(upper))
    return op.cast(op.NonZero(triangle), op.result_dtype)


@register(aten.nonzero_static.default)
def aten_nonzero_static(op: Builder, self: Value, size: Size, fill_value: int = -1) -> Value:
    """Returns exactly ``size`` rows: the first ones, then rows of ``fill_value``."""
    fill = op.Expand(op.constant(fill_value, INT64), op.sizes([size, op.rank(self)]))
    rows = op.Concat(aten_nonzero(op, self), fill, axis=0)
    return op.Slice(rows, [0], op.sizes([size]), [0])


@register(aten._unsafe_masked_index.default)
def aten_unsafe_masked_index(
    op: Builder, self: Value, mask: Value, indices: Sequence[Value | None], fill: Any
) -> Value:
    """``x[indices]`` where the mask is true; elsewhere indices may be out of range."""
    taken = aten_index(op, self, clamp_indices(op, self, indices))
    return op.Where(mask, taken, op.constant(fill, self.dtype))


def clamp_indices(op: Builder, value: Value, indices: Sequence[Value | None]) -> list[Value | None]:
    """Moves indices out of range to the first or the last element."""

    def clamp(axis: int, index: Value) -> Value:
        size = op.size(value, axis)
        return op.Min(
            op.Max(op.cast(index, INT64), multiply_sizes(op, size, -1)), subtract_sizes(op, size, 1)
        )

    return [None if index is None else clamp(axis, index) for axis, index in enumerate(indices)]


@register(aten.masked_select.default)
def aten_masked_select(op: Builder, self: Value, mask: Value) -> Value:
    """Returns the elements where the broadcast mask is true, in row-major order."""
    if not _has_same_shape(self, mask):
        wide = op.Expand(mask, op.Shape(self))
        self = op.Expand(self, op.Shape(mask))
        mask = wide
    return op.Compress(op.Reshape(self, [-1]), op.Reshape(mask, [-1]), axis=0)


@register(aten.take.default)
def aten_take(op: Builder, self: Value, index: Value) -> Value:
    return op.Gather(op.Reshape(self, [-1]), index, axis=0)


@register(aten.repeat_interleave.Tensor)
def aten_repeat_interleave(op: Builder, repeats: Value, output_size: Size | None = None) -> Value:
    """``[2, 0, 1]`` -> ``[0, 0, 2]``: the rows of the true elements of ``i < repeats``."""
    repeats = op.cast(repeats, INT64)
    longest = op.reduce("ReduceMax", op.Concat(repeats, [0], axis=0), None, keepdims=False)
    below = op.Less(op.Range(0, longest, 1), op.Unsqueeze(repeats, [-1]))
    return op.cast(op.Gather(op.NonZero(below), 0, axis=0), op.result_dtype)


@register(aten.combinations.default)
def aten_combinations(
    op: Builder, self: Value, r: int = 2, with_replacement: bool = False
) -> Value:
    """Gathers at ascending indices, as many as the rank of a mask whose true elements they are."""
    if r == 0:
        return op.constant([], self.dtype)
    if r == 1:
        return op.Unsqueeze(self, [1])
    places = range_of_length(op, 0, op.size(self, 0))
    axes = [op.Unsqueeze(places, [i for i in range(r) if i != axis]) for axis in range(r)]
    compare = op.LessOrEqual if with_replacement else op.Less
    ascending = [compare(left, right) for left, right in itertools.pairwise(axes)]
    mask = functools.reduce(op.And, ascending)
    return op.Gather(self, op.Transpose(op.NonZero(mask), perm=[1, 0]), axis=0)


# --- diagonals -----------------------------------------------------------------------------------


@register(aten.diagonal.default)
def aten_diagonal(op: Builder, self: Value, offset: int = 0, dim1: int = 0, dim2: int = 1) -> Value:
    """Merges two axes of r and c elements and takes every ``c + 1``-th element."""
    rank = op.rank(self)
    first, second = dim1 % rank, dim2 % rank
    rest = [axis for axis in range(rank) if axis not in (first, second)]
    last = op.Transpose(self, perm=[*rest, first, second])
    rows, columns = op.size(self, first), op.size(self, second)
    merged = reshape(
        op, last, [*(op.size(self, a) for a in rest), multiply_sizes(op, rows, columns)]
    )
    start = offset if offset >= 0 else multiply_sizes(op, -offset, columns)
    length = diagonal_length(op, rows, columns, offset)
    taken = range_of_length(op, start, length, add_sizes(op, columns, 1))
    return op.Gather(merged, taken, axis=rank - 2)


@register(aten.trace.default)
def aten_trace(op: Builder, self: Value) -> Value:
    return op.reduce("ReduceSum", op.cast(aten_diagonal(op, self), op.result_dtype), [0], False)


def diagonal_length(op: Builder, rows: Size, columns: Size, offset: int) -> Size:
    """Returns the number of elements ``[i, i + offset]`` of a matrix."""
    rows, columns = (
        subtract_sizes(op, rows, max(-offset, 0)),
        subtract_sizes(op, columns, max(offset, 0)),
    )
    if isinstance(rows, int) and isinstance(columns, int):
        return max(0, min(rows, columns))
    short: Size = rows if rows is columns else op.Min(rows, columns)
    return short if offset == 0 else op.Max(short, 0)


def range_of_length(op: Builder, start: Size, count: Size, step: Size = 1) -> Value:
    """Returns ``start, start + step, ...``, ``count`` numbers."""
    return op.Range(start, add_sizes(op, start, multiply_sizes(op, count, step)), step)
