"""Translates sorting and selection by order.

NaN is the largest number and equal elements keep their order, as in torch. TopK does not define the
order of NaN, so floating-point numbers are ranked by a copy in which NaN is infinite and infinity
is finite.
"""

from __future__ import annotations

import math
from typing import Any

import onnx_ir as ir
import torch

from onnx_aot import dtypes
from onnx_aot.builder.builder import Builder, Size
from onnx_aot.dtypes import INT64_MAX
from onnx_aot.ops.core.movement import annotate_shape, slice_axis
from onnx_aot.ops.core.size_math import as_value, subtract_sizes
from onnx_aot.ops.registry import LIMITS, register
from onnx_aot.torch_compat import aten

__all__ = ["fill_like", "make_empty_result", "mark_run_starts", "sort_along_axis"]

Value = ir.Value
BOOL = ir.DataType.BOOL
DOUBLE = ir.DataType.DOUBLE
FLOAT = ir.DataType.FLOAT
INT32 = ir.DataType.INT32
INT64 = ir.DataType.INT64

_EQUAL = "the first of several equal elements is chosen; eager does not specify which"

for _target in (aten.topk.default, aten.kthvalue.default, aten.median.dim, aten.nanmedian.dim):
    LIMITS[_target] = _EQUAL
LIMITS[aten.sort.default] = LIMITS[aten.sort.stable] = (
    "the largest finite float32 and float64 count as equal to infinity"
)


# --- in order ------------------------------------------------------------------------------------


@register(aten.topk.default)
def aten_topk(
    op: Builder, self: Value, k: Size, dim: int = -1, largest: bool = True, sorted: bool = True
) -> list[Value]:
    return sort_along_axis(op, self, dim, largest=largest, count=k)


@register(aten.sort.default)
def aten_sort(op: Builder, self: Value, dim: int = -1, descending: bool = False) -> list[Value]:
    """Emits TopK of all elements, which keeps equal ones in their order."""
    return sort_along_axis(op, self, dim, largest=descending)


@register(aten.sort.stable)
def aten_sort_stable(
    op: Builder, self: Value, stable: bool | None, dim: int = -1, descending: bool = False
) -> list[Value]:
    return sort_along_axis(op, self, dim, largest=descending)


@register(aten.argsort.default)
def aten_argsort(op: Builder, self: Value, dim: int = -1, descending: bool = False) -> Value:
    return sort_along_axis(op, self, dim, largest=descending)[1]


@register(aten.argsort.stable)
def aten_argsort_stable(
    op: Builder, self: Value, stable: bool, dim: int = -1, descending: bool = False
) -> Value:
    return sort_along_axis(op, self, dim, largest=descending)[1]


def sort_along_axis(
    op: Builder, value: Value, dim: int, *, largest: bool = False, count: Size | None = None
) -> list[Value]:
    """Returns the first elements in order, all if ``count`` is None, and their positions."""
    if op.rank(value) == 0:
        return [value, op.constant(0, INT64)]
    axis = op.axis(value, dim)
    wanted = op.sizes([op.size(value, axis) if count is None else count])
    ranks = _make_sort_keys(op, value)
    values, positions = op.TopK(
        ranks, wanted, axis=axis, largest=int(largest), sorted=1, _outputs=2
    )
    if ranks is not value:
        values = op.GatherElements(value, positions, axis=axis)
    return [values, positions]


def _make_sort_keys(op: Builder, value: Value) -> Value:
    """Returns numbers that TopK takes and that have the order of torch."""
    if value.dtype == BOOL:
        return op.Cast(value, to=INT32)
    if not dtypes.is_floating(value.dtype):
        return value
    wide = value if value.dtype == DOUBLE else op.cast(value, FLOAT)
    largest = torch.finfo(dtypes.to_torch(wide.dtype or FLOAT)).max
    return op.Where(op.IsNaN(wide), math.inf, op.Min(wide, largest))


# --- one of them ---------------------------------------------------------------------------------


@register(aten.kthvalue.default)
def aten_kthvalue(
    op: Builder, self: Value, k: Size, dim: int = -1, keepdim: bool = False
) -> list[Value]:
    return _take_kth(op, self, k, dim, keepdim)


def _take_kth(op: Builder, value: Value, k: Size, dim: int, keepdim: bool) -> list[Value]:
    """Returns the last of the k smallest elements, and its position."""
    if op.rank(value) == 0:
        return [value, op.constant(0, INT64)]
    axis = op.axis(value, dim)
    last = as_value(op, subtract_sizes(op, k, 1))
    index = op.Unsqueeze(last, [0]) if keepdim else last
    smallest = sort_along_axis(op, value, axis, count=k)
    return [op.Gather(part, index, axis=axis) for part in smallest]


@register(aten.median.default)
def aten_median(op: Builder, self: Value) -> Value:
    return _take_median_of_all(op, self, skip_nan=False)


@register(aten.nanmedian.default)
def aten_nanmedian(op: Builder, self: Value) -> Value:
    return _take_median_of_all(op, self, skip_nan=True)


def _take_median_of_all(op: Builder, value: Value, *, skip_nan: bool) -> Value:
    """Median of all elements; for none it is NaN cast to the element type, as in torch."""
    if op.rank(value) == 0:
        return value
    if value.shape is not None and 0 in value.shape:
        return op.constant(torch.full((), math.nan).to(op.result.dtype))
    return _take_median(op, op.Reshape(value, [-1]), 0, False, skip_nan=skip_nan)[0]


@register(aten.median.dim)
def aten_median_dim(op: Builder, self: Value, dim: int, keepdim: bool = False) -> list[Value]:
    return _take_median(op, self, dim, keepdim, skip_nan=False)


@register(aten.nanmedian.dim)
def aten_nanmedian_dim(op: Builder, self: Value, dim: int, keepdim: bool = False) -> list[Value]:
    return _take_median(op, self, dim, keepdim, skip_nan=True)


def _take_median(
    op: Builder, value: Value, dim: int, keepdim: bool, *, skip_nan: bool
) -> list[Value]:
    """Returns the lower middle element. NaN sorts last: the first NaN is after all numbers."""
    if op.rank(value) == 0:
        return [value, op.constant(0, INT64)]
    axis = op.axis(value, dim)
    size = op.size(value, axis)
    if not dtypes.is_floating(value.dtype):
        k = (size + 1) // 2 if isinstance(size, int) else op.Div(op.Add(size, 1), 2)
        return _take_kth(op, value, k, axis, keepdim)
    numbers = op.Cast(op.Not(op.IsNaN(value)), to=INT64)
    count = op.ReduceSum(numbers, [axis], keepdims=1)
    middle = op.Div(op.Sub(count, 1), 2)
    at = middle if skip_nan else op.Where(op.Less(count, size), count, middle)
    return [_take_at(op, part, at, axis, keepdim) for part in sort_along_axis(op, value, axis)]


def _take_at(op: Builder, value: Value, at: Value, axis: int, keepdim: bool) -> Value:
    taken = op.GatherElements(value, at, axis=axis)
    return taken if keepdim else op.Squeeze(taken, [axis])


@register(aten.mode.default)
def aten_mode(op: Builder, self: Value, dim: int = -1, keepdim: bool = False) -> list[Value]:
    """Finds the first longest run of equal elements in order, and the last position in it."""
    if op.rank(self) == 0:
        return [self, op.constant(0, INT64)]
    axis = op.axis(self, dim)
    values, positions = sort_along_axis(op, self, axis)
    run = op.Sub(op.CumSum(op.Cast(mark_run_starts(op, values, axis), to=INT64), axis), 1)
    ones, zeros = (fill_like(op, run, number) for number in (1, 0))
    lengths = op.ScatterElements(zeros, run, ones, axis=axis, reduction="add")
    length = op.GatherElements(lengths, run, axis=axis)
    length.shape = values.shape
    first = op.ArgMax(length, axis=axis, keepdims=1)
    last = op.Sub(op.Add(first, op.GatherElements(length, first, axis=axis)), 1)
    return [_take_at(op, part, last, axis, keepdim) for part in (values, positions)]


LIMITS[aten.mode.default] = "the last of the most frequent elements is chosen; eager is unspecified"


# --- runs of equal elements ----------------------------------------------------------------------


def mark_run_starts(op: Builder, value: Value, axis: int) -> Value:
    """True where an element differs from the one before it along an axis, and for the first."""
    before = slice_axis(op, value, axis, 0, -1)
    differs = op.Not(op.Equal(slice_axis(op, value, axis, 1, INT64_MAX), before))
    sizes = op.all_sizes(value)
    first = op.Expand(op.constant(True), op.sizes([*sizes[:axis], 1, *sizes[axis + 1 :]]))
    starts = op.Concat(first, differs, axis=axis)
    size = sizes[axis]
    if not (isinstance(size, int) and size > 0):
        starts = slice_axis(op, starts, axis, 0, size)
    starts.shape = ir.Shape(value.shape or ())
    return starts


def fill_like(op: Builder, value: Value, fill: Any) -> Value:
    """Fills the shape of a value with a number of its type, or with another value."""
    number = fill if isinstance(fill, ir.Value) else op.constant(fill, value.dtype)
    return annotate_shape(op.Expand(number, op.Shape(value)), value.shape or ())


def make_empty_result(op: Builder) -> Value:
    """Returns torch's result in place of positions or counts that were not asked for."""
    return op.constant(torch.empty(0, dtype=torch.int64))
