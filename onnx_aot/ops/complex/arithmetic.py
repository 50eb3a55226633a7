"""Arithmetic, comparison and conversion of complex numbers."""

from __future__ import annotations

import math
from typing import Any

import onnx_ir as ir
import torch

from onnx_aot import dtypes
from onnx_aot.builder.builder import Builder
from onnx_aot.ops.complex.pairs import (
    Complex,
    from_real,
    join,
    parts,
    real_function,
    register_complex,
    split,
)
from onnx_aot.ops.core.bit_views import view_bits
from onnx_aot.ops.core.elementwise import aten_atan2
from onnx_aot.ops.core.movement import reshape
from onnx_aot.ops.core.size_math import divide_size, multiply_sizes
from onnx_aot.torch_compat import aten, prims

__all__ = [
    "absolute",
    "add",
    "angle",
    "broadcast_parts",
    "cast_to_result_type",
    "divide",
    "multiply",
    "subtract",
]

Value = ir.Value
Operand = Complex | ir.Value | complex


# --- building blocks -----------------------------------------------------------------------------


def broadcast_parts(op: Builder, real: Value, imag: Value) -> Complex:
    """Pairs two parts, one of which may have to be broadcast to the other's shape."""
    if real.shape is not None and imag.shape is not None and real.shape == imag.shape:
        return Complex(real, imag)
    zero = op.constant(0.0, real.dtype)
    shape = op.Shape(op.Add(op.Mul(real, zero), op.Mul(imag, zero)))
    return Complex(op.Expand(real, shape), op.Expand(imag, shape))


def add(op: Builder, left: Operand, right: Operand, sign: float = 1.0) -> Complex:
    """``left + sign * right`` for parts of one type."""
    (a, b), (c, d) = parts(op, left), parts(op, right)
    combine = op.Add if sign > 0 else op.Sub
    real = combine(a, c)
    if d is None:
        imag = b
    elif b is None:
        imag = d if sign > 0 else op.Neg(d) if isinstance(d, ir.Value) else -d
    else:
        imag = combine(b, d)
    return broadcast_parts(op, real, op.cast(imag, real.dtype))


def subtract(op: Builder, left: Operand, right: Operand) -> Complex:
    """``left - right``."""
    return add(op, left, right, -1.0)


def multiply(op: Builder, left: Operand, right: Operand) -> Complex:
    """``(a + bi)(c + di) = ac - bd + (ad + bc)i``, with half the products for a real factor."""
    (a, b), (c, d) = parts(op, left), parts(op, right)
    if b is None:
        return broadcast_parts(op, op.Mul(c, a), op.Mul(d, a))
    if d is None:
        return broadcast_parts(op, op.Mul(a, c), op.Mul(b, c))
    real = op.Sub(op.Mul(a, c), op.Mul(b, d))
    return broadcast_parts(op, real, op.Add(op.Mul(a, d), op.Mul(b, c)))


def divide(op: Builder, left: Operand, right: Operand) -> Complex:
    """Divides after scaling the divisor by its larger part, so its square does not overflow."""
    if isinstance(right, complex):
        if right == 0:
            return divide(op, left, _make_constant(op, left, right))
        return multiply(op, left, 1 / right)
    c, d = parts(op, right)
    if d is None:
        a, b = parts(op, left)
        return broadcast_parts(op, op.Div(a, c), op.Div(b, c))
    scale = op.Max(op.Abs(c), op.Abs(d))
    c, d = op.Div(c, scale), op.Div(d, scale)
    square = op.Mul(op.Add(op.Mul(c, c), op.Mul(d, d)), scale)
    product = multiply(op, left, Complex(c, op.Neg(d)))
    return broadcast_parts(op, op.Div(product.real, square), op.Div(product.imag, square))


def _make_constant(op: Builder, like: Any, number: complex) -> Complex:
    dtype = parts(op, like)[0].dtype
    return Complex(op.constant(number.real, dtype), op.constant(number.imag, dtype))


def absolute(op: Builder, value: Complex) -> Value:
    """``|z|``, scaled by the larger part so that squares neither overflow nor underflow."""
    real, imag = op.Abs(value.real), op.Abs(value.imag)
    large, small = op.Max(real, imag), op.Min(real, imag)
    ratio = op.Div(small, large)
    dtype = real.dtype
    size = op.Mul(large, op.Sqrt(op.Add(op.Mul(ratio, ratio), op.constant(1.0, dtype))))
    # 0 / 0 and inf / inf have no ratio; the absolute value is the larger part
    plain = op.Or(op.Equal(large, op.constant(0.0, dtype)), op.IsInf(large))
    return op.Where(plain, large, size)


def angle(op: Builder, value: Complex) -> Value:
    """The argument, in ``(-pi, pi]``."""
    return aten_atan2(op, value.imag, value.real)


def _number(value: Any) -> Any:
    """Turns a complex Python number that is real into a float, which costs no imaginary part."""
    if isinstance(value, complex):
        return value.real if value.imag == 0 else value
    return value


# --- arithmetic ----------------------------------------------------------------------------------


def _apply_alpha(op: Builder, value: Any, alpha: Any) -> Any:
    if alpha == 1:
        return value
    if isinstance(value, (Complex, ir.Value)):
        if isinstance(value, ir.Value) and not isinstance(_number(alpha), complex):
            return op.Mul(value, _number(alpha))
        return multiply(op, value, _number(alpha))
    return value * alpha


@register_complex(aten.add.Tensor, aten.add.Scalar)
def complex_add(op: Builder, self: Operand, other: Operand, alpha: complex) -> Complex:
    return _apply_as_complex(op, add, self, _apply_alpha(op, other, alpha))


@register_complex(aten.sub.Tensor, aten.sub.Scalar, aten.subtract.Tensor, aten.subtract.Scalar)
def complex_sub(op: Builder, self: Operand, other: Operand, alpha: complex) -> Complex:
    return _apply_as_complex(op, subtract, self, _apply_alpha(op, other, alpha))


@register_complex(aten.rsub.Tensor, aten.rsub.Scalar)
def complex_rsub(op: Builder, self: Operand, other: Operand, alpha: complex) -> Complex:
    return _apply_as_complex(op, subtract, other, _apply_alpha(op, self, alpha))


@register_complex(aten.mul.Tensor, aten.mul.Scalar, aten.multiply.Tensor, aten.multiply.Scalar)
def complex_mul(op: Builder, self: Operand, other: Operand) -> Complex:
    return _apply_as_complex(op, multiply, self, other)


@register_complex(
    aten.div.Tensor,
    aten.div.Scalar,
    aten.divide.Tensor,
    aten.divide.Scalar,
    aten.true_divide.Tensor,
    aten.true_divide.Scalar,
)
def complex_div(op: Builder, self: Operand, other: Operand) -> Complex:
    return _apply_as_complex(op, divide, self, other)


def _apply_as_complex(op: Builder, function: Any, left: Any, right: Any) -> Complex:
    """Calls ``function``; the left operand becomes a pair if it is a number or none is complex."""
    dtype = op.result.dtype
    left, right = _number(left), _number(right)
    if not any(isinstance(operand, (Complex, complex)) for operand in (left, right)):
        left = from_real(op, left, dtype)
    if not isinstance(left, (Complex, ir.Value)):
        left = from_real(op, left, dtype)
    answer: Complex = function(op, left, right)
    return answer


@register_complex(aten.div.Tensor_mode, aten.div.Scalar_mode)
def complex_div_mode(
    op: Builder, self: Operand, other: Operand, rounding_mode: str | None
) -> Complex:
    """Divides; torch rounds no complex quotient, so the mode is always None."""
    return _apply_as_complex(op, divide, self, other)


@register_complex(aten.reciprocal.default)
def complex_reciprocal(op: Builder, self: Complex) -> Complex:
    return divide(op, op.constant(1.0, self.real.dtype), self)


@register_complex(aten.square.default)
def complex_square(op: Builder, self: Complex) -> Complex:
    return multiply(op, self, self)


@register_complex(aten.addcmul.default)
def complex_addcmul(
    op: Builder, self: Operand, tensor1: Operand, tensor2: Operand, value: complex
) -> Complex:
    product = _apply_as_complex(op, multiply, tensor1, tensor2)
    return _apply_as_complex(op, add, self, _apply_alpha(op, product, value))


@register_complex(aten.addcdiv.default)
def complex_addcdiv(
    op: Builder, self: Operand, tensor1: Operand, tensor2: Operand, value: complex
) -> Complex:
    quotient = _apply_as_complex(op, divide, tensor1, tensor2)
    return _apply_as_complex(op, add, self, _apply_alpha(op, quotient, value))


@register_complex(aten.addbmm.default)
def complex_addbmm(
    op: Builder,
    self: Operand,
    batch1: Complex,
    batch2: Complex,
    beta: complex = 1,
    alpha: complex = 1,
) -> Complex:
    """``beta self + alpha sum(batch1 @ batch2)``."""
    (a, b), (c, d) = parts(op, batch1), parts(op, batch2)
    real = op.Sub(op.MatMul(a, c), op.MatMul(b, d))
    imag = op.Add(op.MatMul(a, d), op.MatMul(b, c))
    product = Complex(*(op.reduce("ReduceSum", part, [0], False) for part in (real, imag)))
    scaled = _apply_alpha(op, product, alpha)
    return scaled if beta == 0 else _apply_as_complex(op, add, _apply_alpha(op, self, beta), scaled)


@register_complex(aten.lerp.Scalar, aten.lerp.Tensor)
def complex_lerp(op: Builder, self: Operand, end: Operand, weight: Operand) -> Complex:
    """Starts from the nearer end, as torch does: from ``self`` where ``|weight|`` is below 0.5."""
    dtype = op.result.dtype
    step = from_real(op, _apply_as_complex(op, subtract, end, self), dtype)
    share = from_real(op, weight, dtype)
    near = op.Less(absolute(op, share), op.constant(0.5, share.real.dtype))
    forward = add(op, self, multiply(op, step, share))
    rest = subtract(op, op.constant(1.0, share.real.dtype), share)
    backward = subtract(op, end, multiply(op, step, rest))
    return Complex(
        op.Where(near, forward.real, backward.real), op.Where(near, forward.imag, backward.imag)
    )


# --- parts and conversions -----------------------------------------------------------------------


@register_complex(
    aten._conj.default,
    aten._conj_physical.default,
    aten.conj.default,
    aten.conj_physical.default,
    prims.conj_physical.default,
)
def complex_conj(op: Builder, self: Complex) -> Complex:
    return Complex(self.real, op.Neg(self.imag))


@register_complex(prims.conj.default)
def complex_prims_conj(op: Builder, a: Complex) -> Complex:
    return Complex(a.real, op.Neg(a.imag))


@register_complex(aten.resolve_conj.default)
def complex_resolve_conj(op: Builder, self: Complex) -> Complex:
    return self


@register_complex(aten.real.default, prims.real.default)
def complex_real(op: Builder, self: Complex) -> Value:
    return self.real


@register_complex(aten.imag.default, prims.imag.default)
def complex_imag(op: Builder, self: Complex) -> Value:
    return self.imag


@register_complex(aten.view_as_real.default, aten.view_as_real_copy.default)
def complex_view_as_real(op: Builder, self: Complex) -> Value:
    return join(op, self)


@register_complex(aten.view.dtype)
def complex_view_dtype(op: Builder, self: Complex | Value, dtype: torch.dtype) -> Complex | Value:
    """Views parts, side by side in the last dimension, as numbers of another type."""
    if isinstance(self, Complex):
        sizes = op.all_sizes(self.real)
        twice = multiply_sizes(op, sizes[-1], 2) if sizes else 2
        value = reshape(op, join(op, self), [*sizes[:-1], twice])
    else:
        value = self if op.rank(self) else op.Unsqueeze(self, [0])
    viewed = view_bits(op, value, dtypes.to_onnx(dtype.to_real() if dtype.is_complex else dtype))
    if dtype.is_complex:
        *outer, last = op.all_sizes(viewed)
        half = [divide_size(op, last, 2)] if op.result.ndim else []
        return split(op, reshape(op, viewed, [*outer, *half, 2]))
    number: Value = viewed if op.result.ndim else op.Squeeze(viewed, [0])
    return number


@register_complex(aten.view_as_complex.default, aten.view_as_complex_copy.default)
def complex_view_as_complex(op: Builder, self: Value) -> Complex:
    return split(op, self)


@register_complex(aten.complex.default)
def complex_complex(op: Builder, real: Value, imag: Value) -> Complex:
    part = dtypes.to_onnx(op.result.dtype.to_real())
    return broadcast_parts(op, op.cast(real, part), op.cast(imag, part))


@register_complex(aten.polar.default)
def complex_polar(op: Builder, abs: Value, angle: Value) -> Complex:
    part = dtypes.to_onnx(op.result.dtype.to_real())
    size, turn = op.cast(abs, part), op.cast(angle, part)
    return Complex(op.Mul(size, op.Cos(turn)), op.Mul(size, op.Sin(turn)))


@register_complex(aten._to_copy.default, aten.to.device, aten.to.dtype, aten.to.dtype_layout)
def complex_to(op: Builder, self: Operand, dtype: Any = None) -> Operand:
    return cast_to_result_type(op, self)


@register_complex(aten.to.other, aten.type_as.default)
def complex_to_other(op: Builder, self: Operand, other: Operand) -> Operand:
    return cast_to_result_type(op, self)


@register_complex(prims.convert_element_type.default)
def complex_convert(op: Builder, a: Operand, dtype: torch.dtype) -> Operand:
    return cast_to_result_type(op, a)


@register_complex(aten.copy.default)
def complex_copy(op: Builder, self: Operand, src: Operand) -> Operand:
    """Casts and expands the source to the destination's type and shape."""
    source = cast_to_result_type(op, src)
    shape = op.Shape(parts(op, self)[0])
    if isinstance(source, Complex):
        return Complex(op.Expand(source.real, shape), op.Expand(source.imag, shape))
    return op.Expand(source, shape)


def cast_to_result_type(op: Builder, value: Any) -> Any:
    """Casts to the recorded type: a real type takes the real part, BOOL tests for nonzero."""
    dtype = op.result.dtype
    if dtype.is_complex:
        return from_real(op, value, dtype)
    real, imag = parts(op, value)
    if dtype == torch.bool and imag is not None:
        return op.Or(op.Cast(real, to=ir.DataType.BOOL), op.Cast(imag, to=ir.DataType.BOOL))
    return op.cast(real, dtypes.to_onnx(dtype))


@register_complex(aten.pad.default)
def complex_pad(op: Builder, self: Complex, pad: Any, mode: str, value: Any) -> Complex:
    """Pads with a real number, which applies to the real part only."""
    function = real_function(aten.pad.default)
    real = function(op, self.real, pad, mode, value)
    return Complex(real, function(op, self.imag, pad, mode, None))


@register_complex(aten.nan_to_num.default)
def complex_nan_to_num(
    op: Builder,
    self: Complex,
    nan: float | None = None,
    posinf: float | None = None,
    neginf: float | None = None,
) -> Complex:
    """Replaces NaN by 0 and infinities by the largest numbers in each part by itself."""
    limits = torch.finfo(op.result.dtype)
    pairs = ((math.inf, posinf, limits.max), (-math.inf, neginf, limits.min))

    def replace_in_part(part: Value) -> Value:
        found = op.Where(op.IsNaN(part), op.constant(nan or 0.0, part.dtype), part)
        for infinite, given, limit in pairs:
            replacement = op.constant(limit if given is None else given, part.dtype)
            found = op.Where(op.Equal(part, infinite), replacement, found)
        return found

    return Complex(replace_in_part(self.real), replace_in_part(self.imag))


# --- comparison ----------------------------------------------------------------------------------


def _compare_equal(op: Builder, left: Operand, right: Operand) -> Value:
    (a, b), (c, d) = parts(op, left), parts(op, right)
    dtype = (a if isinstance(a, ir.Value) else c).dtype
    zero = op.constant(0.0, dtype)
    same = op.Equal(b if b is not None else zero, d if d is not None else zero)
    return op.And(op.Equal(a, c), same)


@register_complex(aten.eq.Tensor, aten.eq.Scalar)
def complex_eq(op: Builder, self: Operand, other: Operand) -> Value:
    return _compare_equal(op, self, other)


@register_complex(aten.ne.Tensor, aten.ne.Scalar, aten.not_equal.Tensor, aten.not_equal.Scalar)
def complex_ne(op: Builder, self: Operand, other: Operand) -> Value:
    return op.Not(_compare_equal(op, self, other))


@register_complex(aten.isnan.default)
def complex_isnan(op: Builder, self: Complex) -> Value:
    return op.Or(op.IsNaN(self.real), op.IsNaN(self.imag))


@register_complex(aten.isinf.default)
def complex_isinf(op: Builder, self: Complex) -> Value:
    return op.Or(op.IsInf(self.real), op.IsInf(self.imag))


@register_complex(aten.isfinite.default)
def complex_isfinite(op: Builder, self: Complex) -> Value:
    infinite = complex_isinf(op, self)
    return op.Not(op.Or(infinite, complex_isnan(op, self)))


@register_complex(aten.isreal.default)
def complex_isreal(op: Builder, self: Complex) -> Value:
    return op.Equal(self.imag, op.constant(0.0, self.imag.dtype))


# --- sizes and directions ------------------------------------------------------------------------


@register_complex(aten.abs.default, aten.absolute.default)
def complex_abs(op: Builder, self: Complex) -> Value:
    return absolute(op, self)


@register_complex(aten.angle.default)
def complex_angle(op: Builder, self: Complex) -> Value:
    return angle(op, self)


@register_complex(aten.sgn.default)
def complex_sgn(op: Builder, self: Complex) -> Complex:
    """``z / |z|``, and 0 for 0."""
    size = absolute(op, self)
    zero = op.constant(0.0, size.dtype)
    none = op.Equal(size, zero)
    size = op.Where(none, op.constant(1.0, size.dtype), size)
    return Complex(op.Div(self.real, size), op.Div(self.imag, size))


# --- reductions ----------------------------------------------------------------------------------


@register_complex(aten.linalg_vector_norm.default)
def complex_vector_norm(
    op: Builder, self: Complex, ord: Any, dim: Any, keepdim: bool, dtype: Any
) -> Value:
    return real_function(aten.linalg_vector_norm.default)(
        op, absolute(op, self), ord, dim, keepdim, None
    )


def _reduce_variance(
    op: Builder, value: Complex, dim: Any, correction: Any, keepdim: bool
) -> Value:
    """Sum of the variances of both parts."""
    function = real_function(aten.var.correction)
    return op.Add(*(function(op, p, dim, correction, keepdim) for p in parts(op, value)))


def _reduce_mean(op: Builder, value: Complex, dim: Any, keepdim: bool) -> Complex:
    function = real_function(aten.mean.dim)
    return Complex(*(function(op, part, dim, keepdim) for part in parts(op, value)))


@register_complex(aten.var.correction)
def complex_var(
    op: Builder, self: Complex, dim: Any = None, correction: Any = None, keepdim: bool = False
) -> Value:
    return _reduce_variance(op, self, dim, correction, keepdim)


@register_complex(aten.var.default, aten.var.dim)
def complex_var_unbiased(
    op: Builder, self: Complex, dim: Any = None, unbiased: bool = True, keepdim: bool = False
) -> Value:
    return _reduce_variance(op, self, dim, int(unbiased), keepdim)


@register_complex(aten.std.correction)
def complex_std(
    op: Builder, self: Complex, dim: Any = None, correction: Any = None, keepdim: bool = False
) -> Value:
    return op.Sqrt(_reduce_variance(op, self, dim, correction, keepdim))


@register_complex(aten.std.default, aten.std.dim)
def complex_std_unbiased(
    op: Builder, self: Complex, dim: Any = None, unbiased: bool = True, keepdim: bool = False
) -> Value:
    return op.Sqrt(_reduce_variance(op, self, dim, int(unbiased), keepdim))


@register_complex(aten.var_mean.correction)
def complex_var_mean(
    op: Builder, self: Complex, dim: Any = None, correction: Any = None, keepdim: bool = False
) -> list[Any]:
    return [
        _reduce_variance(op, self, dim, correction, keepdim),
        _reduce_mean(op, self, dim, keepdim),
    ]


@register_complex(aten.var_mean.default, aten.var_mean.dim)
def complex_var_mean_unbiased(
    op: Builder, self: Complex, dim: Any = None, unbiased: bool = True, keepdim: bool = False
) -> list[Any]:
    return complex_var_mean(op, self, dim, int(unbiased), keepdim)


@register_complex(aten.std_mean.correction)
def complex_std_mean(
    op: Builder, self: Complex, dim: Any = None, correction: Any = None, keepdim: bool = False
) -> list[Any]:
    variance, mean = complex_var_mean(op, self, dim, correction, keepdim)
    return [op.Sqrt(variance), mean]


@register_complex(aten.std_mean.default, aten.std_mean.dim)
def complex_std_mean_unbiased(
    op: Builder, self: Complex, dim: Any = None, unbiased: bool = True, keepdim: bool = False
) -> list[Any]:
    return complex_std_mean(op, self, dim, int(unbiased), keepdim)
