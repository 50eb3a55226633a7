"""Translates comparisons, logic, bitwise operators and selection by a condition."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Sequence
from typing import Any

import onnx_ir as ir
import torch

from onnx_aot import dtypes
from onnx_aot.builder.builder import Builder
from onnx_aot.dtypes import is_floating
from onnx_aot.ops.core.creation import make_full_like
from onnx_aot.ops.core.elementwise import sign_bit
from onnx_aot.ops.registry import LIMITS, register
from onnx_aot.torch_compat import aten

__all__: list[str] = []

Value = ir.Value
Scalar = Any
"""A Python number, or a 0-d value for a symbolic one."""
Axes = int | Sequence[int] | None
BOOL = ir.DataType.BOOL


# Order comparisons of booleans, which ONNX lacks: ``a > b`` is ``a and not b``, and so on.
_BOOLEAN_ORDER: dict[str, Callable[[Builder, Value, Value], Value]] = {
    "Greater": lambda op, a, b: op.And(a, op.Not(b)),
    "GreaterOrEqual": lambda op, a, b: op.Or(a, op.Not(b)),
    "Less": lambda op, a, b: op.And(b, op.Not(a)),
    "LessOrEqual": lambda op, a, b: op.Or(b, op.Not(a)),
}


def _register_comparison(name: str, *targets: Any) -> None:
    order = _BOOLEAN_ORDER.get(name)

    def translation(op: Builder, self: Value, other: Value | Scalar) -> Value:
        if order is not None and self.dtype == BOOL:
            return order(op, self, op.cast(other, BOOL))
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
def aten_ne(op: Builder, self: Value, other: Value | Scalar) -> Value:
    return op.Xor(self, other) if self.dtype == BOOL else op.Not(op.Equal(self, other))


def _cast_to_bool(op: Builder, value: Value) -> Value:
    return op.cast(value, BOOL)


@register(aten.logical_and.default)
def aten_logical_and(op: Builder, self: Value, other: Value) -> Value:
    return op.And(_cast_to_bool(op, self), _cast_to_bool(op, other))


@register(aten.logical_or.default)
def aten_logical_or(op: Builder, self: Value, other: Value) -> Value:
    return op.Or(_cast_to_bool(op, self), _cast_to_bool(op, other))


@register(aten.logical_xor.default)
def aten_logical_xor(op: Builder, self: Value, other: Value) -> Value:
    return op.Xor(_cast_to_bool(op, self), _cast_to_bool(op, other))


@register(aten.logical_not.default)
def aten_logical_not(op: Builder, self: Value) -> Value:
    return op.Not(_cast_to_bool(op, self))


def _register_bitwise(logical: str, bitwise: str, *targets: Any) -> None:
    """Registers the logical operator for booleans, the bitwise one (opset 18) for integers."""

    def translation(op: Builder, self: Value | Scalar, other: Value | Scalar) -> Value:
        self = op.cast(self, op.result_dtype)
        name = logical if self.dtype == BOOL else bitwise
        return op.call_op(name, [self, other], {})

    translation.__name__ = f"aten_as_{bitwise}"
    register(*targets)(translation)
    LIMITS.update(dict.fromkeys(targets, "integers since opset 18, booleans in all"))


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
    if self.dtype == BOOL:
        return op.Not(self)
    if op.opset >= 18:
        return op.BitwiseNot(self)
    assert self.dtype is not None
    limits = torch.iinfo(dtypes.to_torch(self.dtype))
    return op.Sub(limits.max + limits.min, self)  # the sum is -1 for signed types


def where(op: Builder, condition: Value, yes: Value, no: Value) -> Value:
    """Emits Where, replaced for booleans, for which ONNX Runtime does not have it.

    For booleans it is ``no ^ (condition & (yes ^ no))``, or one or two nodes if a side is constant.
    """
    if yes.dtype != BOOL:
        return op.Where(condition, yes, no)
    always_yes, always_no = _read_constant_bool(op, yes), _read_constant_bool(op, no)
    if always_yes is not None:
        return op.Or(condition, no) if always_yes else op.And(op.Not(condition), no)
    if always_no is not None:
        return op.Or(op.Not(condition), yes) if always_no else op.And(condition, yes)
    return op.Xor(no, op.And(condition, op.Xor(yes, no)))


def _read_constant_bool(op: Builder, value: Value) -> bool | None:
    """Returns the contents of a 0-d constant as a bool, or None for any other value."""
    literal = op.literal(value)
    return bool(literal) if literal is not None and literal.ndim == 0 else None


@register(aten.where.self, aten.where.ScalarOther, aten.where.ScalarSelf, aten.where.Scalar)
def aten_where(op: Builder, condition: Value, self: Value | Scalar, other: Value | Scalar) -> Value:
    dtype = op.result_dtype
    return where(op, condition, op.cast(self, dtype), op.cast(other, dtype))


@register(aten.masked_fill.Scalar, aten.masked_fill.Tensor)
def aten_masked_fill(op: Builder, self: Value, mask: Value, value: Value | Scalar) -> Value:
    return where(op, mask, op.cast(value, self.dtype), self)


@register(aten.isnan.default)
def aten_isnan(op: Builder, self: Value) -> Value:
    return op.IsNaN(self) if is_floating(self.dtype) else make_full_like(op, self, False)


@register(aten.isinf.default)
def aten_isinf(op: Builder, self: Value) -> Value:
    return op.IsInf(self) if is_floating(self.dtype) else make_full_like(op, self, False)


@register(aten.isfinite.default)
def aten_isfinite(op: Builder, self: Value) -> Value:
    """Tests ``|x| < inf``, which is false for NaN."""
    if not is_floating(self.dtype):
        return make_full_like(op, self, True)
    return op.Less(op.Abs(self), math.inf)


@register(aten.signbit.default)
def aten_signbit(op: Builder, self: Value) -> Value:
    if self.dtype == BOOL:
        return make_full_like(op, self, False)
    return sign_bit(op, self) if is_floating(self.dtype) else op.Less(self, 0)


def common_type(*values: Value) -> ir.DataType:
    """Returns the type that torch promotes these tensors to."""
    known = [dtypes.to_torch(value.dtype) for value in values if value.dtype is not None]
    return dtypes.to_onnx(functools.reduce(torch.promote_types, known))


@register(aten.isin.Tensor_Tensor)
def aten_isin(
    op: Builder,
    elements: Value,
    test_elements: Value,
    assume_unique: bool = False,
    invert: bool = False,
) -> Value:
    """Compares each element with all test elements along a new last axis."""
    dtype = common_type(elements, test_elements)
    rank = op.rank(elements)
    tests = op.Reshape(op.cast(test_elements, dtype), [-1])
    equal = op.Equal(op.Unsqueeze(op.cast(elements, dtype), [rank]), tests)
    # ReduceSum, because it is 0 without test elements
    count = op.ReduceSum(op.cast(equal, ir.DataType.INT32), [rank], keepdims=0)
    return op.Equal(count, 0) if invert else op.Greater(count, 0)


@register(aten.any.default, aten.any.dim, aten.any.dims)
def aten_any(op: Builder, self: Value, dim: Axes = None, keepdim: bool = False) -> Value:
    return _reduce_truth(op, self, dim, keepdim, "ReduceMax", "ReduceSum", ir.DataType.INT64)


@register(aten.all.default, aten.all.dim, aten.all.dims)
def aten_all(op: Builder, self: Value, dim: Axes = None, keepdim: bool = False) -> Value:
    return _reduce_truth(op, self, dim, keepdim, "ReduceMin", "ReduceMin", ir.DataType.INT32)


@register(aten._is_any_true.default)
def aten_is_any_true(op: Builder, self: Value) -> Value:
    return aten_any(op, self)


@register(aten._is_all_true.default)
def aten_is_all_true(op: Builder, self: Value) -> Value:
    return aten_all(op, self)


def _reduce_truth(
    op: Builder,
    value: Value,
    dim: Axes,
    keepdim: bool,
    boolean: str,
    numeric: str,
    dtype: ir.DataType,
) -> Value:
    """Reduces truth values by maximum or minimum along axes; without axes nothing is reduced.

    Reduce* takes booleans since opset 20, in ONNX Runtime only with at least one element. Without
    elements, numbers give False as their sum, and True as their minimum, the greatest INT32. ONNX
    Runtime does not reduce a negative axis of an empty tensor, hence ``op.axis``.
    """
    truth = _cast_to_bool(op, value)
    dims = range(op.rank(value)) if dim is None else [dim] if isinstance(dim, int) else dim
    axes = [op.axis(value, axis) for axis in dims]
    if axes and value.shape:
        sizes = [value.shape[axis] for axis in axes]
        if op.opset >= 20 and all(isinstance(size, int) and size > 0 for size in sizes):
            truth = op.reduce(boolean, truth, axes, keepdim)
        else:
            truth = _cast_to_bool(op, op.reduce(numeric, op.cast(truth, dtype), axes, keepdim))
    return op.cast(truth, op.result_dtype)
