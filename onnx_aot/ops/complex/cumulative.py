"""Products and running products and log-sums of complex numbers along an axis."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import onnx_ir as ir

from onnx_aot.builder.builder import Builder
from onnx_aot.dtypes import INT64_MAX
from onnx_aot.ops.complex.arithmetic import add, angle, cast_to_result_type, multiply, subtract
from onnx_aot.ops.complex.elementary import exponential, log_one_plus
from onnx_aot.ops.complex.matrices import map_parts
from onnx_aot.ops.complex.pairs import Complex, real_function, register_complex
from onnx_aot.ops.core.cumulative import scan_by_doubling
from onnx_aot.ops.core.movement import move_axis, slice_axis
from onnx_aot.torch_compat import aten

__all__: list[str] = []

Value = ir.Value
Operand = Complex | ir.Value


# --- products ------------------------------------------------------------------------------------


def _multiply_along(op: Builder, value: Complex, axis: int) -> Complex:
    """Running products along an axis."""

    def join(earlier: Sequence[Value], later: Sequence[Value]) -> list[Value]:
        product = multiply(op, Complex(*earlier), Complex(*later))
        return [product.real, product.imag]

    neutral = [op.constant(number, value.real.dtype) for number in (1.0, 0.0)]
    parts = scan_by_doubling(op, [value.real, value.imag], axis, join, neutral=neutral)
    return Complex(*parts)


def _prepend_number(op: Builder, value: Complex, axis: int, first: complex) -> Complex:
    """Puts a number before the elements along an axis, of which there may be none."""
    sizes = op.all_sizes(value.real)
    shape = op.sizes([*sizes[:axis], 1, *sizes[axis + 1 :]])
    return Complex(
        *(
            op.Concat(op.Expand(op.constant(number, part.dtype), shape), part, axis=axis)
            for number, part in ((first.real, value.real), (first.imag, value.imag))
        )
    )


def _reduce_product(op: Builder, value: Complex, axis: int, keepdim: bool) -> Complex:
    """Last running product; 1 if there is no element."""
    products = _multiply_along(op, _prepend_number(op, value, axis, 1), axis)
    last = map_parts(lambda part: slice_axis(op, part, axis, -1, INT64_MAX), products)
    return last if keepdim else map_parts(lambda part: op.Squeeze(part, [axis]), last)


@register_complex(aten.prod.default)
def complex_prod(op: Builder, self: Operand, dtype: Any = None) -> Complex | Value:
    """Multiplies all elements; a real ``dtype`` takes the real parts first, as in torch."""
    value = cast_to_result_type(op, self)
    if not isinstance(value, Complex):
        product: Value = real_function(aten.prod.default)(op, value, None)
        return product
    flat = map_parts(lambda part: op.Reshape(part, [-1]), value)
    return _reduce_product(op, flat, 0, False)


@register_complex(aten.prod.dim_int)
def complex_prod_dim(
    op: Builder, self: Operand, dim: int, keepdim: bool, dtype: Any = None
) -> Complex | Value:
    """Multiplies along a dimension, as ``complex_prod``."""
    value = cast_to_result_type(op, self)
    if not isinstance(value, Complex):
        product: Value = real_function(aten.prod.dim_int)(op, value, dim, keepdim, None)
        return product
    if op.rank(value.real) == 0:
        return value
    return _reduce_product(op, value, op.axis(value.real, dim), keepdim)


@register_complex(aten.cumprod.default)
def complex_cumprod(op: Builder, self: Operand, dim: int, dtype: Any = None) -> Complex | Value:
    """Running products; a real ``dtype`` takes the real parts first, as in torch."""
    value = cast_to_result_type(op, self)
    if not isinstance(value, Complex):
        products: Value = real_function(aten.cumprod.default)(op, value, dim, None)
        return products
    if op.rank(value.real) == 0:
        return value
    return _multiply_along(op, value, op.axis(value.real, dim))


# --- log-sums ------------------------------------------------------------------------------------


def _add_logarithms(op: Builder, left: Complex, right: Complex) -> Complex:
    """``log(e^a + e^b) = a + log(1 + e^(b - a))`` with the larger real part in a.

    Two equal infinite real parts have no difference: two negative ones give the left operand, two
    positive ones the angle of the sum of both directions.
    """
    swapped = op.Less(left.real, right.real)
    high, low = (
        Complex(op.Where(swapped, a.real, b.real), op.Where(swapped, a.imag, b.imag))
        for a, b in ((right, left), (left, right))
    )
    total = add(op, log_one_plus(op, exponential(op, subtract(op, low, high))), high)
    equal = op.And(op.IsInf(high.real), op.Equal(high.real, low.real))
    below = op.Less(high.real, 0.0)
    both = add(op, _infinite_direction(op, left.imag), _infinite_direction(op, right.imag))
    size = op.Where(op.IsInf(both.real), op.Abs(both.real), op.Abs(both.imag))
    real = op.Where(equal, op.Where(below, high.real, size), total.real)
    imag = op.Where(equal, op.Where(below, high.imag, angle(op, both)), total.imag)
    missing = op.Or(
        op.Or(op.IsNaN(left.real), op.IsNaN(left.imag)),
        op.Or(op.IsNaN(right.real), op.IsNaN(right.imag)),
    )
    nan = op.constant(math.nan, high.real.dtype)
    return Complex(op.Where(missing, nan, real), op.Where(missing, nan, imag))


def _infinite_direction(op: Builder, turn: Value) -> Complex:
    """Infinite number with this angle, whose parts are infinite or zero."""
    parts = (
        op.Where(op.Equal(part, 0.0), part, op.Mul(part, math.inf))
        for part in (op.Cos(turn), op.Sin(turn))
    )
    return Complex(*parts)


@register_complex(aten.logcumsumexp.default)
def complex_logcumsumexp(op: Builder, self: Complex, dim: int) -> Complex:
    """Adds one element after the other: their order decides the multiple of 2 pi in the angle."""
    if op.rank(self.real) == 0:
        return self
    axis = op.axis(self.real, dim)
    # ONNX Runtime's Scan crashes if it has to move the axis of an empty tensor itself
    moved = map_parts(lambda part: move_axis(op, part, axis, 0), self)
    several = _prepend_number(op, moved, 0, complex(-math.inf, 0))
    first = map_parts(lambda part: op.Gather(part, 0, axis=0), several)

    def step(*values: Value) -> list[Value]:
        total = _add_logarithms(op, Complex(*values[:2]), Complex(*values[2:]))
        return [total.real, total.imag, total.real, total.imag]

    sums = op.scan([first.real, first.imag], [several.real, several.imag], step)[2:]
    return map_parts(
        lambda part: move_axis(op, slice_axis(op, part, 0, 1, INT64_MAX), 0, axis), Complex(*sums)
    )
