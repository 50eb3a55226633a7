"""Translates searches among sorted numbers, counts and histograms."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import onnx_ir as ir
import torch

from onnx_aot import dtypes
from onnx_aot.builder.builder import Builder, Size
from onnx_aot.dtypes import INT64_MAX
from onnx_aot.ops.core.cumulative import count_doublings
from onnx_aot.ops.core.movement import annotate_shape, reshape, slice_axis
from onnx_aot.ops.core.scatter import scatter_elements
from onnx_aot.ops.core.size_math import add_sizes, multiply_sizes, subtract_sizes
from onnx_aot.ops.registry import LIMITS, register
from onnx_aot.torch_compat import aten

__all__: list[str] = []

Value = ir.Value
BOOL = ir.DataType.BOOL
INT32 = ir.DataType.INT32
DOUBLE, FLOAT = ir.DataType.DOUBLE, ir.DataType.FLOAT
INT64 = ir.DataType.INT64

FEW = 64
"""Up to this many sorted numbers are compared with every value; more use binary search."""


# --- places among sorted numbers -----------------------------------------------------------------


@register(aten.searchsorted.Tensor)
def aten_searchsorted(
    op: Builder,
    sorted_sequence: Value,
    self: Any,
    out_int32: bool = False,
    right: bool = False,
    side: str | None = None,
    sorter: Value | None = None,
) -> Value:
    """Promotes the arguments to a common type."""
    if sorter is not None:
        sorted_sequence = op.GatherElements(sorted_sequence, sorter, axis=-1)
    sequence, values = _cast_to_common_type(op, sorted_sequence, self)
    return op.cast(
        _find_insertion_points(op, sequence, values, right or side == "right"), op.result_dtype
    )


@register(aten.searchsorted.Scalar)
def aten_searchsorted_scalar(
    op: Builder,
    sorted_sequence: Value,
    self: Any,
    out_int32: bool = False,
    right: bool = False,
    side: str | None = None,
    sorter: Value | None = None,
) -> Value:
    return aten_searchsorted(op, sorted_sequence, self, out_int32, right, side, sorter)


@register(aten.bucketize.Tensor)
def aten_bucketize(
    op: Builder, self: Value, boundaries: Value, out_int32: bool = False, right: bool = False
) -> Value:
    """Promotes the arguments to a common type."""
    sequence, values = _cast_to_common_type(op, boundaries, self)
    return op.cast(_find_insertion_points(op, sequence, values, right), op.result_dtype)


@register(aten.bucketize.Scalar)
def aten_bucketize_scalar(
    op: Builder, self: Any, boundaries: Value, out_int32: bool = False, right: bool = False
) -> Value:
    return aten_bucketize(op, self, boundaries, out_int32, right)


def _cast_to_common_type(op: Builder, sequence: Value, values: Any) -> tuple[Value, Value]:
    """Casts both to the type in which torch compares them."""
    first = _make_promotion_sample(op, sequence)
    second = _make_promotion_sample(op, values) if isinstance(values, ir.Value) else values
    dtype = dtypes.to_onnx(torch.result_type(first, second))
    return op.cast(sequence, dtype), op.cast(values, dtype)


def _make_promotion_sample(op: Builder, value: Value) -> torch.Tensor:
    """Returns a tensor that is promoted as the value is."""
    return torch.empty([1] * op.rank(value), dtype=dtypes.to_torch(value.dtype or INT64))


def _find_insertion_points(op: Builder, sequence: Value, values: Value, right: bool) -> Value:
    """Counts the sorted numbers that are less than a value, or not greater if ``right``.

    Comparisons with NaN are false, so its place is after all numbers.
    """
    if sequence.dtype == BOOL:
        sequence, values = op.Cast(sequence, to=INT32), op.Cast(values, to=INT32)
    count = op.size(sequence, -1)
    compare = "Greater" if right else "GreaterOrEqual"
    if isinstance(count, int) and count <= FEW:
        wide = op.Unsqueeze(sequence, [-2]) if op.rank(sequence) > 1 else sequence
        passed = op.Not(op.call_op(compare, [wide, op.Unsqueeze(values, [-1])], {}))
        return op.reduce("ReduceSum", op.Cast(passed, to=INT64), [-1], keepdims=False)
    if op.rank(sequence) > 1:
        return _binary_search(op, sequence, values, count, compare)
    found = _binary_search(op, sequence, op.Reshape(values, [-1]), count, compare)
    if op.rank(values) == 0:
        return op.Reshape(found, op.constant([], INT64))
    return reshape(op, found, op.all_sizes(values))


def _binary_search(op: Builder, sequence: Value, values: Value, count: Size, compare: str) -> Value:
    """Binary search for all values at once; each place is between ``low`` and ``high``."""
    low = annotate_shape(op.Expand(op.constant(0), op.Shape(values)), values.shape or ())
    last = subtract_sizes(op, count, 1)

    def step(_: Value, low: Value, high: Value) -> Sequence[Value]:
        middle = op.Min(op.Div(op.Add(low, high), 2), last)
        found = op.GatherElements(sequence, middle, axis=op.rank(sequence) - 1)
        passed = op.Not(op.call_op(compare, [found, values], {}))
        open_ = op.Less(low, high)
        return [
            op.Where(op.And(open_, passed), op.Add(middle, 1), low),
            op.Where(op.And(open_, op.Not(passed)), middle, high),
        ]

    # there are count + 1 places to tell apart
    steps = count_doublings(op, add_sizes(op, count, 1))
    return op.loop(steps, [low, op.Add(low, count)], step)[0]


# --- counting ------------------------------------------------------------------------------------


@register(aten.bincount.default)
def aten_bincount(
    op: Builder, self: Value, weights: Value | None = None, minlength: Size = 0
) -> Value:
    """Counts each number from 0 to the largest, or sums its weights.

    Raises:
        TypeError: Torch recorded a type that differs from the one it returns.
    """
    wanted = INT64 if weights is None else FLOAT if weights.dtype == FLOAT else DOUBLE
    if op.result_dtype != wanted:
        raise TypeError(
            f"torch {torch.__version__} records {op.result_dtype} for the result, which is "
            f"{wanted}. Export with torch 2.13 or newer"
        )
    numbers = op.cast(self, INT64)
    before = op.Concat(numbers, op.sizes([subtract_sizes(op, minlength, 1)]), axis=0)
    annotate_shape(before, [None])
    length = op.Add(op.reduce("ReduceMax", before, [0], keepdims=True), 1)
    number = op.constant(1, op.result_dtype)
    amounts = (
        annotate_shape(op.Expand(number, op.Shape(numbers)), numbers.shape or ())
        if weights is None
        else op.cast(weights, op.result_dtype)
    )
    return _scatter_add(op, numbers, amounts, length)


def _scatter_add(op: Builder, positions: Value, amounts: Value, length: Value) -> Value:
    """Adds up the amounts in a vector, each at its position."""
    zeros = op.Expand(op.constant(0, amounts.dtype), length)
    annotate_shape(zeros, [None])
    return scatter_elements(op, zeros, positions, amounts, 0, "add")


@register(aten.histc.default)
def aten_histc(op: Builder, self: Value, bins: int = 100, min: Any = 0, max: Any = 0) -> Value:
    """The bin of a number is ``(x - min) * bins / (max - min)``, truncated to an integer.

    Without bounds, the extremes of the data are used, moved by one on each side if they are equal.
    """
    flat = op.Reshape(self, [-1])
    if min != max:
        low, high = op.constant(min, self.dtype), op.constant(max, self.dtype)
    elif self.shape is not None and 0 in self.shape:
        return op.constant(torch.zeros(bins, dtype=op.result.dtype))
    else:
        low, high = _find_bin_range(op, flat, 1.0)
    inside = op.And(op.GreaterOrEqual(flat, low), op.LessOrEqual(flat, high))
    scaled = op.Div(op.Mul(op.Sub(flat, low), float(bins)), op.Sub(high, low))
    place = op.Min(op.Cast(op.Where(inside, scaled, 0.0), to=INT64), bins - 1)
    weights = op.Cast(inside, to=self.dtype)
    return _scatter_add(op, place, weights, op.sizes([bins]))


LIMITS[aten.histc.default] = (
    "float16 and bfloat16 numbers at the edge of a bin may be counted in the next one"
)


def _find_bin_range(op: Builder, flat: Value, apart: float) -> tuple[Value, Value]:
    """Returns the extremes of numbers, moved apart if they are equal."""
    low, high = (op.reduce(name, flat, None, keepdims=False) for name in ("ReduceMin", "ReduceMax"))
    equal = op.Equal(low, high)
    return op.Where(equal, op.Sub(low, apart), low), op.Where(equal, op.Add(high, apart), high)


Edges = tuple[Value, list[Value]]


@register(aten.histogram.bin_ct)
def aten_histogram(
    op: Builder,
    self: Value,
    bins: int = 100,
    range: Sequence[float] | None = None,
    weight: Value | None = None,
    density: bool = False,
) -> list[Value]:
    counts, edges = _count_in_bins(op, op.Reshape(self, [-1, 1]), [bins], range, weight, density)
    return [counts, edges[0]]


@register(aten.histogram.bins_tensor)
def aten_histogram_bins(
    op: Builder, self: Value, bins: Value, weight: Value | None = None, density: bool = False
) -> list[Value]:
    counts, edges = _count_in_bins(op, op.Reshape(self, [-1, 1]), [bins], None, weight, density)
    return [counts, edges[0]]


@register(aten.histogramdd.default, aten.histogramdd.TensorList_bins)
def aten_histogramdd(
    op: Builder,
    self: Value,
    bins: Sequence[int | Value],
    range: Sequence[float] | None = None,
    weight: Value | None = None,
    density: bool = False,
) -> list[Any]:
    rows = reshape(op, self, [-1, op.size(self, -1)])
    counts, edges = _count_in_bins(op, rows, bins, range, weight, density)
    return [counts, edges]


@register(aten.histogramdd.int_bins)
def aten_histogramdd_int_bins(
    op: Builder,
    self: Value,
    bins: int,
    range: Sequence[float] | None = None,
    weight: Value | None = None,
    density: bool = False,
) -> list[Any]:
    each = [bins] * len(op.result[1])
    return aten_histogramdd(op, self, each, range, weight, density)


def _count_in_bins(
    op: Builder,
    rows: Value,
    bins: Sequence[int | Value],
    limits: Sequence[float] | None,
    weight: Value | None,
    density: bool,
) -> Edges:
    """Counts rows of coordinates in the product of the bins of each coordinate.

    A bin includes its lower edge, the last one also its upper edge. Rows outside do not count.
    """
    columns = [annotate_shape(op.Gather(rows, i, axis=1), [None]) for i in range(len(bins))]
    edges = [
        b
        if isinstance(b, ir.Value)
        else _make_bin_edges(op, column, b, None if limits is None else limits[2 * i : 2 * i + 2])
        for i, (b, column) in enumerate(zip(bins, columns, strict=True))
    ]
    counts: list[Size] = [subtract_sizes(op, op.size(edge, 0), 1) for edge in edges]
    position: Value | None = None
    inside: Value | None = None
    for column, edge, count in zip(columns, edges, counts, strict=True):
        within = op.And(
            op.GreaterOrEqual(column, op.Gather(edge, 0, axis=0)),
            op.LessOrEqual(column, op.Gather(edge, -1, axis=0)),
        )
        inside = within if inside is None else op.And(inside, within)
        place = op.Min(
            op.Sub(_find_insertion_points(op, edge, column, right=True), 1),
            subtract_sizes(op, count, 1),
        )
        position = place if position is None else op.Add(op.Mul(position, count), place)
    assert position is not None
    assert inside is not None
    amounts = op.Cast(inside, to=rows.dtype)
    if weight is not None:
        weights = op.Reshape(op.cast(weight, rows.dtype), [-1])
        amounts = op.Where(inside, weights, op.constant(0, rows.dtype))
    total: Size = 1
    for count in counts:
        total = multiply_sizes(op, total, count)
    flat = _scatter_add(op, op.Where(inside, position, 0), amounts, op.sizes([total]))
    histogram = reshape(op, flat, counts)
    return (_normalize_to_density(op, histogram, flat, edges) if density else histogram), edges


def _normalize_to_density(
    op: Builder, histogram: Value, flat: Value, edges: Sequence[Value]
) -> Value:
    """Divides the share of each bin by its volume."""
    histogram = op.Div(histogram, op.ReduceSum(flat, keepdims=0))
    for axis, edge in enumerate(edges):
        width = op.Sub(slice_axis(op, edge, 0, 1, INT64_MAX), slice_axis(op, edge, 0, 0, -1))
        after = list(range(1, len(edges) - axis))
        histogram = op.Div(histogram, op.Unsqueeze(width, after) if after else width)
    return histogram


def _make_bin_edges(op: Builder, column: Value, bins: int, limits: Sequence[float] | None) -> Value:
    """Returns ``bins + 1`` evenly spaced numbers, computed from both ends as in torch.linspace."""
    dtype = dtypes.to_torch(column.dtype or op.result_dtype)
    if column.shape is not None and column.shape.dims == (0,) and limits is None:
        limits = (0.0, 1.0)
    if limits is not None:
        low, high = limits
        low, high = (low - 0.5, high + 0.5) if low == high else (low, high)
        return op.constant(torch.linspace(low, high, bins + 1, dtype=dtype))
    start, end = _find_bin_range(op, column, 0.5)
    step = op.Div(op.Sub(end, start), float(bins))
    half = (bins + 1) // 2
    rising = torch.arange(half, dtype=dtype)
    falling = torch.arange(bins - half, -1, -1, dtype=dtype)
    up = op.Add(start, op.Mul(step, op.constant(rising)))
    down = op.Sub(end, op.Mul(step, op.constant(falling)))
    return annotate_shape(op.Concat(up, down, axis=0), [bins + 1])
