"""QR decompositions of complex matrices and products of their Householder reflectors."""

# ruff: noqa: N803 (arguments are named as in the schema)

from __future__ import annotations

import onnx_ir as ir

from onnx_aot.builder.builder import Builder, Size
from onnx_aot.ops.complex.arithmetic import divide, multiply, subtract
from onnx_aot.ops.complex.matrices import (
    column_of,
    conjugate,
    conjugate_transpose,
    map_parts,
    measure_column,
    row_of,
    select_parts,
    sum_axis,
)
from onnx_aot.ops.complex.pairs import Complex, from_real, register_complex, zeros_like
from onnx_aot.ops.core.indexing import range_of_length
from onnx_aot.ops.core.movement import annotate_shape, slice_axis
from onnx_aot.ops.linalg.matrices import as_batch, on_diagonal, row_numbers, shorter_side
from onnx_aot.torch_compat import aten

__all__ = ["orthogonal_and_triangle"]

Value = ir.Value


def _reduce_by_householder(op: Builder, matrix: Complex, steps: Size) -> tuple[Complex, Complex]:
    """R with the reflectors' vectors, less their leading ones, below it; their factors as a column.

    One column per step, as LAPACK's geqr2 and larfg do it for complex numbers: the diagonal of R is
    real, and of the opposite sign of what it replaces. ``I - t v v^H`` is a reflector; its adjoint
    is applied here.
    """
    shape = list(matrix.shape or ())
    rows = row_numbers(op, op.size(matrix.real, -2))
    columns = range_of_length(op, 0, op.size(matrix.real, -1))
    places = row_numbers(op, steps)
    batch = op.Concat(op.Shape(matrix.real, start=0, end=-2), op.sizes([steps, 1]), axis=0)
    none = op.Expand(op.constant(0.0, matrix.real.dtype), batch)
    none = annotate_shape(none, [*shape[:-2], None, 1])

    def reflect_column(i: Value, *parts: Value) -> list[Value]:
        a, factors = Complex(*parts[:2]), Complex(*parts[2:])
        at = op.Unsqueeze(i, [0])
        x = column_of(op, a, at)
        alpha = row_of(op, x, at)
        below, here = op.Greater(rows, i), op.Equal(rows, i)
        tail = select_parts(op, below, x, 0.0)
        tail_length = measure_column(op, tail.real, tail.imag)
        length = measure_column(op, alpha.real, alpha.imag, tail_length)
        idle = op.And(op.Equal(tail_length, 0.0), op.Equal(alpha.imag, 0.0))
        signed = op.Where(op.Less(alpha.real, 0.0), length, op.Neg(length))
        beta = op.Where(idle, alpha.real, signed)
        divisor = op.Where(idle, 1.0, signed)
        real = op.Div(op.Sub(beta, alpha.real), divisor)
        factor = Complex(real, op.Neg(op.Div(alpha.imag, divisor)))
        scale = select_parts(op, idle, 1.0, subtract(op, alpha, beta))
        tails = select_parts(op, below, divide(op, x, scale), 0.0)
        vector = select_parts(op, here, 1.0, tails)
        projected = sum_axis(op, multiply(op, conjugate(op, vector), a), -2)
        weights = multiply(op, conjugate(op, factor), projected)
        weights = select_parts(op, op.Greater(columns, i), weights, 0.0)
        rest = subtract(op, a, multiply(op, vector, weights))
        kept = select_parts(op, here, beta, select_parts(op, below, tails, x))
        a = select_parts(op, op.Equal(columns, i), kept, rest)
        factors = select_parts(op, op.Equal(places, i), factor, factors)
        return [a.real, a.imag, factors.real, factors.imag]

    parts = op.loop(steps, [matrix.real, matrix.imag, none, none], reflect_column)
    return Complex(*parts[:2]), Complex(*parts[2:])


def _apply_householder(
    op: Builder, reflectors: Complex, factors: Complex, matrix: Complex, *, adjoint: bool
) -> Complex:
    """``H1 H2 ... matrix``, or ``... H2^H H1^H matrix`` if adjoint: one reflector per step.

    The reflectors' vectors are in columns, below the diagonal, and their factors in one column.
    """
    rows, columns = op.size(reflectors.real, -2), op.size(reflectors.real, -1)
    below = map_parts(lambda part: op.Trilu(part, -1, upper=0), reflectors)
    vectors = select_parts(op, on_diagonal(op, rows, columns), 1.0, below)
    steps = op.size(factors.real, -2)
    factors = conjugate(op, factors) if adjoint else factors

    def apply_reflector(i: Value, real: Value, imag: Value) -> list[Value]:
        x = Complex(real, imag)
        at = op.Unsqueeze(i if adjoint else op.Sub(op.Sub(steps, 1), i), [0])
        vector = column_of(op, vectors, at)
        projected = sum_axis(op, multiply(op, conjugate(op, vector), x), -2)
        weights = multiply(op, row_of(op, factors, at), projected)
        x = subtract(op, x, multiply(op, vector, weights))
        return [x.real, x.imag]

    start = map_parts(lambda part, other: as_batch(op, part, other), matrix, reflectors)
    return Complex(*op.loop(steps, [start.real, start.imag], apply_reflector))


def _leading_identity(op: Builder, rows: Size, columns: Size, like: Complex) -> Complex:
    ones = op.cast(on_diagonal(op, rows, columns), like.real.dtype)
    return Complex(ones, zeros_like(op, ones))


def orthogonal_and_triangle(
    op: Builder, matrix: Complex, complete: bool
) -> tuple[Complex, Complex]:
    """Q and R; Q is square if complete, else it has as many columns as the shorter side.

    Q is unitary, ``[..., m, m]`` or ``[..., m, k]``; the diagonal of R is real.
    """
    rows, columns = op.size(matrix.real, -2), op.size(matrix.real, -1)
    steps = shorter_side(op, rows, columns)
    reflected, factors = _reduce_by_householder(op, matrix, steps)
    width = rows if complete else steps
    ones = _leading_identity(op, rows, width, matrix)
    orthogonal = _apply_householder(op, reflected, factors, ones, adjoint=False)
    triangle = map_parts(lambda part: op.Trilu(part, upper=1), reflected)
    if not complete and width is not rows and width != rows:
        axis = op.rank(matrix.real) - 2
        triangle = map_parts(lambda part: slice_axis(op, part, axis, 0, width), triangle)
    return orthogonal, triangle


@register_complex(aten.linalg_qr.default)
def complex_linalg_qr(op: Builder, A: Complex, mode: str = "reduced") -> tuple[Complex, Complex]:
    """Q is empty in mode ``r``."""
    orthogonal, triangle = orthogonal_and_triangle(op, A, mode == "complete")
    none = from_real(op, op.constant([], A.real.dtype), op.result[0].dtype)
    return none if mode == "r" else orthogonal, triangle


@register_complex(aten.geqrf.default)
def complex_geqrf(op: Builder, self: Complex) -> tuple[Complex, Complex]:
    """LAPACK's geqrf: reflectors below R, and their factors."""
    steps = shorter_side(op, op.size(self.real, -2), op.size(self.real, -1))
    reflected, factors = _reduce_by_householder(op, self, steps)
    return reflected, map_parts(lambda part: op.Squeeze(part, [-1]), factors)


def _multiply_reflectors(op: Builder, reflectors: Complex, factors: Complex) -> Complex:
    """The first columns of ``H1 H2 ...``."""
    rows, columns = op.size(reflectors.real, -2), op.size(reflectors.real, -1)
    ones = _leading_identity(op, rows, columns, reflectors)
    factors = map_parts(lambda part: op.Unsqueeze(part, [-1]), factors)
    return _apply_householder(op, reflectors, factors, ones, adjoint=False)


@register_complex(aten.linalg_householder_product.default)
def complex_linalg_householder_product(op: Builder, input: Complex, tau: Complex) -> Complex:
    return _multiply_reflectors(op, input, tau)


@register_complex(aten.orgqr.default)
def complex_orgqr(op: Builder, self: Complex, input2: Complex) -> Complex:
    return _multiply_reflectors(op, self, input2)


@register_complex(aten.ormqr.default)
def complex_ormqr(
    op: Builder,
    self: Complex,
    input2: Complex,
    input3: Complex,
    left: bool = True,
    transpose: bool = False,
) -> Complex:
    """``Q C`` or ``Q^H C``; from the right, the adjoint of the other one times ``C^H``."""
    matrix = input3 if left else conjugate_transpose(op, input3)
    factors = map_parts(lambda part: op.Unsqueeze(part, [-1]), input2)
    product = _apply_householder(op, self, factors, matrix, adjoint=transpose == left)
    return product if left else conjugate_transpose(op, product)
