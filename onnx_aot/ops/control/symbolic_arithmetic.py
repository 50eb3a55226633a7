"""Arithmetic on symbolic sizes, which FX records as calls of Python functions.

A symbolic int is a 0-d INT64 value, a symbolic float a 0-d DOUBLE, a symbolic bool a 0-d BOOL.
"""

from __future__ import annotations

import math
import operator
from typing import Any

import onnx_ir as ir
import torch

from onnx_aot.builder.builder import Builder, Size
from onnx_aot.dtypes import is_floating
from onnx_aot.ops.core.elementwise import aten_log2, aten_remainder, floor_divide
from onnx_aot.ops.registry import register
from onnx_aot.torch_compat import LOG, LOG2, aten

__all__: list[str] = []

Value = ir.Value
DOUBLE = ir.DataType.DOUBLE
INT64 = ir.DataType.INT64
BOOL = ir.DataType.BOOL


@register(aten.sym_size.int)
def aten_sym_size(op: Builder, self: Value, dim: int) -> Size:
    return op.size(self, dim)


@register(aten.sym_numel.default)
def aten_sym_numel(op: Builder, self: Value) -> Value:
    return op.Size(self)


def _cast_to_common_type(op: Builder, left: Any, right: Any) -> tuple[Any, Any]:
    """Casts both to DOUBLE if one is a float, else to INT64; Python numbers become constants."""
    floating = any(
        side.dtype == DOUBLE if isinstance(side, ir.Value) else isinstance(side, float)
        for side in (left, right)
    )
    dtype = DOUBLE if floating else INT64
    return op.cast(left, dtype), op.cast(right, dtype)


@register(operator.add)
def sym_add(op: Builder, left: Any, right: Any) -> Value:
    return op.Add(*_cast_to_common_type(op, left, right))


@register(operator.sub)
def sym_sub(op: Builder, left: Any, right: Any) -> Value:
    return op.Sub(*_cast_to_common_type(op, left, right))


@register(operator.mul)
def sym_mul(op: Builder, left: Any, right: Any) -> Value:
    return op.Mul(*_cast_to_common_type(op, left, right))


@register(operator.truediv)
def sym_truediv(op: Builder, left: Any, right: Any) -> Value:
    return op.Div(op.cast(left, DOUBLE), op.cast(right, DOUBLE))


@register(operator.floordiv)
def sym_floordiv(op: Builder, left: Any, right: Any) -> Value:
    return _floor_quotient(op, *_cast_to_common_type(op, left, right))


def _floor_quotient(op: Builder, left: Value, right: Value) -> Value:
    """Exact, as Mod has the divisor's sign and sizes are far from overflowing."""
    if is_floating(left.dtype):
        return floor_divide(op, left, right)
    return op.Div(op.Sub(left, op.Mod(left, right)), right)


@register(operator.mod)
def sym_mod(op: Builder, left: Any, right: Any) -> Value:
    """The result has the divisor's sign."""
    return aten_remainder(op, *_cast_to_common_type(op, left, right))


@register(operator.neg)
def sym_neg(op: Builder, value: Any) -> Value:
    return op.Neg(value)


@register(operator.abs)
def sym_abs(op: Builder, value: Any) -> Value:
    return op.Abs(value)


@register(operator.pow)
def sym_pow(op: Builder, left: Any, right: Any) -> Value:
    if isinstance(op.result, torch.SymFloat):
        return op.Pow(op.cast(left, DOUBLE), op.cast(right, DOUBLE))
    return op.Pow(*_cast_to_common_type(op, left, right))


@register(operator.lshift)
def sym_lshift(op: Builder, left: Any, right: Any) -> Value:
    return op.Mul(op.cast(left, INT64), _power_of_two(op, right))


@register(operator.rshift)
def sym_rshift(op: Builder, left: Any, right: Any) -> Value:
    return _floor_quotient(op, op.cast(left, INT64), _power_of_two(op, right))


def _power_of_two(op: Builder, exponent: Any) -> Value:
    if isinstance(exponent, int):
        return op.constant(2**exponent, INT64)
    return op.Pow(op.constant(2, INT64), exponent)


@register(torch.sym_sum)
def sym_sum(op: Builder, values: list[Any]) -> Value:
    total: Any = 0
    for value in values:
        total = op.Add(*_cast_to_common_type(op, total, value))
    return total


@register(torch.sym_max)
def sym_max(op: Builder, left: Any, right: Any) -> Value:
    return op.Max(*_cast_to_common_type(op, left, right))


@register(torch.sym_min)
def sym_min(op: Builder, left: Any, right: Any) -> Value:
    return op.Min(*_cast_to_common_type(op, left, right))


@register(torch.sym_float)
def sym_float(op: Builder, value: Any) -> Value:
    return op.cast(value, DOUBLE)


@register(math.trunc)
def sym_trunc(op: Builder, value: Any) -> Value:
    return op.cast(value, INT64)


@register(round)
def sym_round(op: Builder, value: Any, digits: int | None = None) -> Value:
    """Rounds half to even, to an integer unless digits are given."""
    if digits is None:
        return op.cast(op.Round(op.cast(value, DOUBLE)), INT64)
    scale = 10.0**digits
    return op.Div(op.Round(op.Mul(op.cast(value, DOUBLE), scale)), scale)


@register(math.ceil)
def sym_ceil(op: Builder, value: Any) -> Value:
    return op.cast(op.Ceil(op.cast(value, DOUBLE)), INT64)


@register(math.floor)
def sym_floor(op: Builder, value: Any) -> Value:
    return op.cast(op.Floor(op.cast(value, DOUBLE)), INT64)


@register(torch.sym_sqrt)
def sym_sqrt(op: Builder, value: Any) -> Value:
    return op.Sqrt(op.cast(value, DOUBLE))


@register(LOG2)
def sym_log2(op: Builder, number: Any) -> Value:
    """Exact at powers of two, and far enough from integers elsewhere to be rounded up or down."""
    return aten_log2(op, op.cast(number, DOUBLE))


@register(LOG)
def sym_log(op: Builder, number: Any) -> Value:
    return op.Log(op.cast(number, DOUBLE))


@register(operator.eq)
def sym_eq(op: Builder, left: Any, right: Any) -> Value:
    return op.Equal(*_cast_to_common_type(op, left, right))


@register(operator.ne)
def sym_ne(op: Builder, left: Any, right: Any) -> Value:
    return op.Not(op.Equal(*_cast_to_common_type(op, left, right)))


@register(operator.lt)
def sym_lt(op: Builder, left: Any, right: Any) -> Value:
    return op.Less(*_cast_to_common_type(op, left, right))


@register(operator.le)
def sym_le(op: Builder, left: Any, right: Any) -> Value:
    return op.LessOrEqual(*_cast_to_common_type(op, left, right))


@register(operator.gt)
def sym_gt(op: Builder, left: Any, right: Any) -> Value:
    return op.Greater(*_cast_to_common_type(op, left, right))


@register(operator.ge)
def sym_ge(op: Builder, left: Any, right: Any) -> Value:
    return op.GreaterOrEqual(*_cast_to_common_type(op, left, right))


@register(operator.and_)
def sym_and(op: Builder, left: Any, right: Any) -> Value:
    if isinstance(op.result, torch.SymInt):
        return op.BitwiseAnd(*_cast_to_common_type(op, left, right))
    return op.And(op.cast(left, BOOL), op.cast(right, BOOL))


@register(operator.or_)
def sym_or(op: Builder, left: Any, right: Any) -> Value:
    if isinstance(op.result, torch.SymInt):
        return op.BitwiseOr(*_cast_to_common_type(op, left, right))
    return op.Or(op.cast(left, BOOL), op.cast(right, BOOL))


@register(torch.sym_not)
def sym_not(op: Builder, value: Any) -> Value:
    return op.Not(op.cast(value, BOOL))


@register(torch.sym_ite)
def sym_ite(op: Builder, condition: Any, then: Any, otherwise: Any) -> Value:
    left, right = _cast_to_common_type(op, then, otherwise)
    return op.Where(op.cast(condition, BOOL), left, right)


@register(aten.item.default, aten._local_scalar_dense.default)
def aten_item(op: Builder, self: Value) -> Value:
    """Returns the element of a one-element tensor as a symbolic number."""
    recorded = op.result
    dtype = DOUBLE
    if isinstance(recorded, (bool, torch.SymBool)):
        dtype = BOOL
    elif isinstance(recorded, (int, torch.SymInt)):
        dtype = INT64
    scalar = op.cast(self, dtype)
    return op.Reshape(scalar, op.constant([], INT64)) if op.rank(self) else scalar
