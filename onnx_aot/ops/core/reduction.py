"""Translates sums, means, extremes, norms and cumulative sums."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import onnx_ir as ir
import torch

from onnx_aot.builder.builder import Builder, Size
from onnx_aot.dtypes import HALVES, is_floating
from onnx_aot.ops.core.size_math import as_value, product, subtract_sizes
from onnx_aot.ops.registry import FLOATING, LIMITS, REPORTED, register
from onnx_aot.torch_compat import aten

__all__ = ["Axes", "axes_of", "compute_mean", "reduce_extreme"]

Value = ir.Value
FLOAT, INT64 = ir.DataType.FLOAT, ir.DataType.INT64
Axes = int | Sequence[int] | None


def axes_of(dim: Axes) -> list[int] | None:
    """Returns the axes to reduce, or None for all."""
    if isinstance(dim, int):
        return [dim]
    return list(dim) if dim else None


def _reduce_in_result_type(op: Builder, name: str, value: Value, dim: Axes, keepdim: bool) -> Value:
    """Reduces in the recorded type; a 0-d value is its own reduction.

    ONNX does not sum or multiply short integers or booleans. They are computed in INT64 and cast
    back: short integers keep the low bits, and booleans are true if the result is not 0.
    """
    dtype = op.result_dtype
    value = op.cast(value, dtype)
    if op.rank(value) == 0:
        return value
    wide = ir.DataType.INT64 if dtype in SHORT else dtype
    return op.cast(op.reduce(name, op.cast(value, wide), axes_of(dim), keepdim), dtype)


SHORT = frozenset({ir.DataType.BOOL, ir.DataType.INT8, ir.DataType.INT16, ir.DataType.UINT8})


def _element_count(op: Builder, value: Value, dim: Axes) -> Size:
    """Returns the number of elements that each result is computed from."""
    axes = axes_of(dim) or range(op.rank(value))
    return product(op, [op.size(value, axis) for axis in axes])


@register(aten.sum.default, aten.sum.dim_IntList)
def aten_sum(
    op: Builder, self: Value, dim: Axes = None, keepdim: bool = False, dtype: Any = None
) -> Value:
    return _reduce_in_result_type(op, "ReduceSum", self, dim, keepdim)


for _target in (aten.sum.default, aten.sum.dim_IntList):
    LIMITS[_target] = (
        "ONNX Runtime adds int64 numbers as double: sums beyond 2^53 are rounded; cumsum and "
        "matrix products are exact"
    )
    REPORTED[_target] = (torch.int64,)


@register(aten.mean.default, aten.mean.dim)
def aten_mean(
    op: Builder, self: Value, dim: Axes = None, keepdim: bool = False, dtype: Any = None
) -> Value:
    return compute_mean(op, op.cast(self, op.result_dtype), dim, keepdim)


def compute_mean(op: Builder, value: Value, dim: Axes, keepdim: bool) -> Value:
    """Mean over axes, NaN where there are no elements; None is all axes."""
    if op.rank(value) == 0:
        return value
    return _emit_mean(op, value, axes_of(dim), keepdim, _mean_divisor(op, value, dim, keepdim))


def _mean_divisor(op: Builder, value: Value, dim: Axes, keepdim: bool) -> Size:
    """Returns the element count, as a vector if the sums have axes, which saves a Squeeze."""
    count = _element_count(op, value, dim)
    rank, axes = op.rank(value), axes_of(dim)
    all_axes = axes is None or len(axes) == rank
    if isinstance(count, int) or (all_axes and not keepdim):
        return count
    vector: Value = op.Unsqueeze(count, [0])
    return vector


def _emit_mean(
    op: Builder, value: Value, axes: list[int] | None, keepdim: bool, count: Size
) -> Value:
    """Emits ReduceMean, or ReduceSum divided by the count if that may be 0.

    The count is a number or has one element. The mean of nothing is NaN in torch,
    undefined in ONNX and 0 in ONNX Runtime. The sum and the count may be beyond FLOAT16.
    """
    if isinstance(count, int) and count > 0:
        return op.reduce("ReduceMean", value, axes, keepdim)
    wide = FLOAT if value.dtype in HALVES else value.dtype
    total = op.reduce("ReduceSum", op.cast(value, wide), axes, keepdim)
    return op.cast(op.Div(total, op.cast(as_value(op, count), wide)), value.dtype)


@register(aten.prod.default, aten.prod.dim_int)
def aten_prod(
    op: Builder, self: Value, dim: Axes = None, keepdim: bool = False, dtype: Any = None
) -> Value:
    if (
        op.result_dtype != ir.DataType.INT64
        or op.rank(self) == 0
        or _is_product_exact(op, self, dim)
    ):
        return _reduce_in_result_type(op, "ReduceProd", self, dim, keepdim)
    return _multiply_integers(op, op.cast(self, ir.DataType.INT64), dim, keepdim)


EXACT_BITS = 53
"""Bits that double holds exactly; ONNX Runtime computes ReduceProd of INT64 in double."""


def _is_product_exact(op: Builder, value: Value, dim: Axes) -> bool:
    if value.dtype in (None, ir.DataType.BOOL):
        return True
    count = _element_count(op, value, dim)
    return isinstance(count, int) and count * value.dtype.bitwidth <= EXACT_BITS


def _multiply_integers(op: Builder, value: Value, dim: Axes, keepdim: bool) -> Value:
    """Multiplies one element after the other, which keeps the low bits of an overflow."""
    rank = op.rank(value)
    if dim is None:
        value = op.Reshape(value, [-1])
    axis = 0 if dim is None else (axes_of(dim) or [0])[0] % rank
    sizes = op.all_sizes(value)
    one = op.Expand(
        op.constant(1, ir.DataType.INT64), op.sizes([*sizes[:axis], *sizes[axis + 1 :]])
    )
    several = op.Concat(op.Unsqueeze(one, [axis]), value, axis=axis)  # there may be no element
    (total,) = op.scan([one], [several], lambda total, each: [op.Mul(total, each)], axis=axis)
    if not keepdim:
        return total
    return op.Unsqueeze(total, list(range(rank)) if dim is None else [axis])


@register(aten.amax.default)
def aten_amax(op: Builder, self: Value, dim: Axes = (), keepdim: bool = False) -> Value:
    return reduce_extreme(op, "ReduceMax", self, dim, keepdim)


@register(aten.amin.default)
def aten_amin(op: Builder, self: Value, dim: Axes = (), keepdim: bool = False) -> Value:
    return reduce_extreme(op, "ReduceMin", self, dim, keepdim)


@register(aten.max.default)
def aten_max(op: Builder, self: Value) -> Value:
    return reduce_extreme(op, "ReduceMax", self, None, False)


@register(aten.min.default)
def aten_min(op: Builder, self: Value) -> Value:
    return reduce_extreme(op, "ReduceMin", self, None, False)


@register(aten.aminmax.default)
def aten_aminmax(
    op: Builder, self: Value, dim: int | None = None, keepdim: bool = False
) -> list[Value]:
    return [reduce_extreme(op, name, self, dim, keepdim) for name in ("ReduceMin", "ReduceMax")]


def reduce_extreme(op: Builder, name: str, value: Value, dim: Axes, keepdim: bool) -> Value:
    """Returns NaN where there is one, which ONNX leaves open and ONNX Runtime ignores.

    ReduceMax and ReduceMin take booleans since opset 20; before, they are reduced as integers.
    """
    if op.rank(value) == 0:
        return value
    if value.dtype == ir.DataType.BOOL and op.opset < 20:
        number = op.cast(value, ir.DataType.INT32)
        return op.cast(op.reduce(name, number, axes_of(dim), keepdim), ir.DataType.BOOL)
    extreme = op.reduce(name, value, axes_of(dim), keepdim)
    if not is_floating(value.dtype):
        return extreme
    count = op.reduce("ReduceSum", op.cast(op.IsNaN(value), INT64), axes_of(dim), keepdim)
    return op.Where(op.Greater(count, 0), op.constant(math.nan, value.dtype), extreme)


@register(aten.max.dim)
def aten_max_dim(op: Builder, self: Value, dim: int, keepdim: bool = False) -> list[Value]:
    values = reduce_extreme(op, "ReduceMax", self, dim, keepdim)
    return [values, _find_extreme(op, "ArgMax", self, dim, keepdim)]


@register(aten.min.dim)
def aten_min_dim(op: Builder, self: Value, dim: int, keepdim: bool = False) -> list[Value]:
    values = reduce_extreme(op, "ReduceMin", self, dim, keepdim)
    return [values, _find_extreme(op, "ArgMin", self, dim, keepdim)]


@register(aten.argmax.default)
def aten_argmax(op: Builder, self: Value, dim: int | None = None, keepdim: bool = False) -> Value:
    return _find_extreme(op, "ArgMax", self, dim, keepdim)


@register(aten.argmin.default)
def aten_argmin(op: Builder, self: Value, dim: int | None = None, keepdim: bool = False) -> Value:
    return _find_extreme(op, "ArgMin", self, dim, keepdim)


def _find_extreme(op: Builder, name: str, value: Value, dim: int | None, keepdim: bool) -> Value:
    """Returns the first position of the extreme, as eager torch does on the CPU."""
    rank = op.rank(value)
    if rank == 0:
        return op.constant(0, ir.DataType.INT64)
    if value.dtype == ir.DataType.BOOL:
        value = op.cast(value, ir.DataType.INT32)
    if dim is not None:
        return op.call_op(name, [value], {"axis": op.axis(value, dim), "keepdims": int(keepdim)})
    flat = op.call_op(name, [op.Reshape(value, [-1])], {"axis": 0, "keepdims": 0})
    return op.Reshape(flat, [1] * rank) if keepdim else flat


FEW = 64
"""Number of elements up to which float32 is exact enough for their sums."""

_POSITION = "the position of a NaN is not found: NaN is skipped unless it comes first"
for _target in (aten.argmax.default, aten.argmin.default):
    LIMITS[_target], REPORTED[_target] = _POSITION, FLOATING
for _target in (aten.max.dim, aten.min.dim):
    LIMITS[_target], REPORTED[_target] = f"indices: {_POSITION}", FLOATING


@register(aten.logsumexp.default)
def aten_logsumexp(op: Builder, self: Value, dim: Axes, keepdim: bool = False) -> Value:
    return _reduce_in_result_type(op, "ReduceLogSumExp", self, dim, keepdim)


@register(aten.cumsum.default)
def aten_cumsum(op: Builder, self: Value, dim: int, dtype: Any = None) -> Value:
    value = op.cast(self, op.result_dtype)
    if op.rank(value) == 0:
        return value
    axis = op.constant(dim, ir.DataType.INT64)
    size = op.result.shape[dim]
    if op.result.dtype == torch.float32 and not (isinstance(size, int) and size <= FEW):
        # PyTorch adds in double. Sums of phases, whose sine is taken, are wrong otherwise.
        double = ir.DataType.DOUBLE
        return op.cast(op.CumSum(op.cast(value, double), axis), op.result_dtype)
    return op.CumSum(value, axis)


@register(aten.var.correction)
def aten_var(
    op: Builder, self: Value, dim: Axes = None, correction: Any = None, keepdim: bool = False
) -> Value:
    return _compute_variance(op, self, dim, correction, keepdim)


@register(aten.var.default, aten.var.dim)
def aten_var_unbiased(
    op: Builder, self: Value, dim: Axes = None, unbiased: bool = True, keepdim: bool = False
) -> Value:
    return _compute_variance(op, self, dim, int(unbiased), keepdim)


@register(aten.std.correction)
def aten_std(
    op: Builder, self: Value, dim: Axes = None, correction: Any = None, keepdim: bool = False
) -> Value:
    return _compute_deviation(op, self, dim, correction, keepdim)


@register(aten.std.default, aten.std.dim)
def aten_std_unbiased(
    op: Builder, self: Value, dim: Axes = None, unbiased: bool = True, keepdim: bool = False
) -> Value:
    return _compute_deviation(op, self, dim, int(unbiased), keepdim)


@register(aten.var_mean.correction)
def aten_var_mean(
    op: Builder, self: Value, dim: Axes = None, correction: Any = None, keepdim: bool = False
) -> list[Value]:
    variance = _compute_variance(op, self, dim, correction, keepdim)
    return [variance, compute_mean(op, self, dim, keepdim)]


@register(aten.var_mean.default, aten.var_mean.dim)
def aten_var_mean_unbiased(
    op: Builder, self: Value, dim: Axes = None, unbiased: bool = True, keepdim: bool = False
) -> list[Value]:
    return aten_var_mean(op, self, dim, int(unbiased), keepdim)


@register(aten.std_mean.correction)
def aten_std_mean(
    op: Builder, self: Value, dim: Axes = None, correction: Any = None, keepdim: bool = False
) -> list[Value]:
    deviation = _compute_deviation(op, self, dim, correction, keepdim)
    return [deviation, compute_mean(op, self, dim, keepdim)]


@register(aten.std_mean.default, aten.std_mean.dim)
def aten_std_mean_unbiased(
    op: Builder, self: Value, dim: Axes = None, unbiased: bool = True, keepdim: bool = False
) -> list[Value]:
    return aten_std_mean(op, self, dim, int(unbiased), keepdim)


for _target in (
    aten.var_mean.correction,
    aten.var_mean.default,
    aten.var_mean.dim,
    aten.std_mean.correction,
    aten.std_mean.default,
    aten.std_mean.dim,
):
    LIMITS[_target] = "the mean of numbers with an infinity is infinite, in eager it is NaN"


def _compute_variance(
    op: Builder, value: Value, dim: Axes, correction: Any, keepdim: bool
) -> Value:
    """``sum((x - mean)^2) / max(0, n - correction)``, in two passes.

    The sum and the count may be beyond FLOAT16.
    """
    if value.dtype in HALVES:
        variance = _compute_variance(op, op.cast(value, FLOAT), dim, correction, keepdim)
        return op.cast(variance, value.dtype)
    axes = axes_of(dim)
    correction = 1 if correction is None else correction
    if op.rank(value) == 0:
        return op.Div(op.Sub(value, value), max(0.0, 1.0 - correction))
    centred = op.Sub(value, op.reduce("ReduceMean", value, axes, True))
    square = op.Mul(centred, centred)
    count = _element_count(op, value, dim)
    if correction == 0:
        return _emit_mean(op, square, axes, keepdim, count)
    total = op.reduce("ReduceSum", square, axes, keepdim)
    return op.Div(total, _degrees_of_freedom(op, count, correction, value.dtype))


def _compute_deviation(
    op: Builder, value: Value, dim: Axes, correction: Any, keepdim: bool
) -> Value:
    """The root of the variance, which may be beyond FLOAT16 itself."""
    wide = op.cast(value, FLOAT) if value.dtype in HALVES else value
    deviation = op.Sqrt(_compute_variance(op, wide, dim, correction, keepdim))
    return op.cast(deviation, value.dtype)


def _degrees_of_freedom(
    op: Builder, count: Size, correction: Any, dtype: ir.DataType | None
) -> Value | float:
    """``max(0, n - correction)``; the subtraction is exact if the correction is an integer."""
    if isinstance(count, int):
        return max(0.0, count - float(correction))
    if int(correction) == correction:
        return op.cast(op.Max(subtract_sizes(op, count, int(correction)), 0), dtype)
    return op.Max(op.Sub(op.cast(count, dtype), float(correction)), 0.0)
