"""Parts of algorithms on complex matrices, which lie in the last two axes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import onnx_ir as ir

from onnx_aot.builder.builder import Builder
from onnx_aot.ops.complex.arithmetic import absolute
from onnx_aot.ops.complex.pairs import Complex
from onnx_aot.ops.linalg.matrices import column, on_diagonal, row, transpose_matrix

__all__ = [
    "build_hermitian",
    "column_of",
    "conjugate",
    "conjugate_transpose",
    "is_zero",
    "map_parts",
    "matmul",
    "measure_column",
    "row_of",
    "select_parts",
    "split_direction",
    "sum_axis",
]

Value = ir.Value


def map_parts(function: Callable[..., Value], *values: Complex) -> Complex:
    """Applies a function to the real parts, and to the imaginary parts."""
    return Complex(
        function(*(value.real for value in values)), function(*(value.imag for value in values))
    )


def column_of(op: Builder, matrix: Complex, at: Value) -> Complex:
    """Gathers columns at a 1-D index."""
    return map_parts(lambda part: column(op, part, at), matrix)


def row_of(op: Builder, matrix: Complex, at: Value) -> Complex:
    """Gathers rows at a 1-D index."""
    return map_parts(lambda part: row(op, part, at), matrix)


def conjugate(op: Builder, value: Complex) -> Complex:
    """Complex conjugate."""
    return Complex(value.real, op.Neg(value.imag))


def conjugate_transpose(op: Builder, matrix: Complex) -> Complex:
    """Conjugate transpose."""
    return Complex(transpose_matrix(op, matrix.real), op.Neg(transpose_matrix(op, matrix.imag)))


def select_parts(op: Builder, condition: Value, then: Any, otherwise: Any) -> Complex:
    """Where; a real number or value has an imaginary part of zero."""
    (a, b), (c, d) = (
        (value.real, value.imag) if isinstance(value, Complex) else (value, 0.0)
        for value in (then, otherwise)
    )
    return Complex(op.Where(condition, a, c), op.Where(condition, b, d))


def is_zero(op: Builder, value: Complex) -> Value:
    """Mask of elements that are zero."""
    return op.And(op.Equal(value.real, 0.0), op.Equal(value.imag, 0.0))


def split_direction(op: Builder, value: Complex) -> tuple[Value, Complex]:
    """Absolute value and direction; the direction of zero is 1."""
    size = absolute(op, value)
    divisor = op.Where(op.Equal(size, 0.0), 1.0, size)
    unit = map_parts(lambda part: op.Div(part, divisor), value)
    return size, select_parts(op, op.Equal(size, 0.0), 1.0, unit)


def sum_axis(op: Builder, value: Complex, axis: int) -> Complex:
    """Sum over an axis, which is kept with size 1."""
    return map_parts(lambda part: op.reduce("ReduceSum", part, [axis], keepdims=True), value)


def matmul(op: Builder, left: Complex, right: Complex) -> Complex:
    """Matrix product."""
    (a, b), (c, d) = (left.real, left.imag), (right.real, right.imag)
    return Complex(
        op.Sub(op.MatMul(a, c), op.MatMul(b, d)), op.Add(op.MatMul(a, d), op.MatMul(b, c))
    )


def measure_column(op: Builder, *columns: Value) -> Value:
    """Euclidean length of columns together, such as those of both parts."""
    length: Value = op.reduce("ReduceL2", op.Concat(*columns, axis=-2), [-2], keepdims=True)
    return length


def build_hermitian(op: Builder, value: Complex, upper: bool) -> Complex:
    """Hermitian matrix from the triangle that is read, with a real diagonal."""
    real, imag = (op.Trilu(part, upper=int(upper)) for part in (value.real, value.imag))
    size = op.size(value.real, -1)
    strict = op.Where(on_diagonal(op, size, size), 0.0, real)
    return Complex(
        op.Add(real, transpose_matrix(op, strict)),
        op.Where(on_diagonal(op, size, size), 0.0, op.Sub(imag, transpose_matrix(op, imag))),
    )
