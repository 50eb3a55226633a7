"""Running products, extremes and log-sums along an axis; running sums are in ``reduction``.

Where the order of the steps makes no difference, they are done by doubling: after step k every
element stands for the ``2^k`` elements that end with it (W. D. Hillis and G. L. Steele, "Data
Parallel Algorithms", Communications of the ACM 29, 1986).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import onnx_ir as ir
import torch

from onnx_aot import dtypes
from onnx_aot.ops.builder import Builder, Size
from onnx_aot.ops.registry import register

__all__ = ["doublings"]

aten = torch.ops.aten
Value = ir.Value
BOOL = ir.DataType.BOOL
DOUBLE = ir.DataType.DOUBLE
INT32 = ir.DataType.INT32
INT64 = ir.DataType.INT64


@register(aten.cumprod.default)
def aten_cumprod(op: Builder, self: Value, dim: int, dtype: Any = None) -> Value:
    """One multiplication after the other, so that it overflows where eager does."""
    value = op.cast(self, op.result_dtype)
    if op.rank(value) == 0:
        return value
    axis = op.axis(value, dim)
    size = op.size(value, axis)
    if isinstance(size, int) and size < 2:
        return value
    others = [s for position, s in enumerate(op.all_sizes(value)) if position != axis]
    one = op.Expand(op.constant(1, value.dtype), op.sizes(others)) if others else None
    start = op.constant(1, value.dtype) if one is None else one

    def step(product: Value, factor: Value) -> Sequence[Value]:
        product = op.Mul(product, factor)
        return [product, product]

    return op.scan([start], [value], step, axis=axis)[1]


@register(aten.cummax.default)
def aten_cummax(op: Builder, self: Value, dim: int) -> list[Value]:
    return _cumulative_extreme(op, self, dim, "GreaterOrEqual")


@register(aten.cummin.default)
def aten_cummin(op: Builder, self: Value, dim: int) -> list[Value]:
    return _cumulative_extreme(op, self, dim, "LessOrEqual")


def _cumulative_extreme(op: Builder, value: Value, dim: int, compare: str) -> list[Value]:
    """The last of equal elements counts; NaN beats every number, as ``_compare_base_reduce``."""
    if op.rank(value) == 0:
        return [value, op.constant(0, INT64)]
    axis = op.axis(value, dim)
    numbers = op.cast(value, INT32) if value.dtype == BOOL else value
    worst = _worst(dtypes.to_torch(numbers.dtype or INT32), highest=compare == "LessOrEqual")
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
    values, indices = _doubled(op, [numbers, positions], [worst, 0], axis, join)
    return [op.cast(values, value.dtype), indices]


def _worst(dtype: torch.dtype, *, highest: bool) -> float:
    """What every number is at least as good as."""
    if dtype.is_floating_point:
        return math.inf if highest else -math.inf
    limits = torch.iinfo(dtype)
    return limits.max if highest else limits.min


@register(aten.logcumsumexp.default)
def aten_logcumsumexp(op: Builder, self: Value, dim: int) -> Value:
    """``log(exp(a) + exp(b)) = max + log(1 + exp(min - max))``, with no difference of equal ones.

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
    return _doubled(op, [self], [-math.inf], axis, join)[0]


Join = Callable[[Sequence[Value], Sequence[Value]], list[Value]]


def _doubled(
    op: Builder, values: list[Value], neutral: Sequence[float], axis: int, join: Join
) -> list[Value]:
    """Joins each element with all that come before it along the axis."""
    steps = doublings(op, op.size(values[0], axis))
    if isinstance(steps, int) and steps == 0:
        return values
    rank = op.rank(values[0])
    shift = op.constant([(i == axis) - (i == rank + axis) for i in range(2 * rank)])
    fills = [op.constant(fill, value.dtype) for fill, value in zip(neutral, values, strict=True)]

    def step(_: Value, distance: Value, *current: Value) -> list[Value]:
        pads = op.Mul(shift, distance)
        earlier = [op.Pad(v, pads, fill) for v, fill in zip(current, fills, strict=True)]
        for value, before in zip(current, earlier, strict=True):
            before.shape = value.shape
        return [op.Mul(distance, 2), *join(earlier, current)]

    return op.loop(steps, [op.constant(1, INT64), *values], step)[1:]


def doublings(op: Builder, size: Size) -> Size:
    """How often 1 must be doubled to reach a size; once more does no harm.

    The logarithm is taken of odd numbers, so that only that of 1 is whole.
    """
    if isinstance(size, int):
        return max(size - 1, 0).bit_length()
    odd = op.Max(op.Sub(op.Mul(size, 2), 1), 1)
    exponent = op.Mul(op.Log(op.Cast(odd, to=DOUBLE)), op.constant(1 / math.log(2), DOUBLE))
    count: Value = op.Cast(op.Ceil(exponent), to=INT64)
    return count
