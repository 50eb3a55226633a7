"""Comparisons, logic, bits and selection by a condition."""

from __future__ import annotations

from typing import Any

import onnx_ir as ir
import torch

from onnx_aot.dtypes import is_floating
from onnx_aot.ops.builder import Builder
from onnx_aot.ops.registry import register, register_names

__all__: list[str] = []

aten = torch.ops.aten
Value = ir.Value
BOOL = ir.DataType.BOOL


def _register_comparison(name: str, *targets: Any) -> None:
    """Ordering of booleans, which ONNX does not have, compares them as INT32."""

    def translation(op: Builder, self: Value, other: Any) -> Value:
        if self.dtype == BOOL and name != "Equal":
            self = op.cast(self, ir.DataType.INT32)
            if isinstance(other, ir.Value):
                other = op.cast(other, ir.DataType.INT32)
        return op.call_op(name, [self, other], {})

    translation.__name__ = f"aten_as_{name}"
    register(*targets)(translation)


for _name, _targets in {
    "Equal": (aten.eq.Tensor, aten.eq.Scalar),
    "Greater": (aten.gt.Tensor, aten.gt.Scalar, aten.greater.Tensor, aten.greater.Scalar),
    "GreaterOrEqual": (
        aten.ge.Tensor,
        aten.ge.Scalar,
        aten.greater_equal.Tensor,
        aten.greater_equal.Scalar,
    ),
    "Less": (aten.lt.Tensor, aten.lt.Scalar, aten.less.Tensor, aten.less.Scalar),
    "LessOrEqual": (aten.le.Tensor, aten.le.Scalar, aten.less_equal.Tensor, aten.less_equal.Scalar),
}.items():
    _register_comparison(_name, *_targets)


@register(aten.ne.Tensor, aten.ne.Scalar, aten.not_equal.Tensor, aten.not_equal.Scalar)
def aten_ne(op: Builder, self: Value, other: Any) -> Value:
    return op.Not(op.Equal(self, other))


def _boolean(op: Builder, value: Value) -> Value:
    return op.cast(value, BOOL)


@register(aten.logical_and.default)
def aten_logical_and(op: Builder, self: Value, other: Value) -> Value:
    return op.And(_boolean(op, self), _boolean(op, other))


@register(aten.logical_or.default)
def aten_logical_or(op: Builder, self: Value, other: Value) -> Value:
    return op.Or(_boolean(op, self), _boolean(op, other))


@register(aten.logical_xor.default)
def aten_logical_xor(op: Builder, self: Value, other: Value) -> Value:
    return op.Xor(_boolean(op, self), _boolean(op, other))


@register(aten.logical_not.default)
def aten_logical_not(op: Builder, self: Value) -> Value:
    return op.Not(_boolean(op, self))


def _register_bitwise(logical: str, bitwise: str, *targets: Any) -> None:
    """Booleans use the logical operator, integers the bitwise one (opset 18)."""

    def translation(op: Builder, self: Value | Any, other: Value | Any) -> Value:
        if not isinstance(self, ir.Value):
            self = op.constant(self, op.result_dtype)
        name = logical if self.dtype == BOOL else bitwise
        return op.call_op(name, [self, other], {})

    translation.__name__ = f"aten_as_{bitwise}"
    register(*targets)(translation)


_register_bitwise(
    "And",
    "BitwiseAnd",
    aten.bitwise_and.Tensor,
    aten.bitwise_and.Scalar,
    aten.bitwise_and.Scalar_Tensor,
    aten.__and__.Tensor,
    aten.__and__.Scalar,
)
_register_bitwise(
    "Or",
    "BitwiseOr",
    aten.bitwise_or.Tensor,
    aten.bitwise_or.Scalar,
    aten.bitwise_or.Scalar_Tensor,
    aten.__or__.Tensor,
    aten.__or__.Scalar,
)
_register_bitwise(
    "Xor",
    "BitwiseXor",
    aten.bitwise_xor.Tensor,
    aten.bitwise_xor.Scalar,
    aten.bitwise_xor.Scalar_Tensor,
    aten.__xor__.Tensor,
    aten.__xor__.Scalar,
)


@register(aten.bitwise_not.default)
def aten_bitwise_not(op: Builder, self: Value) -> Value:
    return op.Not(self) if self.dtype == BOOL else op.BitwiseNot(self)


register_names({aten.where.self: "Where"})


@register(aten.where.ScalarOther, aten.where.ScalarSelf, aten.where.Scalar)
def aten_where_scalar(op: Builder, condition: Value, self: Any, other: Any) -> Value:
    dtype = op.result_dtype
    if not isinstance(self, ir.Value):
        self = op.constant(self, dtype)
    if not isinstance(other, ir.Value):
        other = op.constant(other, dtype)
    return op.Where(condition, self, other)


@register(aten.masked_fill.Scalar, aten.masked_fill.Tensor)
def aten_masked_fill(op: Builder, self: Value, mask: Value, value: Any) -> Value:
    if not isinstance(value, ir.Value):
        value = op.constant(value, self.dtype)
    return op.Where(mask, value, self)


@register(aten.isnan.default)
def aten_isnan(op: Builder, self: Value) -> Value:
    return op.IsNaN(self) if is_floating(self.dtype) else _constant_like(op, self, False)


@register(aten.isinf.default)
def aten_isinf(op: Builder, self: Value) -> Value:
    return op.IsInf(self) if is_floating(self.dtype) else _constant_like(op, self, False)


@register(aten.isfinite.default)
def aten_isfinite(op: Builder, self: Value) -> Value:
    if not is_floating(self.dtype):
        return _constant_like(op, self, True)
    return op.Not(op.Or(op.IsInf(self), op.IsNaN(self)))


def _constant_like(op: Builder, value: Value, fill: bool) -> Value:
    return op.Expand(op.constant(fill, BOOL), op.Shape(value))


def _any(op: Builder, truth: Value, dim: Any, keepdim: bool) -> Value:
    """Whether the number of true elements is positive; an empty dimension gives False."""
    axes = [dim] if isinstance(dim, int) else dim
    if op.rank(truth) == 0:
        return truth
    count = op.reduce("ReduceSum", op.cast(truth, ir.DataType.INT64), axes, keepdim)
    return op.Greater(count, 0)


@register(aten.any.default, aten.any.dim, aten.any.dims)
def aten_any(op: Builder, self: Value, dim: Any = None, keepdim: bool = False) -> Value:
    return op.cast(_any(op, _boolean(op, self), dim, keepdim), op.result_dtype)


@register(aten.all.default, aten.all.dim, aten.all.dims)
def aten_all(op: Builder, self: Value, dim: Any = None, keepdim: bool = False) -> Value:
    found = _any(op, op.Not(_boolean(op, self)), dim, keepdim)
    return op.cast(op.Not(found), op.result_dtype)
