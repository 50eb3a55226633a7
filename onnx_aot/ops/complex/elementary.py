"""Elementary functions of complex numbers.

Branch cuts and forms without cancellation follow W. Kahan, "Branch Cuts for Complex Elementary
Functions, or Much Ado About Nothing's Sign Bit" (1987).
"""

from __future__ import annotations

import math

import onnx_ir as ir

from onnx_aot.builder.builder import Builder
from onnx_aot.ops.complex.arithmetic import absolute, angle, broadcast_parts, divide, multiply
from onnx_aot.ops.complex.pairs import Complex, from_real, parts, real_function, register_complex
from onnx_aot.ops.core.elementwise import aten_atan2, sign_bit
from onnx_aot.torch_compat import aten

__all__ = ["exponential", "log_one_plus", "logarithm"]

Value = ir.Value
Operand = Complex | ir.Value | complex

# Beyond this tanh is 1 in double precision, while sinh squared is still finite in single precision.
SATURATED = 20.0


def _multiply_by_i(value: Complex, op: Builder) -> Complex:
    """``i z``."""
    return Complex(op.Neg(value.imag), value.real)


def _multiply_by_minus_i(value: Complex, op: Builder) -> Complex:
    """``-i z``."""
    return Complex(value.imag, op.Neg(value.real))


def exponential(op: Builder, value: Complex) -> Complex:
    """``e^x (cos y + i sin y)``; a real number stays real where ``e^x`` is infinite."""
    size = op.Exp(value.real)
    zero = op.constant(0.0, size.dtype)
    imag = op.Where(op.Equal(value.imag, zero), value.imag, op.Mul(size, op.Sin(value.imag)))
    return Complex(op.Mul(size, op.Cos(value.imag)), imag)


def logarithm(op: Builder, value: Complex) -> Complex:
    """``log |z| + i arg z``."""
    return Complex(op.Log(absolute(op, value)), angle(op, value))


def _sqrt(op: Builder, value: Complex) -> Complex:
    """The root with a non-negative real part, without cancellation in either half plane."""
    dtype = value.real.dtype
    zero, two = op.constant(0.0, dtype), op.constant(2.0, dtype)
    root = op.Sqrt(op.Div(op.Add(op.Abs(value.real), absolute(op, value)), two))
    other = op.Div(op.Abs(value.imag), op.Mul(root, two))
    other = op.Where(op.Equal(root, zero), zero, other)
    right = op.GreaterOrEqual(value.real, zero)
    size = op.Where(right, other, root)
    below = sign_bit(op, value.imag)  # also for -0: the branch cut is the negative axis
    return Complex(op.Where(right, root, other), op.Where(below, op.Neg(size), size))


@register_complex(aten.exp.default)
def complexexponential(op: Builder, self: Complex) -> Complex:
    return exponential(op, self)


@register_complex(aten.exp2.default)
def complex_exp2(op: Builder, self: Complex) -> Complex:
    scale = math.log(2.0)
    return exponential(op, multiply(op, self, scale))


@register_complex(aten.expm1.default)
def complex_expm1(op: Builder, self: Complex) -> Complex:
    """``expm1(x) cos y - 2 sin(y/2)^2 + i e^x sin y``, accurate near 0."""
    dtype = self.real.dtype
    half = op.Sin(op.Mul(self.imag, op.constant(0.5, dtype)))
    small = real_function(aten.expm1.default)(op, self.real)
    lost = op.Mul(op.Mul(half, half), op.constant(2.0, dtype))
    real = op.Sub(op.Mul(small, op.Cos(self.imag)), lost)
    return Complex(real, op.Mul(op.Exp(self.real), op.Sin(self.imag)))


@register_complex(aten.log.default)
def complex_log(op: Builder, self: Complex) -> Complex:
    return logarithm(op, self)


@register_complex(aten.log2.default)
def complex_log2(op: Builder, self: Complex) -> Complex:
    return multiply(op, logarithm(op, self), 1.0 / math.log(2.0))


@register_complex(aten.log10.default)
def complex_log10(op: Builder, self: Complex) -> Complex:
    return multiply(op, logarithm(op, self), 1.0 / math.log(10.0))


def log_one_plus(op: Builder, value: Complex) -> Complex:
    """``log1p(2x + x^2 + y^2) / 2 + i atan2(y, 1 + x)``."""
    dtype = value.real.dtype
    one, two = op.constant(1.0, dtype), op.constant(2.0, dtype)
    inner = op.Add(op.Mul(value.real, op.Add(value.real, two)), op.Mul(value.imag, value.imag))
    real = op.Div(real_function(aten.log1p.default)(op, inner), two)
    return Complex(real, aten_atan2(op, value.imag, op.Add(value.real, one)))


@register_complex(aten.log1p.default)
def complex_log1p(op: Builder, self: Complex) -> Complex:
    return log_one_plus(op, self)


@register_complex(aten.sqrt.default)
def complex_sqrt(op: Builder, self: Complex) -> Complex:
    return _sqrt(op, self)


@register_complex(aten.rsqrt.default)
def complex_rsqrt(op: Builder, self: Complex) -> Complex:
    return divide(op, op.constant(1.0, self.real.dtype), _sqrt(op, self))


@register_complex(aten.pow.Tensor_Tensor, aten.pow.Tensor_Scalar, aten.pow.Scalar)
def complex_pow(op: Builder, self: Operand, exponent: Operand) -> Complex:
    """``exp(b log a)``; small whole powers by multiplication; ``0 ** 0`` is 1, ``0 ** b`` 0."""
    whole = _as_small_integer(exponent)
    if whole is not None and isinstance(self, Complex):
        return _whole_power(op, self, whole)
    if isinstance(exponent, (int, float)) and exponent == 0.5 and isinstance(self, Complex):
        return _sqrt(op, self)
    dtype = op.result.dtype
    base, power = from_real(op, self, dtype), from_real(op, exponent, dtype)
    zero = op.constant(0.0, base.real.dtype)
    one = op.constant(1.0, base.real.dtype)
    answer = exponential(op, multiply(op, power, logarithm(op, base)))
    at_zero = op.And(op.Equal(base.real, zero), op.Equal(base.imag, zero))
    no_power = op.And(op.Equal(power.real, zero), op.Equal(power.imag, zero))
    vanishes = op.And(at_zero, op.Greater(power.real, zero))
    real = op.Where(no_power, one, op.Where(vanishes, zero, answer.real))
    imag = op.Where(op.Or(no_power, vanishes), zero, answer.imag)
    return broadcast_parts(op, real, imag)


def _as_small_integer(exponent: Operand) -> int | None:
    """Returns a small integer exponent, else None."""
    if isinstance(exponent, (int, float, complex)):
        number = complex(exponent)
        if number.imag == 0 and number.real == int(number.real) and abs(number.real) <= 4:
            return int(number.real)
    return None


def _whole_power(op: Builder, base: Complex, exponent: int) -> Complex:
    one = op.constant(1.0, base.real.dtype)
    if exponent == 0:
        shape = op.Shape(base.real)
        zero = op.constant(0.0, base.real.dtype)
        return Complex(op.Expand(one, shape), op.Expand(zero, shape))
    power = base
    for _ in range(abs(exponent) - 1):
        power = multiply(op, power, base)
    return power if exponent > 0 else divide(op, one, power)


# --- trigonometric and hyperbolic ----------------------------------------------------------------


def _cosh_sinh(op: Builder, value: Value) -> tuple[Value, Value]:
    return real_function(aten.cosh.default)(op, value), real_function(aten.sinh.default)(op, value)


def _sinh(op: Builder, value: Complex) -> Complex:
    cosh, sinh = _cosh_sinh(op, value.real)
    return Complex(op.Mul(sinh, op.Cos(value.imag)), op.Mul(cosh, op.Sin(value.imag)))


def _cosh(op: Builder, value: Complex) -> Complex:
    cosh, sinh = _cosh_sinh(op, value.real)
    return Complex(op.Mul(cosh, op.Cos(value.imag)), op.Mul(sinh, op.Sin(value.imag)))


def _tanh(op: Builder, value: Complex) -> Complex:
    """``(b r s + i t) / (1 + b s^2)``, ``t = tan y, b = 1 + t^2, s = sinh x, r = cosh x``."""
    dtype = value.real.dtype
    one = op.constant(1.0, dtype)
    inner = op.Clip(value.real, -SATURATED, SATURATED)
    rho, sinh = _cosh_sinh(op, inner)
    # b = 1 / cos^2: both are multiplied by cos^2, so that they stay finite where cos is 0
    cos, sin = op.Cos(value.imag), op.Sin(value.imag)
    square = op.Mul(cos, cos)
    below = op.Add(square, op.Mul(sinh, sinh))
    real = op.Div(op.Mul(rho, sinh), below)
    far = op.Greater(op.Abs(value.real), op.constant(SATURATED, dtype))
    real = op.Where(far, op.Mul(op.Sign(value.real), one), real)
    return Complex(real, op.Div(op.Mul(sin, cos), below))


@register_complex(aten.sinh.default)
def complex_sinh(op: Builder, self: Complex) -> Complex:
    return _sinh(op, self)


@register_complex(aten.cosh.default)
def complex_cosh(op: Builder, self: Complex) -> Complex:
    return _cosh(op, self)


@register_complex(aten.tanh.default)
def complex_tanh(op: Builder, self: Complex) -> Complex:
    return _tanh(op, self)


@register_complex(aten.sin.default)
def complex_sin(op: Builder, self: Complex) -> Complex:
    return _multiply_by_minus_i(_sinh(op, _multiply_by_i(self, op)), op)


@register_complex(aten.cos.default)
def complex_cos(op: Builder, self: Complex) -> Complex:
    return _cosh(op, _multiply_by_i(self, op))


@register_complex(aten.tan.default)
def complex_tan(op: Builder, self: Complex) -> Complex:
    return _multiply_by_minus_i(_tanh(op, _multiply_by_i(self, op)), op)


@register_complex(aten.sigmoid.default)
def complex_sigmoid(op: Builder, self: Complex) -> Complex:
    """``(1 + tanh(z / 2)) / 2``, which does not overflow."""
    half = multiply(op, _tanh(op, multiply(op, self, 0.5)), 0.5)
    return Complex(op.Add(half.real, op.constant(0.5, half.real.dtype)), half.imag)


@register_complex(aten.silu.default)
def complex_silu(op: Builder, self: Complex) -> Complex:
    return multiply(op, self, complex_sigmoid(op, self))


# --- their inverses ------------------------------------------------------------------------------


def _sqrt_one_minus_plus(op: Builder, value: Complex) -> tuple[Complex, Complex]:
    """``sqrt(1 - z)`` and ``sqrt(1 + z)``."""
    one = op.constant(1.0, value.real.dtype)
    minus = _sqrt(op, Complex(op.Sub(one, value.real), op.Neg(value.imag)))
    return minus, _sqrt(op, Complex(op.Add(one, value.real), value.imag))


def _asin(op: Builder, value: Complex) -> Complex:
    minus, plus = _sqrt_one_minus_plus(op, value)
    below = op.Sub(op.Mul(minus.real, plus.real), op.Mul(minus.imag, plus.imag))
    above = op.Sub(op.Mul(minus.real, plus.imag), op.Mul(minus.imag, plus.real))
    asinh = real_function(aten.asinh.default)
    return Complex(aten_atan2(op, value.real, below), asinh(op, above))


def _atanh(op: Builder, value: Complex) -> Complex:
    """``log1p(4x / ((1-x)^2 + y^2)) / 4 + i atan2(2y, (1-x)(1+x) - y^2) / 2``."""
    dtype = value.real.dtype
    one, two, four = (op.constant(number, dtype) for number in (1.0, 2.0, 4.0))
    square = op.Mul(value.imag, value.imag)
    # computed for |x|, so that the quotient stays positive; the sign is restored afterwards
    size = op.Abs(value.real)
    near = op.Sub(one, size)
    quotient = op.Div(op.Mul(size, four), op.Add(op.Mul(near, near), square))
    real = op.Div(real_function(aten.log1p.default)(op, quotient), four)
    turn = aten_atan2(op, op.Mul(value.imag, two), op.Sub(op.Mul(near, op.Add(one, size)), square))
    return Complex(op.Mul(real, op.Sign(value.real)), op.Div(turn, two))


@register_complex(aten.asin.default)
def complex_asin(op: Builder, self: Complex) -> Complex:
    return _asin(op, self)


@register_complex(aten.asinh.default)
def complex_asinh(op: Builder, self: Complex) -> Complex:
    return _multiply_by_minus_i(_asin(op, _multiply_by_i(self, op)), op)


def _acos(op: Builder, value: Complex) -> Complex:
    minus, plus = _sqrt_one_minus_plus(op, value)
    two = op.constant(2.0, value.real.dtype)
    real = op.Mul(aten_atan2(op, minus.real, plus.real), two)
    crossed = op.Sub(op.Mul(plus.real, minus.imag), op.Mul(plus.imag, minus.real))
    return Complex(real, real_function(aten.asinh.default)(op, crossed))


@register_complex(aten.acos.default)
def complex_acos(op: Builder, self: Complex) -> Complex:
    return _acos(op, self)


@register_complex(aten.acosh.default)
def complex_acosh(op: Builder, self: Complex) -> Complex:
    """``i acos(z)`` or its negative, whichever has a positive real part."""
    turned = _multiply_by_i(_acos(op, self), op)
    negative = op.Less(turned.real, op.constant(0.0, turned.real.dtype))
    return Complex(
        op.Where(negative, op.Neg(turned.real), turned.real),
        op.Where(negative, op.Neg(turned.imag), turned.imag),
    )


@register_complex(aten.atanh.default)
def complex_atanh(op: Builder, self: Complex) -> Complex:
    return _atanh(op, self)


@register_complex(aten.atan.default)
def complex_atan(op: Builder, self: Complex) -> Complex:
    return _multiply_by_minus_i(_atanh(op, _multiply_by_i(self, op)), op)


@register_complex(aten.logaddexp.default)
def complex_logaddexp(op: Builder, self: Complex, other: Complex) -> Complex:
    """Factors out the operand with the larger real part, whose exponential is the larger one."""
    (a, b), (c, d) = parts(op, self), parts(op, other)
    first = op.GreaterOrEqual(a, c)
    real, imag = op.Where(first, a, c), op.Where(first, b, d)
    less = Complex(
        op.Sub(op.Where(first, c, a), real),
        op.Sub(op.Where(first, d, b), imag),
    )
    rest = log_one_plus(op, exponential(op, less))
    return Complex(op.Add(real, rest.real), op.Add(imag, rest.imag))
