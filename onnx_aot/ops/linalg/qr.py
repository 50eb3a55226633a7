"""QR decompositions and products of Householder reflectors."""

# ruff: noqa: N803 (arguments are named as in the schema)

from __future__ import annotations

import onnx_ir as ir

from onnx_aot.builder.builder import Builder, Size
from onnx_aot.ops.core.indexing import range_of_length
from onnx_aot.ops.core.movement import annotate_shape, slice_axis
from onnx_aot.ops.linalg.matrices import (
    as_batch,
    column,
    on_diagonal,
    row,
    row_numbers,
    shorter_side,
    transpose_matrix,
)
from onnx_aot.ops.registry import register
from onnx_aot.torch_compat import aten

__all__ = ["orthogonal_and_triangle"]

Value = ir.Value


def _reduce_by_householder(op: Builder, matrix: Value, steps: Size) -> tuple[Value, Value]:
    """R with the reflectors' vectors, less their leading ones, below it; their factors as a column.

    Householder's method, one column per step, with the signs of LAPACK's larfg: ``beta`` has the
    opposite sign of alpha, and a column that is zero below the diagonal is left alone.
    """
    rows = row_numbers(op, op.size(matrix, -2))
    columns = range_of_length(op, 0, op.size(matrix, -1))
    places = row_numbers(op, steps)
    batch = op.Concat(op.Shape(matrix, start=0, end=-2), op.sizes([steps, 1]), axis=0)
    none = op.Expand(op.constant(0.0, matrix.dtype), batch)
    none = annotate_shape(none, [*list(matrix.shape or ())[:-2], None, 1])

    def reflect_column(i: Value, a: Value, factors: Value) -> tuple[Value, Value]:
        at = op.Unsqueeze(i, [0])
        x = column(op, a, at)
        alpha = row(op, x, at)
        below = op.Greater(rows, i)
        tail = op.reduce("ReduceL2", op.Where(below, x, 0.0), [-2], keepdims=True)
        length = op.reduce("ReduceL2", op.Concat(alpha, tail, axis=-2), [-2], keepdims=True)
        idle = op.Equal(tail, 0.0)
        signed = op.Where(op.Less(alpha, 0.0), length, op.Neg(length))
        beta = op.Where(idle, alpha, signed)
        factor = op.Where(idle, 0.0, op.Div(op.Sub(beta, alpha), signed))
        scale = op.Where(idle, 1.0, op.Sub(alpha, beta))
        here = op.Equal(rows, i)
        tails = op.Where(below, op.Div(x, scale), 0.0)
        vector = op.Where(here, 1.0, tails)
        weights = op.Mul(factor, op.reduce("ReduceSum", op.Mul(vector, a), [-2], keepdims=True))
        rest = op.Sub(a, op.Mul(vector, op.Where(op.Greater(columns, i), weights, 0.0)))
        kept = op.Where(here, beta, op.Where(below, tails, x))
        return (
            op.Where(op.Equal(columns, i), kept, rest),
            op.Where(op.Equal(places, i), factor, factors),
        )

    reflected, factors = op.loop(steps, [matrix, none], reflect_column)
    return reflected, factors


def _apply_householder(
    op: Builder, reflectors: Value, factors: Value, matrix: Value, *, forwards: bool
) -> Value:
    """``H1 H2 ... matrix``, or ``... H2 H1 matrix`` with ``forwards``: one reflector per step.

    The reflectors' vectors are in columns, below the diagonal, and their factors in one column.
    """
    rows, columns = op.size(reflectors, -2), op.size(reflectors, -1)
    ones = on_diagonal(op, rows, columns)
    vectors = op.Where(ones, 1.0, op.Trilu(reflectors, -1, upper=0))
    steps = op.size(factors, -2)

    def apply_reflector(i: Value, x: Value) -> tuple[Value]:
        at = op.Unsqueeze(i if forwards else op.Sub(op.Sub(steps, 1), i), [0])
        vector = column(op, vectors, at)
        weights = op.reduce("ReduceSum", op.Mul(vector, x), [-2], keepdims=True)
        return (op.Sub(x, op.Mul(vector, op.Mul(row(op, factors, at), weights))),)

    return op.loop(steps, [as_batch(op, matrix, reflectors)], apply_reflector)[0]


def _leading_identity(op: Builder, rows: Size, columns: Size, dtype: ir.DataType | None) -> Value:
    return op.cast(on_diagonal(op, rows, columns), dtype)


def orthogonal_and_triangle(op: Builder, matrix: Value, complete: bool) -> tuple[Value, Value]:
    """Q and R; Q is square if complete, else it has as many columns as the shorter side."""
    rows, columns = op.size(matrix, -2), op.size(matrix, -1)
    steps = shorter_side(op, rows, columns)
    reflected, factors = _reduce_by_householder(op, matrix, steps)
    width = rows if complete else steps
    ones = _leading_identity(op, rows, width, matrix.dtype)
    orthogonal = _apply_householder(op, reflected, factors, ones, forwards=False)
    triangle = op.Trilu(reflected, upper=1)
    if not complete and width is not rows and width != rows:
        triangle = slice_axis(op, triangle, op.rank(triangle) - 2, 0, width)
    return orthogonal, triangle


@register(aten.linalg_qr.default)
def aten_linalg_qr(op: Builder, A: Value, mode: str = "reduced") -> tuple[Value, Value]:
    """Q is empty in mode ``r``."""
    orthogonal, triangle = orthogonal_and_triangle(op, A, mode == "complete")
    return op.constant([], A.dtype) if mode == "r" else orthogonal, triangle


@register(aten.geqrf.default)
def aten_geqrf(op: Builder, self: Value) -> tuple[Value, Value]:
    steps = shorter_side(op, op.size(self, -2), op.size(self, -1))
    reflected, factors = _reduce_by_householder(op, self, steps)
    return reflected, op.Squeeze(factors, [-1])


def _multiply_reflectors(op: Builder, reflectors: Value, factors: Value) -> Value:
    """The first columns of ``H1 H2 ...``."""
    rows, columns = op.size(reflectors, -2), op.size(reflectors, -1)
    ones = _leading_identity(op, rows, columns, reflectors.dtype)
    return _apply_householder(op, reflectors, op.Unsqueeze(factors, [-1]), ones, forwards=False)


@register(aten.linalg_householder_product.default)
def aten_linalg_householder_product(op: Builder, input: Value, tau: Value) -> Value:
    return _multiply_reflectors(op, input, tau)


@register(aten.orgqr.default)
def aten_orgqr(op: Builder, self: Value, input2: Value) -> Value:
    return _multiply_reflectors(op, self, input2)


@register(aten.ormqr.default)
def aten_ormqr(
    op: Builder,
    self: Value,
    input2: Value,
    input3: Value,
    left: bool = True,
    transpose: bool = False,
) -> Value:
    """``Q C`` or ``Q^T C``; from the right, the transpose of the other one times ``C^T``."""
    matrix = input3 if left else transpose_matrix(op, input3)
    factors = op.Unsqueeze(input2, [-1])
    product = _apply_householder(op, self, factors, matrix, forwards=transpose == left)
    return product if left else transpose_matrix(op, product)
