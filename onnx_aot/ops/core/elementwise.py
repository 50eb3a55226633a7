"""Translates pointwise arithmetic and activations.

The walker has already cast the operands to the result's type. Source of every row: the ATen schema
of its target, and the ONNX operator that it names.
"""

from __future__ import annotations

import math
from typing import Any

import onnx_ir as ir
import torch

from onnx_aot.builder.builder import Builder
from onnx_aot.dtypes import HALVES, is_floating, to_torch
from onnx_aot.ops.core.integers import integer_power
from onnx_aot.ops.registry import register, register_names
from onnx_aot.torch_compat import aten

__all__: list[str] = []

Value = ir.Value
DOUBLE = ir.DataType.DOUBLE
Scalar = Any
"""A Python number, or a 0-d value for a symbolic one."""

register_names(
    {
        aten.abs.default: "Abs",
        aten.absolute.default: "Abs",
        aten.acos.default: "Acos",
        aten.acosh.default: "Acosh",
        aten.asin.default: "Asin",
        aten.asinh.default: "Asinh",
        aten.atan.default: "Atan",
        aten.atanh.default: "Atanh",
        aten.cos.default: "Cos",
        aten.cosh.default: "Cosh",
        aten.erf.default: "Erf",
        aten.exp.default: "Exp",
        aten.log.default: "Log",
        aten.reciprocal.default: "Reciprocal",
        aten.relu.default: "Relu",
        aten.sigmoid.default: "Sigmoid",
        aten.sin.default: "Sin",
        aten.sinh.default: "Sinh",
        aten.sqrt.default: "Sqrt",
        aten.tan.default: "Tan",
        aten.tanh.default: "Tanh",
    }
)


@register(aten.neg.default, aten.negative.default)
def aten_neg(op: Builder, self: Value) -> Value:
    """Neg does not take UINT8, which is subtracted from 0 and wraps around."""
    return op.Sub(0, self) if self.dtype == ir.DataType.UINT8 else op.Neg(self)


def _scale_by_alpha(op: Builder, value: Value | Scalar, alpha: Scalar) -> Value | Scalar:
    return value if isinstance(alpha, (int, float)) and alpha == 1 else op.Mul(value, alpha)


@register(aten.add.Tensor, aten.add.Scalar)
def aten_add(op: Builder, self: Value, other: Value | Scalar, alpha: Scalar = 1) -> Value:
    if self.dtype == ir.DataType.BOOL:
        added = op.cast(other, ir.DataType.BOOL)
        return op.Or(self, added if alpha else op.constant(False))
    if not isinstance(other, ir.Value):
        if isinstance(alpha, (int, float)):
            return op.Add(self, other * alpha)
        other = op.constant(other, self.dtype)
    return op.Add(self, _scale_by_alpha(op, other, alpha))


@register(aten.mul.Tensor, aten.mul.Scalar, aten.multiply.Tensor, aten.multiply.Scalar)
def aten_mul(op: Builder, self: Value, other: Value | Scalar) -> Value:
    return op.And(self, other) if self.dtype == ir.DataType.BOOL else _scale(op, "Mul", self, other)


def _scale(op: Builder, name: str, left: Value, right: Value | Scalar) -> Value:
    """Multiplies or divides; 16-bit numbers in float32 if a single number does not fit the type.

    Torch keeps it in float32. So a size beyond 65504, or a factor below the smallest normal number,
    has its value.
    """
    dtype = op.result_dtype
    if dtype in HALVES and not (_fits(left, dtype) and _fits(right, dtype)):
        wide = ir.DataType.FLOAT
        scaled = op.call_op(name, [op.cast(left, wide), op.cast(right, wide)], {})
        return op.cast(scaled, dtype)
    return op.call_op(name, [left, right], {})


def _fits(value: Value | Scalar, dtype: ir.DataType) -> bool:
    if isinstance(value, ir.Value):
        return value.dtype == dtype
    limits = torch.finfo(to_torch(dtype))
    return value == 0 or not math.isfinite(value) or limits.tiny <= abs(value) <= limits.max


@register(aten.sub.Tensor, aten.sub.Scalar, aten.subtract.Tensor, aten.subtract.Scalar)
def aten_sub(op: Builder, self: Value, other: Value | Scalar, alpha: Scalar = 1) -> Value:
    if not isinstance(other, ir.Value) and isinstance(alpha, (int, float)):
        return op.Sub(self, other * alpha)
    return op.Sub(self, _scale_by_alpha(op, other, alpha))


@register(aten.xlogy.Tensor, aten.xlogy.Scalar_Self, aten.xlogy.Scalar_Other)
def aten_xlogy(op: Builder, self: Value | Scalar, other: Value | Scalar) -> Value:
    """``self * log(other)``; 0 where self is 0, but NaN where other is."""
    dtype = op.result_dtype
    left, right = op.cast(self, dtype), op.cast(other, dtype)
    zero = op.constant(0.0, dtype)
    product = op.Where(op.Equal(left, zero), zero, op.Mul(left, op.Log(right)))
    return op.Where(op.IsNaN(right), right, product)


@register(aten.rsub.Tensor, aten.rsub.Scalar)
def aten_rsub(op: Builder, self: Value, other: Value | Scalar, alpha: Scalar = 1) -> Value:
    return op.Sub(other, _scale_by_alpha(op, self, alpha))


@register(
    aten.div.Tensor,
    aten.div.Scalar,
    aten.divide.Tensor,
    aten.divide.Scalar,
    aten.true_divide.Tensor,
    aten.true_divide.Scalar,
)
def aten_div(op: Builder, self: Value, other: Value | Scalar) -> Value:
    return _scale(op, "Div", self, other)


@register(aten.div.Tensor_mode, aten.div.Scalar_mode)
def aten_div_mode(
    op: Builder, self: Value, other: Value | Scalar, rounding_mode: str | None
) -> Value:
    if rounding_mode is None:
        return op.Div(self, other)
    if rounding_mode == "floor":
        return floor_divide(op, self, other)
    if not is_floating(self.dtype):
        return op.Div(self, _guard_divisor(op, self, other))
    quotient = op.Div(self, other)
    return op.Where(op.Less(quotient, 0.0), op.Ceil(quotient), op.Floor(quotient))


@register(aten.floor_divide.default, aten.floor_divide.Scalar)
def aten_floor_divide(op: Builder, self: Value | Scalar, other: Value | Scalar) -> Value:
    return floor_divide(op, op.cast(self, op.result_dtype), other)


def floor_divide(op: Builder, left: Value, right: Value | Scalar) -> Value:
    """Rounds toward minus infinity; ONNX Div on integers rounds toward zero.

    For floating-point numbers, ``(a - fmod(a, b)) / b``, corrected as in Python's floor division,
    is exact even if ``a / b`` rounds up to the next integer; torch computes it in this way.
    """
    divisor = op.cast(right, left.dtype)
    if is_floating(left.dtype):
        remainder = op.Mod(left, divisor, fmod=1)
        quotient = op.Div(op.Sub(left, remainder), divisor)
        adjust = op.And(
            op.Not(op.Equal(remainder, 0.0)), _has_opposite_signs(op, remainder, divisor)
        )
        quotient = op.Sub(quotient, op.cast(adjust, left.dtype))
        floored = op.Floor(quotient)
        floored = op.Where(
            op.Greater(op.Sub(quotient, floored), 0.5), op.Add(floored, 1.0), floored
        )
        return op.Where(op.Equal(divisor, 0.0), op.Div(left, divisor), floored)
    divisor = _guard_divisor(op, left, divisor)
    quotient = op.Div(left, divisor)
    inexact = op.Not(op.Equal(op.Mul(quotient, divisor), left))
    adjust = op.And(inexact, _has_opposite_signs(op, left, divisor))
    return op.Sub(quotient, op.cast(adjust, left.dtype))


def _guard_divisor(op: Builder, left: Value, right: Value | Scalar) -> Value | Scalar:
    """Returns an integer divisor that ONNX Runtime accepts if there is nothing to divide.

    It refuses a divisor of zero even then, and a size can be zero if the dividend is empty. So the
    size is repeated for every element of the dividend.
    """
    if not isinstance(right, ir.Value):
        return right or 1
    if right.const_value is not None or op.rank(right) > 0:
        return right
    if left.shape is None or not any(not isinstance(d, int) or d == 0 for d in left.shape):
        return right
    return op.Expand(op.cast(right, left.dtype), op.Shape(left))


def _has_opposite_signs(op: Builder, left: Value, right: Value) -> Value:
    return op.Xor(op.Less(left, 0.0), op.Less(right, 0.0))


@register(aten.remainder.Tensor, aten.remainder.Scalar, aten.remainder.Scalar_Tensor)
def aten_remainder(op: Builder, self: Value | Scalar, other: Value | Scalar) -> Value:
    if not isinstance(self, ir.Value):
        self = op.constant(self, op.result_dtype)
    if not is_floating(self.dtype):
        return op.Mod(self, _guard_divisor(op, self, other))
    divisor = op.cast(other, self.dtype)
    remainder = op.Mod(self, divisor, fmod=1)
    adjust = op.And(op.Not(op.Equal(remainder, 0.0)), _has_opposite_signs(op, remainder, divisor))
    return op.Where(adjust, op.Add(remainder, divisor), remainder)


@register(aten.fmod.Tensor, aten.fmod.Scalar)
def aten_fmod(op: Builder, self: Value, other: Value | Scalar) -> Value:
    """Avoids Mod with fmod=1 on integers: ONNX Runtime computes it in double, which rounds them."""
    if is_floating(self.dtype):
        return op.Mod(self, other, fmod=1)
    divisor = _guard_divisor(op, self, op.cast(other, self.dtype))
    return op.Sub(self, op.Mul(op.Div(self, divisor), divisor))


@register(aten.pow.Tensor_Tensor, aten.pow.Tensor_Scalar, aten.pow.Scalar)
def aten_pow(op: Builder, self: Value | Scalar, exponent: Value | Scalar) -> Value:
    if not isinstance(exponent, ir.Value):
        if exponent == 1 and isinstance(self, ir.Value):
            return self
        if exponent == 0.5 and isinstance(self, ir.Value) and is_floating(self.dtype):
            return op.Sqrt(self)
        if exponent == -1 and isinstance(self, ir.Value) and is_floating(self.dtype):
            return op.Reciprocal(self)
        if exponent == -0.5 and isinstance(self, ir.Value) and is_floating(self.dtype):
            return op.Reciprocal(op.Sqrt(self))
        integral = isinstance(self, ir.Value) and not is_floating(self.dtype)
        if integral and isinstance(exponent, int) and 1 < exponent < 64:
            return _multiply_repeatedly(op, self, exponent)
    if not is_floating(op.result_dtype):
        return integer_power(op, self, exponent)
    return op.Pow(op.cast(self, op.result_dtype), op.cast(exponent, op.result_dtype))


def _multiply_repeatedly(op: Builder, base: Value, exponent: int) -> Value:
    """Squares and multiplies: ONNX Runtime's Pow uses double, which rounds large integers."""
    power: Value | None = None
    while exponent:
        if exponent % 2:
            power = base if power is None else op.Mul(power, base)
        exponent //= 2
        if exponent:
            base = op.Mul(base, base)
    assert power is not None
    return power


@register(aten.rsqrt.default)
def aten_rsqrt(op: Builder, self: Value) -> Value:
    return op.Reciprocal(op.Sqrt(self))


@register(aten.square.default)
def aten_square(op: Builder, self: Value) -> Value:
    return op.Mul(self, self)


@register(aten.exp2.default)
def aten_exp2(op: Builder, self: Value) -> Value:
    return op.Pow(op.constant(2.0, self.dtype), self)


@register(aten.expm1.default)
def aten_expm1(op: Builder, self: Value) -> Value:
    """``2 tanh(x/2) / (1 - tanh(x/2))`` near zero, where ``exp(x) - 1`` cancels."""
    t = op.Tanh(op.Mul(self, 0.5))
    small = op.Div(op.Mul(t, 2.0), op.Sub(1.0, t))
    return op.Where(op.Less(op.Abs(self), 0.5), small, op.Sub(op.Exp(self), 1.0))


@register(aten.log1p.default)
def aten_log1p(op: Builder, self: Value) -> Value:
    """``2 atanh(x / (2 + x))`` near zero, where ``log(1 + x)`` loses digits."""
    small = op.Mul(op.Atanh(op.Div(self, op.Add(self, 2.0))), 2.0)
    return op.Where(op.Less(op.Abs(self), 0.5), small, op.Log(op.Add(self, 1.0)))


@register(aten.log2.default)
def aten_log2(op: Builder, self: Value) -> Value:
    return _log(op, self, 2.0)


@register(aten.log10.default)
def aten_log10(op: Builder, self: Value) -> Value:
    return _log(op, self, 10.0)


def _log(op: Builder, value: Value, base: float) -> Value:
    """``log(x) / log(base)``, exact at powers of the base, as models take floors and ceilings."""
    dtype = value.dtype
    value = op.cast(value, ir.DataType.DOUBLE)
    quotient = op.Div(op.Log(value), math.log(base))
    if dtype != ir.DataType.DOUBLE:
        return op.cast(quotient, dtype)
    nearest = op.Round(quotient)
    is_power = op.Equal(op.Pow(op.constant(base, dtype), nearest), value)
    return op.Where(is_power, nearest, quotient)


@register(aten.sign.default)
def aten_sign(op: Builder, self: Value) -> Value:
    """Returns 0 for NaN, for which ONNX does not define the sign."""
    if not is_floating(self.dtype):
        return self if self.dtype == ir.DataType.BOOL else op.Sign(self)
    return op.Where(op.IsNaN(self), op.constant(0.0, self.dtype), op.Sign(self))


@register(aten.ceil.default)
def aten_ceil(op: Builder, self: Value) -> Value:
    return op.Ceil(self) if is_floating(self.dtype) else self


@register(aten.floor.default)
def aten_floor(op: Builder, self: Value) -> Value:
    return op.Floor(self) if is_floating(self.dtype) else self


@register(aten.round.default)
def aten_round(op: Builder, self: Value) -> Value:
    """Rounds half to even, as ONNX Round does."""
    return op.Round(self) if is_floating(self.dtype) else self


@register(aten.round.decimals)
def aten_round_decimals(op: Builder, self: Value, decimals: int = 0) -> Value:
    scale = 10.0 ** abs(decimals)
    # the product may be beyond FLOAT16
    value = op.cast(self, ir.DataType.FLOAT) if self.dtype in HALVES else self
    if decimals >= 0:
        rounded = op.Div(op.Round(op.Mul(value, scale)), scale)
    else:
        rounded = op.Mul(op.Round(op.Div(value, scale)), scale)
    return op.cast(rounded, self.dtype)


@register(aten.trunc.default, aten.fix.default)
def aten_trunc(op: Builder, self: Value) -> Value:
    if not is_floating(self.dtype):
        return self
    return op.Where(op.Less(self, 0.0), op.Ceil(self), op.Floor(self))


@register(aten.frac.default)
def aten_frac(op: Builder, self: Value) -> Value:
    return op.Sub(self, aten_trunc(op, self))


@register(aten.maximum.default, aten.max.other)
def aten_maximum(op: Builder, self: Value, other: Value) -> Value:
    if self.dtype == ir.DataType.BOOL:
        return op.Or(self, other)
    return op.Max(self, other)


@register(aten.minimum.default, aten.min.other)
def aten_minimum(op: Builder, self: Value, other: Value) -> Value:
    if self.dtype == ir.DataType.BOOL:
        return op.And(self, other)
    return op.Min(self, other)


@register(aten.fmax.default)
def aten_fmax(op: Builder, self: Value, other: Value) -> Value:
    return _prefer_numbers_to_nan(op, aten_maximum(op, self, other), self, other)


@register(aten.fmin.default)
def aten_fmin(op: Builder, self: Value, other: Value) -> Value:
    return _prefer_numbers_to_nan(op, aten_minimum(op, self, other), self, other)


def _prefer_numbers_to_nan(op: Builder, chosen: Value, left: Value, right: Value) -> Value:
    """Returns the other operand where one is NaN."""
    if not is_floating(chosen.dtype):
        return chosen
    return op.Where(op.IsNaN(left), right, op.Where(op.IsNaN(right), left, chosen))


@register(aten.clamp.default, aten.clip.default)
def aten_clamp(
    op: Builder, self: Value, min: Scalar | None = None, max: Scalar | None = None
) -> Value:
    """Returns NaN if a bound is NaN, as torch does; Clip ignores such a bound.

    ONNX Runtime takes the largest number for a bound that is left out, and so loses infinity.
    """
    if any(isinstance(bound, float) and math.isnan(bound) for bound in (min, max)):
        return op.Mul(self, math.nan)
    if is_floating(op.result_dtype):
        min, max = -math.inf if min is None else min, math.inf if max is None else max
    return op.Clip(self, min, max)


@register(aten.clamp.Tensor, aten.clip.Tensor)
def aten_clamp_tensor(
    op: Builder, self: Value, min: Value | None = None, max: Value | None = None
) -> Value:
    if min is not None:
        self = aten_maximum(op, self, min)
    return self if max is None else aten_minimum(op, self, max)


@register(aten.clamp_min.default)
def aten_clamp_min(op: Builder, self: Value, min: Scalar) -> Value:
    return aten_clamp(op, self, min=min)


@register(aten.clamp_max.default)
def aten_clamp_max(op: Builder, self: Value, max: Scalar) -> Value:
    return aten_clamp(op, self, max=max)


@register(aten.clamp_min.Tensor)
def aten_clamp_min_tensor(op: Builder, self: Value, min: Value) -> Value:
    return aten_maximum(op, self, min)


@register(aten.clamp_max.Tensor)
def aten_clamp_max_tensor(op: Builder, self: Value, max: Value) -> Value:
    return aten_minimum(op, self, max)


@register(aten.atan2.default)
def aten_atan2(op: Builder, self: Value, other: Value) -> Value:
    """Mirrors the angle of ``|y| / |x|`` in the first quadrant by the signs, also of zeros."""
    height, width = op.Abs(self), op.Abs(other)
    slope = op.Div(height, width)
    # 0 / 0 and inf / inf
    slope = op.Where(op.Equal(height, 0.0), op.constant(0.0, self.dtype), slope)
    both_infinite = op.And(op.IsInf(height), op.IsInf(width))
    slope = op.Where(both_infinite, op.constant(1.0, self.dtype), slope)
    angle = op.Atan(slope)
    angle = op.Where(sign_bit(op, other), op.Sub(math.pi, angle), angle)
    angle = op.Where(sign_bit(op, self), op.Neg(angle), angle)
    either = op.Or(op.IsNaN(self), op.IsNaN(other))
    return op.Where(either, op.constant(math.nan, self.dtype), angle)


def sign_bit(op: Builder, value: Value) -> Value:
    """True where a number is negative or minus zero, whose reciprocal is negative."""
    return op.Or(op.Less(value, 0.0), op.Less(op.Reciprocal(value), 0.0))


@register(aten.lerp.Scalar, aten.lerp.Tensor)
def aten_lerp(op: Builder, self: Value, end: Value, weight: Value | Scalar) -> Value:
    """Computes from the nearer end, as torch does, so that weight 1 gives the end exactly."""
    step = op.Sub(end, self)
    if not isinstance(weight, ir.Value):
        if abs(weight) < 0.5:
            return op.Add(self, op.Mul(step, weight))
        return op.Sub(end, op.Mul(step, 1.0 - weight))
    near = op.Add(self, op.Mul(step, weight))
    far = op.Sub(end, op.Mul(step, op.Sub(1.0, weight)))
    return op.Where(op.Less(op.Abs(weight), 0.5), near, far)


@register(aten.addcmul.default)
def aten_addcmul(
    op: Builder, self: Value, tensor1: Value, tensor2: Value, value: Scalar = 1
) -> Value:
    return op.Add(self, _scale_by_alpha(op, op.Mul(tensor1, tensor2), value))


@register(aten.addcdiv.default)
def aten_addcdiv(
    op: Builder, self: Value, tensor1: Value, tensor2: Value, value: Scalar = 1
) -> Value:
    return op.Add(self, _scale_by_alpha(op, op.Div(tensor1, tensor2), value))
