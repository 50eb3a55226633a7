"""Sums, means, extremes, norms and cumulative sums."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import onnx_ir as ir
import torch

from onnx_aot.ops.builder import Builder
from onnx_aot.ops.registry import register

__all__: list[str] = []

aten = torch.ops.aten
Value = ir.Value
Axes = int | Sequence[int] | None


def _list(dim: Axes) -> list[int] | None:
    if isinstance(dim, int):
        return [dim]
    return None if dim is None else list(dim)


def _reduced(op: Builder, name: str, value: Value, dim: Axes, keepdim: bool) -> Value:
    """In the recorded type; a 0-d value is its own reduction."""
    value = op.cast(value, op.result_dtype)
    if op.rank(value) == 0:
        return value
    return op.reduce(name, value, _list(dim), keepdim)


@register(aten.sum.default, aten.sum.dim_IntList)
def aten_sum(
    op: Builder, self: Value, dim: Axes = None, keepdim: bool = False, dtype: Any = None
) -> Value:
    return _reduced(op, "ReduceSum", self, dim, keepdim)


@register(aten.mean.default, aten.mean.dim)
def aten_mean(
    op: Builder, self: Value, dim: Axes = None, keepdim: bool = False, dtype: Any = None
) -> Value:
    return _reduced(op, "ReduceMean", self, dim, keepdim)


@register(aten.prod.default, aten.prod.dim_int)
def aten_prod(
    op: Builder, self: Value, dim: Axes = None, keepdim: bool = False, dtype: Any = None
) -> Value:
    return _reduced(op, "ReduceProd", self, dim, keepdim)


@register(aten.amax.default)
def aten_amax(op: Builder, self: Value, dim: Axes = (), keepdim: bool = False) -> Value:
    return _reduced(op, "ReduceMax", self, dim, keepdim)


@register(aten.amin.default)
def aten_amin(op: Builder, self: Value, dim: Axes = (), keepdim: bool = False) -> Value:
    return _reduced(op, "ReduceMin", self, dim, keepdim)


@register(aten.max.default)
def aten_max(op: Builder, self: Value) -> Value:
    return _reduced(op, "ReduceMax", self, None, False)


@register(aten.min.default)
def aten_min(op: Builder, self: Value) -> Value:
    return _reduced(op, "ReduceMin", self, None, False)


@register(aten.max.dim)
def aten_max_dim(op: Builder, self: Value, dim: int, keepdim: bool = False) -> list[Value]:
    return _extreme(op, "ReduceMax", "ArgMax", self, dim, keepdim)


@register(aten.min.dim)
def aten_min_dim(op: Builder, self: Value, dim: int, keepdim: bool = False) -> list[Value]:
    return _extreme(op, "ReduceMin", "ArgMin", self, dim, keepdim)


def _extreme(
    op: Builder, reduce: str, arg: str, value: Value, dim: int, keepdim: bool
) -> list[Value]:
    if op.rank(value) == 0:
        return [value, op.constant(0, ir.DataType.INT64)]
    values = op.reduce(reduce, value, [dim], keepdim)
    return [values, op.call_op(arg, [value], {"axis": dim, "keepdims": int(keepdim)})]


@register(aten.argmax.default)
def aten_argmax(op: Builder, self: Value, dim: int | None = None, keepdim: bool = False) -> Value:
    return _arg(op, "ArgMax", self, dim, keepdim)


@register(aten.argmin.default)
def aten_argmin(op: Builder, self: Value, dim: int | None = None, keepdim: bool = False) -> Value:
    return _arg(op, "ArgMin", self, dim, keepdim)


def _arg(op: Builder, name: str, value: Value, dim: int | None, keepdim: bool) -> Value:
    """The first position of the extreme, as eager torch gives it on the CPU."""
    rank = op.rank(value)
    if rank == 0:
        return op.constant(0, ir.DataType.INT64)
    if dim is not None:
        return op.call_op(name, [value], {"axis": dim, "keepdims": int(keepdim)})
    flat = op.call_op(name, [op.Reshape(value, [-1])], {"axis": 0, "keepdims": 0})
    return op.Reshape(flat, [1] * rank) if keepdim else flat


@register(aten.logsumexp.default)
def aten_logsumexp(op: Builder, self: Value, dim: Axes, keepdim: bool = False) -> Value:
    return _reduced(op, "ReduceLogSumExp", self, dim, keepdim)


@register(aten.cumsum.default)
def aten_cumsum(op: Builder, self: Value, dim: int, dtype: Any = None) -> Value:
    value = op.cast(self, op.result_dtype)
    if op.rank(value) == 0:
        return value
    return op.CumSum(value, op.constant(dim, ir.DataType.INT64))


@register(aten.var.correction)
def aten_var(
    op: Builder,
    self: Value,
    dim: Axes = None,
    correction: Any = None,
    keepdim: bool = False,
) -> Value:
    return variance(op, self, dim, correction, keepdim)[0]


@register(aten.std.correction)
def aten_std(
    op: Builder,
    self: Value,
    dim: Axes = None,
    correction: Any = None,
    keepdim: bool = False,
) -> Value:
    return op.Sqrt(variance(op, self, dim, correction, keepdim)[0])


@register(aten.var_mean.correction)
def aten_var_mean(
    op: Builder,
    self: Value,
    dim: Axes = None,
    correction: Any = None,
    keepdim: bool = False,
) -> list[Value]:
    return list(variance(op, self, dim, correction, keepdim))


@register(aten.var.dim)
def aten_var_dim(
    op: Builder, self: Value, dim: Axes, unbiased: bool = True, keepdim: bool = False
) -> Value:
    return variance(op, self, dim, int(unbiased), keepdim)[0]


@register(aten.std.dim)
def aten_std_dim(
    op: Builder, self: Value, dim: Axes, unbiased: bool = True, keepdim: bool = False
) -> Value:
    return op.Sqrt(variance(op, self, dim, int(unbiased), keepdim)[0])


@register(aten.var.default)
def aten_var_default(op: Builder, self: Value, unbiased: bool = True) -> Value:
    return variance(op, self, None, int(unbiased), False)[0]


@register(aten.std.default)
def aten_std_default(op: Builder, self: Value, unbiased: bool = True) -> Value:
    return op.Sqrt(variance(op, self, None, int(unbiased), False)[0])


def variance(
    op: Builder, value: Value, dim: Axes, correction: Any, keepdim: bool
) -> tuple[Value, Value]:
    """``sum((x - mean)^2) / max(0, n - correction)`` and the mean, in two passes."""
    correction = 1 if correction is None else correction
    axes = _list(dim)
    if op.rank(value) == 0:
        deviation = op.Sub(value, value)
        return op.Div(deviation, max(0.0, 1 - correction)), value
    mean = op.reduce("ReduceMean", value, axes, True)
    centred = op.Sub(value, mean)
    total = op.reduce("ReduceSum", op.Mul(centred, centred), axes, keepdim)
    count = op.constant(1, ir.DataType.INT64)
    for axis in axes or range(op.rank(value)):
        count = op.Mul(count, op.size(value, axis))
    freedom = op.cast(op.Max(op.Sub(count, int(correction)), 0), total.dtype or ir.DataType.FLOAT)
    if int(correction) != correction:
        exact = op.Sub(op.cast(count, total.dtype or ir.DataType.FLOAT), correction)
        freedom = op.Max(exact, 0.0)
    if not keepdim:
        mean = op.reduce("ReduceMean", value, axes, False)
    return op.Div(total, freedom), mean
