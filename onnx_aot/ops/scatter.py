"""Writing by index: the functional forms of what eager code does in place."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import onnx_ir as ir
import torch

from onnx_aot.ops.builder import Builder, Size
from onnx_aot.ops.indexing import IndexPlan, stacked
from onnx_aot.ops.movement import expanded, sliced
from onnx_aot.ops.registry import register
from onnx_aot.ops.simplify import INT64_MAX
from onnx_aot.ops.sizes import plus

__all__: list[str] = []

aten = torch.ops.aten
Value = ir.Value
BOOL = ir.DataType.BOOL
INT64 = ir.DataType.INT64


@register(aten.scatter.src)
def aten_scatter_src(op: Builder, self: Value, dim: int, index: Value, src: Value) -> Value:
    return _scattered(op, self, dim, index, src, "none")


@register(aten.scatter.value)
def aten_scatter_value(op: Builder, self: Value, dim: int, index: Value, value: Any) -> Value:
    fill = value if isinstance(value, ir.Value) else op.constant(value, self.dtype)
    return _scattered(op, self, dim, index, op.Expand(fill, op.Shape(index)), "none")


@register(aten.scatter_add.default)
def aten_scatter_add(op: Builder, self: Value, dim: int, index: Value, src: Value) -> Value:
    return _scattered(op, self, dim, index, src, "add")


def _scattered(
    op: Builder, value: Value, dim: int, index: Value, source: Value, reduction: str
) -> Value:
    """Only the part of the source that the index covers is read."""
    if op.rank(value) == 0:
        flat = _scattered(
            op,
            op.Reshape(value, [1]),
            0,
            op.Reshape(index, [-1]),
            op.Reshape(source, [-1]),
            reduction,
        )
        return op.Reshape(flat, op.constant([], INT64))
    if source.shape is None or source.shape != index.shape:
        rank = op.rank(index)
        source = op.Slice(source, [0] * rank, op.Shape(index), list(range(rank)))
    return op.ScatterElements(value, index, source, axis=dim, reduction=reduction)


@register(aten.slice_scatter.default)
def aten_slice_scatter(
    op: Builder,
    self: Value,
    src: Value,
    dim: int = 0,
    start: Size | None = None,
    end: Size | None = None,
    step: int = 1,
) -> Value:
    """``x[start:end:step] = src`` along one axis."""
    dim = op.axis(self, dim)
    first = 0 if start is None else start
    last = INT64_MAX if end is None else end
    if op.number(first) == 0 and op.number(last) == INT64_MAX and step == 1:
        return expanded(op, src, op.all_sizes(self))
    if step == 1:
        return _joined(op, self, src, dim, first, last)
    size = op.size(self, dim)
    positions = sliced(op, op.Range(0, size, 1), 0, first, last, step)
    return _written_along(op, self, dim, positions, src)


def _joined(op: Builder, value: Value, source: Value, axis: int, start: Size, end: Size) -> Value:
    """``[before | source | after]``; an end before the start leaves the tensor as it is."""
    sizes = op.all_sizes(value)
    sizes[axis] = op.size(source, axis)
    source = expanded(op, op.cast(source, value.dtype or op.result_dtype), sizes)
    length = op.size(source, axis) if source.shape is not None else sizes[axis]
    head = sliced(op, value, axis, 0, start)
    if isinstance(start, int) and start < 0:
        after = end
        if op.number(end) == INT64_MAX:
            return op.Concat(head, source, axis=axis)
    else:
        after = plus(op, start, length)
    tail = sliced(op, value, axis, after, INT64_MAX)
    return op.Concat(head, source, tail, axis=axis)


def _written_along(op: Builder, value: Value, axis: int, positions: Value, source: Value) -> Value:
    """Rows at 1-d positions of one axis replaced, by ScatterND with that axis in front."""
    rank = op.rank(value)
    order = [axis, *(a for a in range(rank) if a != axis)]
    back = [order.index(a) for a in range(rank)]
    front = op.Transpose(value, perm=order)
    rows = op.Transpose(op.cast(source, value.dtype or op.result_dtype), perm=order)
    written = op.ScatterND(front, op.Unsqueeze(positions, [-1]), rows)
    return op.Transpose(written, perm=back)


@register(aten.select_scatter.default)
def aten_select_scatter(op: Builder, self: Value, src: Value, dim: int, index: Size) -> Value:
    """``x[index] = src`` along one axis."""
    dim = op.axis(self, dim)
    position = op.sizes([index])
    row = op.Unsqueeze(src, [dim])
    if src.shape is not None:
        row.shape = ir.Shape([*src.shape[:dim], 1, *src.shape[dim:]])
    return _written_along(op, self, dim, position, row)


@register(aten.index_put.default)
def aten_index_put(
    op: Builder,
    self: Value,
    indices: Sequence[Value | None],
    values: Value,
    accumulate: bool = False,
) -> Value:
    """``x[i, :, j] = v``: a boolean mask with one value is Where, the rest is ScatterND."""
    present = [index for index in indices if index is not None]
    masked = len(present) == 1 and present[0].dtype == BOOL
    if masked and not accumulate and op.rank(values) == 0:
        return op.Where(_mask_for(op, self, indices), values, self)
    plan = IndexPlan(op, self, indices)
    where = stacked(op, plan.indices)
    front = op.Transpose(self, perm=plan.order)
    # The written block has the indices' shape, then the axes that are not indexed.
    rest = [op.size(self, axis) for axis in plan.order[len(plan.axes) :]]
    block = op.Shape(plan.indices[0])
    if rest:
        block = op.Concat(block, op.sizes(rest), axis=0)
    source = _values_in_front(op, values, plan, len(rest))
    source = op.Expand(source, block)
    reduction = "add" if accumulate else "none"
    written = op.ScatterND(front, where, source, reduction=reduction)
    back = [plan.order.index(axis) for axis in range(op.rank(self))]
    return op.Transpose(written, perm=back)


def _mask_for(op: Builder, value: Value, indices: Sequence[Value | None]) -> Value:
    """The mask broadcastable against the whole tensor."""
    for leading, index in enumerate(indices):
        if index is not None:
            trailing = op.rank(value) - leading - op.rank(index)
            axes = list(range(op.rank(index), op.rank(index) + trailing))
            return op.Unsqueeze(index, axes) if axes else index
    raise AssertionError("an index has a tensor")


def _values_in_front(op: Builder, values: Value, plan: IndexPlan, kept: int) -> Value:
    """Values come with the indices' axes at ``plan.position``; ScatterND wants them first."""
    if plan.position == 0:
        return values
    rank = plan.rank + kept
    missing = rank - op.rank(values)
    if missing > 0:
        values = op.Unsqueeze(values, list(range(missing)))
    block = list(range(plan.position, plan.position + plan.rank))
    rest = [axis for axis in range(rank) if axis not in block]
    return op.Transpose(values, perm=[*block, *rest])


@register(aten.index_fill.int_Scalar, aten.index_fill.int_Tensor)
def aten_index_fill(op: Builder, self: Value, dim: int, index: Value, value: Any) -> Value:
    fill = value if isinstance(value, ir.Value) else op.constant(value, self.dtype)
    fill = op.cast(fill, self.dtype or op.result_dtype)
    dim = op.axis(self, dim)
    sizes = op.all_sizes(self)
    shape = op.sizes(sizes[:dim] + sizes[dim + 1 :])
    count = op.Shape(index) if op.rank(index) else op.constant([1])
    if op.rank(index) == 0:
        index = op.Unsqueeze(index, [0])
    rank = op.rank(self)
    order = [dim, *(a for a in range(rank) if a != dim)]
    rows = op.Expand(fill, op.Concat(count, shape, axis=0))
    written = op.ScatterND(op.Transpose(self, perm=order), op.Unsqueeze(index, [-1]), rows)
    return op.Transpose(written, perm=[order.index(a) for a in range(rank)])


@register(aten.diagonal_scatter.default)
def aten_diagonal_scatter(
    op: Builder, self: Value, src: Value, offset: int = 0, dim1: int = 0, dim2: int = 1
) -> Value:
    rank = op.rank(self)
    first, second = dim1 % rank, dim2 % rank
    rest = [axis for axis in range(rank) if axis not in (first, second)]
    order = [first, second, *rest]
    front = op.Transpose(self, perm=order)
    count = op.size(src, -1)
    start = op.Range(0, count, 1)
    where = stacked(op, [op.Add(start, max(-offset, 0)), op.Add(start, max(offset, 0))])
    rows = op.Transpose(src, perm=[rank - 2, *range(rank - 2)])
    written = op.ScatterND(front, where, rows)
    return op.Transpose(written, perm=[order.index(a) for a in range(rank)])
