"""Computes signs, exponents and neighbours of floating-point numbers by arithmetic.

ONNX can read the bits of a number only since opset 26. Exponents are computed in DOUBLE, where
those of the shorter types are exact.
"""

from __future__ import annotations

import math
from typing import Any

import onnx_ir as ir
import torch

from onnx_aot import dtypes
from onnx_aot.builder.builder import Builder
from onnx_aot.ops.core.elementwise import sign_bit
from onnx_aot.ops.registry import LIMITS, register
from onnx_aot.torch_compat import aten

__all__ = ["PRECISION", "scale_by_power_of_two", "split_mantissa_exponent"]

Value = ir.Value
DOUBLE = ir.DataType.DOUBLE


@register(aten.copysign.Tensor, aten.copysign.Scalar)
def aten_copysign(op: Builder, self: Value, other: Any) -> Value:
    magnitude = op.Abs(op.cast(self, op.result_dtype))
    if not isinstance(other, ir.Value):
        return op.Neg(magnitude) if math.copysign(1.0, other) < 0 else magnitude
    # a product, because ONNX Runtime's Where turns minus zero into zero
    one, minus_one = (op.constant(number, op.result_dtype) for number in (1.0, -1.0))
    sign = op.Where(sign_bit(op, op.cast(other, op.result_dtype)), minus_one, one)
    return op.Mul(magnitude, sign)


LIMITS[aten.copysign.Tensor] = "the sign of a NaN is treated as positive"


@register(aten.hypot.default)
def aten_hypot(op: Builder, self: Value, other: Value) -> Value:
    """``a sqrt(1 + (b / a)^2)`` with the larger magnitude a, because ``a^2`` may overflow."""
    left, right = op.Abs(self), op.Abs(other)
    large, small = op.Max(left, right), op.Min(left, right)
    ratio = op.Div(small, large)
    length = op.Mul(large, op.Sqrt(op.Add(op.Mul(ratio, ratio), 1.0)))
    length = op.Where(op.Equal(large, 0.0), large, length)
    infinite = op.Or(op.Equal(left, math.inf), op.Equal(right, math.inf))
    return op.Where(infinite, op.constant(math.inf, self.dtype), length)


def scale_by_power_of_two(op: Builder, x: Value, exponent: Value) -> Value:
    """``x 2^exponent`` in two steps, neither of which overflows."""
    half = op.Floor(op.Mul(exponent, 0.5))
    two = op.constant(2.0, DOUBLE)
    return op.Mul(op.Mul(x, op.Pow(two, half)), op.Pow(two, op.Sub(exponent, half)))


def split_mantissa_exponent(op: Builder, x: Value) -> tuple[Value, Value]:
    """``m 2^e = x`` with ``1/2 <= |m| < 1``; corrects a log2 rounded across a power of two."""
    magnitude = op.Abs(x)
    exponent = op.Add(op.Floor(op.Div(op.Log(magnitude), math.log(2.0))), 1.0)
    plain = op.And(op.Greater(magnitude, 0.0), op.Less(magnitude, math.inf))
    zero = op.constant(0.0, DOUBLE)
    exponent = op.Where(plain, exponent, zero)
    mantissa = op.Abs(scale_by_power_of_two(op, x, op.Neg(exponent)))
    above, below = op.GreaterOrEqual(mantissa, 1.0), op.Less(mantissa, 0.5)
    exponent = op.Add(exponent, op.cast(above, DOUBLE))
    exponent = op.Sub(exponent, op.cast(below, DOUBLE))
    exponent = op.Where(plain, exponent, zero)
    return op.Where(plain, scale_by_power_of_two(op, x, op.Neg(exponent)), x), exponent


@register(aten.frexp.Tensor)
def aten_frexp(op: Builder, self: Value) -> list[Value]:
    mantissa, exponent = split_mantissa_exponent(op, op.cast(self, DOUBLE))
    return [op.cast(mantissa, self.dtype), op.cast(exponent, ir.DataType.INT32)]


# Bits of the significand, and the exponent (as in frexp) of the smallest normal number.
PRECISION = {
    ir.DataType.DOUBLE: (53, -1021),
    ir.DataType.FLOAT: (24, -125),
    ir.DataType.FLOAT16: (11, -13),
    ir.DataType.BFLOAT16: (8, -125),
}


@register(aten.nextafter.default)
def aten_nextafter(op: Builder, self: Value, other: Value) -> Value:
    """Moves by one unit in the last place; by half a unit from a power of two toward zero."""
    dtype = op.result_dtype
    digits, least = PRECISION[dtype]
    x, y = op.cast(self, DOUBLE), op.cast(other, DOUBLE)
    up = op.Greater(y, x)
    mantissa, exponent = split_mantissa_exponent(op, x)
    inward = op.And(op.Equal(op.Abs(mantissa), 0.5), op.Equal(up, op.Less(x, 0.0)))
    exponent = op.Sub(exponent, op.cast(inward, DOUBLE))
    exponent = op.Where(op.Equal(x, 0.0), op.constant(float(least), DOUBLE), exponent)
    exponent = op.Sub(op.Max(exponent, float(least)), float(digits))
    unit = scale_by_power_of_two(op, op.constant(1.0, DOUBLE), exponent)
    moved = op.Add(x, op.Where(up, unit, op.Neg(unit)))
    largest = float(torch.finfo(dtypes.to_torch(dtype)).max)
    moved = op.Where(op.IsInf(x), op.Mul(op.Sign(x), largest), moved)
    moved = op.Where(op.Equal(x, y), y, moved)
    missing = op.Or(op.IsNaN(x), op.IsNaN(y))
    return op.cast(op.Where(missing, op.constant(math.nan, DOUBLE), moved), dtype)


@register(aten.angle.default)
def aten_angle(op: Builder, self: Value) -> Value:
    """Angle of a real number: pi below zero, else 0; NaN for NaN."""
    x = op.cast(self, op.result_dtype)
    pi, zero = op.constant(math.pi, x.dtype), op.constant(0.0, x.dtype)
    return op.Where(op.IsNaN(x), x, op.Where(op.Less(x, 0.0), pi, zero))
