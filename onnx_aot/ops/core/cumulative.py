"""Translates running products, extremes and log-sums along an axis, and differences.

Running sums are in ``reduction``.

Associative operations are computed by doubling: after step k every element combines the ``2^k``
elements that end with it (W. D. Hillis and G. L. Steele, "Data Parallel Algorithms", Communications
of the ACM 29, 1986).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import onnx_ir as ir

from onnx_aot import dtypes
from onnx_aot.builder.builder import Builder, Size
from onnx_aot.dtypes import INT64_MAX
from onnx_aot.ops.core.movement import slice_axis
from onnx_aot.ops.registry import LIMITS, register
from onnx_aot.torch_compat import aten

__all__ = ["count_doublings", "scan_by_doubling"]

Value = ir.Value
BOOL = ir.DataType.BOOL
DOUBLE = ir.DataType.DOUBLE
INT32 = ir.DataType.INT32
INT64 = ir.DataType.INT64


@register(aten.diff.default)
def aten_diff(
    op: Builder,
    self: Value,
    n: int = 1,
    dim: int = -1,
    prepend: Value | None = None,
    append: Value | None = None,
) -> Value:
    """Subtracts from each element the one before it; booleans use Xor."""
    if n == 0:
        return op.cast(self, op.result_dtype)  # without prepend and append
    axis = op.axis(self, dim)
    parts = [op.cast(p, op.result_dtype) for p in (prepend, self, append) if p is not None]
    value: Value = op.Concat(*parts, axis=axis)
    for _ in range(n):
        later = slice_axis(op, value, axis, 1, INT64_MAX)
        earlier = slice_axis(op, value, axis, 0, -1)
        value = op.Xor(later, earlier) if value.dtype == BOOL else op.Sub(later, earlier)
    return value


@register(aten.cumprod.default)
def aten_cumprod(op: Builder, self: Value, dim: int, dtype: Any = None) -> Value:
    """Multiplies floating-point numbers as DOUBLE, as eager does; CumProd exists since opset 26."""
    value = op.cast(self, op.result_dtype)
    if op.rank(value) == 0:
        return value
    wide = op.cast(value, DOUBLE) if dtypes.is_floating(value.dtype) else value
    axis = op.axis(value, dim)
    if op.opset >= 26:
        return op.cast(op.CumProd(wide, op.constant(axis, INT64)), value.dtype)

    def join(earlier: Sequence[Value], later: Sequence[Value]) -> list[Value]:
        return [op.Mul(earlier[0], later[0])]

    products = scan_by_doubling(op, [wide], axis, join, neutral=[op.constant(1, wide.dtype)])[0]
    return op.cast(products, value.dtype)


LIMITS[aten.cumprod.default] = (
    "before opset 26, NaN where a product within the sequence overflows DOUBLE and what is before "
    "it is 0"
)


@register(aten.cummax.default)
def aten_cummax(op: Builder, self: Value, dim: int) -> list[Value]:
    return _cumulative_extreme(op, self, dim, "GreaterOrEqual")


@register(aten.cummin.default)
def aten_cummin(op: Builder, self: Value, dim: int) -> list[Value]:
    return _cumulative_extreme(op, self, dim, "LessOrEqual")


def _cumulative_extreme(op: Builder, value: Value, dim: int, compare: str) -> list[Value]:
    """The last of equal elements counts; NaN beats every number, as in ``_compare_base_reduce``."""
    if op.rank(value) == 0:
        return [value, op.constant(0, INT64)]
    axis = op.axis(value, dim)
    numbers = op.cast(value, INT32) if value.dtype == BOOL else value
    floating = dtypes.is_floating(numbers.dtype)

    def join(earlier: Sequence[Value], later: Sequence[Value]) -> list[Value]:
        wins = op.call_op(compare, [later[0], earlier[0]], {})
        if floating:
            wins = op.Or(wins, op.IsNaN(later[0]))
        return [op.Where(wins, after, before) for before, after in zip(earlier, later, strict=True)]

    around = [a for a in range(op.rank(value)) if a != axis]
    counted = op.Range(0, op.size(value, axis), 1)
    positions = op.Expand(op.Unsqueeze(counted, around) if around else counted, op.Shape(value))
    positions.shape = ir.Shape(value.shape or ())
    # no neutral element: joining the first element twice makes no difference
    values, indices = scan_by_doubling(op, [numbers, positions], axis, join)
    return [op.cast(values, value.dtype), indices]


@register(aten.logcumsumexp.default)
def aten_logcumsumexp(op: Builder, self: Value, dim: int) -> Value:
    """``log(exp(a) + exp(b)) = max + log(1 + exp(min - max))``, without subtracting equal ones.

    The difference of two equal infinities would be NaN.
    """
    if op.rank(self) == 0:
        return self

    def join(earlier: Sequence[Value], later: Sequence[Value]) -> list[Value]:
        a, b = earlier[0], later[0]
        high, low = op.Max(a, b), op.Min(a, b)
        gap = op.Where(op.Equal(high, low), op.constant(0, self.dtype), op.Sub(low, high))
        return [op.Add(high, op.Log(op.Add(op.Exp(gap), 1)))]

    axis = op.axis(self, dim)
    nothing = op.constant(-math.inf, self.dtype)
    return scan_by_doubling(op, [self], axis, join, neutral=[nothing])[0]


Join = Callable[[Sequence[Value], Sequence[Value]], list[Value]]


def scan_by_doubling(
    op: Builder,
    values: list[Value],
    axis: int,
    join: Join,
    *,
    neutral: Sequence[Value] | None = None,
) -> list[Value]:
    """Joins each element with all elements before it along the axis.

    Positions before the first element hold ``neutral``, one for each of the values, or the first
    element itself if it is None.
    """
    size = op.size(values[0], axis)
    steps = count_doublings(op, size)
    if isinstance(steps, int) and steps == 0:
        return values
    positions = op.Range(0, size, 1)
    after = list(range(1, op.rank(values[0]) - axis))

    def step(_: Value, distance: Value, *current: Value) -> list[Value]:
        before = op.Sub(positions, distance)
        earlier = [op.Gather(value, op.Max(before, 0), axis=axis) for value in current]
        if neutral is not None:
            outside = op.Less(before, 0)
            outside = op.Unsqueeze(outside, after) if after else outside
            earlier = [op.Where(outside, *pair) for pair in zip(neutral, earlier, strict=True)]
        for value, shifted in zip(current, earlier, strict=True):
            shifted.shape = value.shape
        return [op.Mul(distance, 2), *join(earlier, current)]

    return op.loop(steps, [op.constant(1, INT64), *values], step)[1:]


def count_doublings(op: Builder, size: Size) -> Size:
    """Returns how often 1 must be doubled to reach a size; once more does no harm.

    The logarithm is taken of odd numbers, of which only 1 has an integer logarithm.
    """
    if isinstance(size, int):
        return max(size - 1, 0).bit_length()
    odd = op.Max(op.Sub(op.Mul(size, 2), 1), 1)
    exponent = op.Mul(op.Log(op.Cast(odd, to=DOUBLE)), op.constant(1 / math.log(2), DOUBLE))
    count: Value = op.Cast(op.Ceil(exponent), to=INT64)
    return count
