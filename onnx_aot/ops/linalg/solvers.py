"""Determinants, inverses, linear systems and the LU decomposition behind them."""

# ruff: noqa: N803 (arguments are named as in the schema)

from __future__ import annotations

from typing import Any

import onnx_ir as ir
import torch

from onnx_aot.builder.builder import Builder, Size
from onnx_aot.dtypes import INT64_MAX
from onnx_aot.ops.core.indexing import range_of_length
from onnx_aot.ops.core.movement import annotate_shape, slice_axis
from onnx_aot.ops.linalg.matrices import (
    as_batch,
    column,
    diagonal,
    first_failure,
    identity,
    row,
    row_numbers,
    shorter_side,
    transpose_matrix,
)
from onnx_aot.ops.registry import LIMITS, register
from onnx_aot.torch_compat import aten

__all__ = ["substitute_triangle"]

Value = ir.Value
INT64 = ir.DataType.INT64
INT32 = ir.DataType.INT32

# --- elimination ---------------------------------------------------------------------------------


def _eliminate_columns(
    op: Builder, matrix: Value, steps: Size, pivot: bool = True
) -> tuple[Value, Value]:
    """Gaussian elimination with partial pivoting, one column per step (Golub, Van Loan, 3.4.1).

    Returns:
        U, with the multipliers of L below its diagonal; and for each row, as a column, the row that
        it was exchanged with. Columns after the last step are eliminated too: ``[A B]`` becomes
        ``[LU, L^-1 P B]``.
    """
    rows = row_numbers(op, op.size(matrix, -2))
    columns = range_of_length(op, 0, op.size(matrix, -1))
    start = op.Expand(rows, op.Concat(op.Shape(matrix, start=0, end=-1), [1], axis=0))
    start.shape = ir.Shape([*list(matrix.shape or ())[:-1], 1])

    def eliminate_column(i: Value, a: Value, exchanges: Value) -> tuple[Value, Value]:
        at = op.Unsqueeze(i, [0])
        if pivot:
            heights = op.Where(op.Less(rows, i), -1.0, op.Abs(column(op, a, at)))
            highest = op.ArgMax(heights, axis=op.rank(a) - 2)
            exchange = op.Where(op.Equal(rows, highest), i, rows)
            exchange = op.Where(op.Equal(rows, i), highest, exchange)
            a = op.GatherElements(a, op.Expand(exchange, op.Shape(a)), axis=op.rank(a) - 2)
            a.shape = matrix.shape
            exchanges = op.Where(op.Equal(rows, i), highest, exchanges)
        below = op.Greater(rows, i)
        pivot_row = row(op, a, at)
        pivots = column(op, pivot_row, at)
        divisors = op.Where(op.Equal(pivots, 0.0), 1.0, pivots)  # only zeros are below a zero
        multipliers = op.Where(below, op.Div(column(op, a, at), divisors), 0.0)
        right = op.Where(op.Greater(columns, i), pivot_row, 0.0)
        rest = op.Sub(a, op.Mul(multipliers, right))
        kept = op.And(below, op.Equal(columns, i))
        return op.Where(kept, multipliers, rest), exchanges

    lu, exchanges = op.loop(steps, [matrix, start], eliminate_column)
    return lu, exchanges


def _factorize_lu(op: Builder, matrix: Value, pivot: bool = True) -> tuple[Value, Value, Value]:
    """LU, pivots counted from 1 as in LAPACK, and ``info``."""
    rows, columns = op.size(matrix, -2), op.size(matrix, -1)
    steps = shorter_side(op, rows, columns)
    lu, exchanges = _eliminate_columns(op, matrix, steps, pivot)
    pivots = op.Squeeze(exchanges, [-1])
    diagonals = diagonal(op, lu)
    if steps is not rows and not (isinstance(rows, int) and rows == steps):
        pivots = slice_axis(op, pivots, op.rank(pivots) - 1, 0, steps)
        diagonals = slice_axis(op, diagonals, op.rank(diagonals) - 1, 0, steps)
    info = first_failure(op, op.Equal(diagonals, 0.0))
    return lu, op.cast(op.Add(pivots, 1), INT32), info


def substitute_triangle(
    op: Builder, triangle: Value, right: Value, *, upper: bool, unit: bool = False
) -> Value:
    """Solves ``triangle x = right``, one row per step (Golub and Van Loan, 3.1.3).

    Rows are divided by their diagonal elements first. Only the triangle's own half is read.
    """
    strict = op.Trilu(triangle, 1 if upper else -1, upper=int(upper))
    if unit:
        known = as_batch(op, right, triangle)
    else:
        pivots = diagonal(op, triangle, keepdims=True)
        strict, known = op.Div(strict, pivots), op.Div(right, pivots)
    size = op.size(triangle, -1)

    def substitute_row(i: Value, x: Value) -> tuple[Value]:
        at = op.Unsqueeze(op.Sub(op.Sub(size, 1), i) if upper else i, [0])
        return (op.Sub(x, op.Mul(column(op, strict, at), row(op, x, at))),)

    return op.loop(size, [known], substitute_row)[0]


def _solve_matrix(op: Builder, matrix: Value, right: Value) -> tuple[Value, Value]:
    """Solution of ``matrix x = right`` and ``info``.

    The matrix is eliminated together with the right side, or before it if one matrix has several
    right sides.
    """
    if as_batch(op, matrix, right) is not matrix:
        lu, pivots, info = _factorize_lu(op, matrix)
        return _solve_with_lu(op, lu, pivots, right, True, False), info
    size = op.size(matrix, -1)
    both, _ = _eliminate_columns(op, op.Concat(matrix, as_batch(op, right, matrix), axis=-1), size)
    last = op.rank(both) - 1
    factors = slice_axis(op, both, last, 0, size)
    solution = substitute_triangle(
        op, factors, slice_axis(op, both, last, size, INT64_MAX), upper=True
    )
    return solution, first_failure(op, op.Equal(diagonal(op, factors), 0.0))


# --- determinants --------------------------------------------------------------------------------


def _sign_and_diagonal(op: Builder, matrix: Value) -> tuple[Value, Value]:
    """Sign of the permutation of the LU decomposition, and the diagonal of U."""
    size = op.size(matrix, -1)
    lu, exchanges = _eliminate_columns(op, matrix, size)
    exchanged = op.Not(op.Equal(op.Squeeze(exchanges, [-1]), range_of_length(op, 0, size)))
    count = op.reduce("ReduceSum", op.cast(exchanged, INT64), [-1], keepdims=False)
    odd = op.Equal(op.Mod(count, 2), 1)
    return op.Where(odd, op.cast(-1.0, matrix.dtype), 1.0), diagonal(op, lu)


def _compute_determinant(op: Builder, matrix: Value) -> Value:
    """Det for FLOAT; it is not precise enough for DOUBLE, for which ONNX Runtime lacks it."""
    if matrix.dtype == ir.DataType.FLOAT:
        return op.Det(matrix)
    sign, pivots = _sign_and_diagonal(op, matrix)
    return op.Mul(sign, op.reduce("ReduceProd", pivots, [-1], keepdims=False))


@register(aten.linalg_det.default)
def aten_linalg_det(op: Builder, A: Value) -> Value:
    return _compute_determinant(op, A)


@register(aten.det.default)
def aten_det(op: Builder, self: Value) -> Value:
    return _compute_determinant(op, self)


@register(aten._linalg_det.default)
def aten__linalg_det(op: Builder, A: Value) -> tuple[Any, ...]:
    """Omits the factors, which are those of A or of its transpose, depending on memory layout."""
    return _compute_determinant(op, A), None, None


def _sign_and_logarithm(op: Builder, matrix: Value) -> tuple[Value, Value]:
    sign, pivots = _sign_and_diagonal(op, matrix)
    signs = op.reduce("ReduceProd", op.Sign(pivots), [-1], keepdims=False)
    logarithm = op.reduce("ReduceSum", op.Log(op.Abs(pivots)), [-1], keepdims=False)
    return op.Mul(sign, signs), logarithm


@register(aten.linalg_slogdet.default)
def aten_linalg_slogdet(op: Builder, A: Value) -> tuple[Value, Value]:
    return _sign_and_logarithm(op, A)


@register(aten.slogdet.default)
def aten_slogdet(op: Builder, self: Value) -> tuple[Value, Value]:
    return _sign_and_logarithm(op, self)


@register(aten._linalg_slogdet.default)
def aten__linalg_slogdet(op: Builder, A: Value) -> tuple[Any, ...]:
    """Omits the factors, as ``_linalg_det`` does."""
    return (*_sign_and_logarithm(op, A), None, None)


@register(aten.logdet.default)
def aten_logdet(op: Builder, self: Value) -> Value:
    """NaN where the determinant is negative."""
    sign, logarithm = _sign_and_logarithm(op, self)
    return op.Where(op.Less(sign, 0.0), float("nan"), logarithm)


# --- inverses and linear systems -----------------------------------------------------------------

_SINGULAR = "a singular matrix gives infinities or NaNs, where torch raises an error"

for _target in (aten.inverse.default, aten.linalg_inv.default, aten.linalg_solve.default):
    LIMITS[_target] = _SINGULAR


@register(aten._linalg_check_errors.default)
def aten__linalg_check_errors(op: Builder, info: Value, api_name: str, is_matrix: bool) -> None:
    """Emits nothing: torch raises an error here, which ONNX cannot do."""


def _invert_matrix(op: Builder, matrix: Value) -> tuple[Value, Value]:
    ones = identity(op, op.size(matrix, -1), matrix.dtype)
    return _solve_matrix(op, matrix, ones)


@register(aten.linalg_inv.default)
def aten_linalg_inv(op: Builder, A: Value) -> Value:
    return _invert_matrix(op, A)[0]


@register(aten.inverse.default)
def aten_inverse(op: Builder, self: Value) -> Value:
    return _invert_matrix(op, self)[0]


@register(aten.linalg_inv_ex.default)
def aten_linalg_inv_ex(op: Builder, A: Value, check_errors: bool = False) -> tuple[Value, Value]:
    return _invert_matrix(op, A)


def _solve_system(
    op: Builder, matrix: Value, right: Value, left: bool, rank: int
) -> tuple[Value, Value]:
    """``matrix x = right`` or, without ``left``, ``x matrix = right``; vectors as columns.

    The rank of the result distinguishes vectors from matrices.
    """
    vector = rank < op.rank(matrix)
    if vector:
        right = op.Unsqueeze(right, [-1])
    elif not left:
        right = transpose_matrix(op, right)
    solution, info = _solve_matrix(op, matrix if left else transpose_matrix(op, matrix), right)
    if vector:
        return op.Squeeze(solution, [-1]), info
    return solution if left else transpose_matrix(op, solution), info


@register(aten.linalg_solve.default)
def aten_linalg_solve(op: Builder, A: Value, B: Value, left: bool = True) -> Value:
    return _solve_system(op, A, B, left, op.result.ndim)[0]


@register(aten.linalg_solve_ex.default)
def aten_linalg_solve_ex(
    op: Builder, A: Value, B: Value, left: bool = True, check_errors: bool = False
) -> tuple[Value, Value]:
    return _solve_system(op, A, B, left, op.result[0].ndim)


@register(aten._linalg_solve_ex.default)
def aten__linalg_solve_ex(
    op: Builder, A: Value, B: Value, left: bool = True, check_errors: bool = False
) -> tuple[Any, ...]:
    """Omits the factors, as ``_linalg_det`` does."""
    solution, info = _solve_system(op, A, B, left, op.result[0].ndim)
    return solution, None, None, info


# --- LU decompositions ---------------------------------------------------------------------------


def _order(op: Builder, pivots: Value, size: Size) -> Value:
    """Row at each place after all exchanges, made one after the other."""
    exchanges = op.Sub(op.cast(pivots, INT64), 1)
    places = range_of_length(op, 0, size)
    batch = op.Shape(pivots, start=0, end=-1)
    start = op.Expand(places, op.Concat(batch, op.sizes([size]), axis=0))

    def exchange_pivot(i: Value, order: Value) -> tuple[Value]:
        other = op.Gather(exchanges, op.Unsqueeze(i, [0]), axis=op.rank(exchanges) - 1)
        exchange = op.Where(op.Equal(places, other), i, places)
        exchange = op.Where(op.Equal(places, i), other, exchange)
        return (op.GatherElements(order, exchange, axis=-1),)

    return op.loop(op.size(pivots, -1), [start], exchange_pivot)[0]


def _permutation_matrix(op: Builder, pivots: Value, size: Size, dtype: ir.DataType | None) -> Value:
    """P of ``A = P L U``."""
    order = op.Unsqueeze(_order(op, pivots, size), [-2])
    return op.cast(op.Equal(row_numbers(op, size), order), dtype)


def _split_triangles(op: Builder, lu: Value) -> tuple[Value, Value]:
    """L with ones on its diagonal, and U, from the matrix that holds both."""
    rows, columns = op.size(lu, -2), op.size(lu, -1)
    steps = shorter_side(op, rows, columns)
    rank = op.rank(lu)
    left = slice_axis(op, lu, rank - 1, 0, steps)
    upper = slice_axis(op, lu, rank - 2, 0, steps)
    ones = op.Equal(row_numbers(op, rows), range_of_length(op, 0, steps))
    return op.Where(ones, 1.0, op.Trilu(left, -1, upper=0)), op.Trilu(upper, upper=1)


@register(aten.linalg_lu_factor_ex.default)
def aten_linalg_lu_factor_ex(
    op: Builder, A: Value, pivot: bool = True, check_errors: bool = False
) -> tuple[Value, Value, Value]:
    return _factorize_lu(op, A, pivot)


@register(aten.linalg_lu_factor.default)
def aten_linalg_lu_factor(op: Builder, A: Value, pivot: bool = True) -> tuple[Value, Value]:
    return _factorize_lu(op, A, pivot)[:2]


@register(aten._lu_with_info.default)
def aten__lu_with_info(
    op: Builder, self: Value, pivot: bool = True, check_errors: bool = True
) -> tuple[Value, Value, Value]:
    return _factorize_lu(op, self, pivot)


@register(aten.linalg_lu.default)
def aten_linalg_lu(op: Builder, A: Value, pivot: bool = True) -> tuple[Value, Value, Value]:
    """P is empty without pivoting."""
    lu, pivots, _ = _factorize_lu(op, A, pivot)
    if not pivot:
        return (op.constant([], A.dtype), *_split_triangles(op, lu))
    return (_permutation_matrix(op, pivots, op.size(A, -2), A.dtype), *_split_triangles(op, lu))


@register(aten.lu_unpack.default)
def aten_lu_unpack(
    op: Builder,
    LU_data: Value,
    LU_pivots: Value,
    unpack_data: bool = True,
    unpack_pivots: bool = True,
) -> tuple[Value, ...]:
    """Results that are not requested are empty."""
    dtype = LU_data.dtype
    none = op.constant([], dtype)
    permutation = none
    if unpack_pivots:
        permutation = _permutation_matrix(op, LU_pivots, op.size(LU_data, -2), dtype)
    return (permutation, *(_split_triangles(op, LU_data) if unpack_data else (none, none)))


def _solve_with_lu(
    op: Builder, lu: Value, pivots: Value, right: Value, left: bool, adjoint: bool
) -> Value:
    """Solves ``A x = right`` for ``A = P L U``; adjoint: with ``A^T``; not left: ``x A = right``.

    Rows are moved rather than multiplied by P: ONNX Runtime does not broadcast empty products.
    """
    if not left:
        solution = _solve_with_lu(op, lu, pivots, transpose_matrix(op, right), True, not adjoint)
        return transpose_matrix(op, solution)
    right = as_batch(op, right, lu)
    order = op.Unsqueeze(_order(op, pivots, op.size(lu, -1)), [-1])
    # indices plus zeros, because ONNX Runtime's Expand leaves empty indices as they are
    nothing = op.ConstantOfShape(op.Shape(right), value=torch.zeros(1, dtype=torch.int64))
    order = op.Add(order, annotate_shape(nothing, right.shape or ()))
    axis = op.rank(right) - 2
    if not adjoint:
        right = annotate_shape(op.GatherElements(right, order, axis=axis), right.shape or ())
        right = substitute_triangle(op, lu, right, upper=False, unit=True)
        return substitute_triangle(op, lu, right, upper=True)
    turned = transpose_matrix(op, lu)
    right = substitute_triangle(op, turned, right, upper=False)
    right = substitute_triangle(op, turned, right, upper=True, unit=True)
    return op.ScatterElements(right, order, right, axis=axis)


@register(aten.linalg_lu_solve.default)
def aten_linalg_lu_solve(
    op: Builder, LU: Value, pivots: Value, B: Value, left: bool = True, adjoint: bool = False
) -> Value:
    return _solve_with_lu(op, LU, pivots, B, left, adjoint)


@register(aten.lu_solve.default)
def aten_lu_solve(op: Builder, self: Value, LU_data: Value, LU_pivots: Value) -> Value:
    return _solve_with_lu(op, LU_data, LU_pivots, self, True, False)


# --- triangular systems --------------------------------------------------------------------------


@register(aten.linalg_solve_triangular.default)
def aten_linalg_solve_triangular(
    op: Builder, self: Value, B: Value, upper: bool, left: bool = True, unitriangular: bool = False
) -> Value:
    if left:
        return substitute_triangle(op, self, B, upper=upper, unit=unitriangular)
    turned = transpose_matrix(op, self)
    solution = substitute_triangle(
        op, turned, transpose_matrix(op, B), upper=not upper, unit=unitriangular
    )
    return transpose_matrix(op, solution)


@register(aten.triangular_solve.default)
def aten_triangular_solve(
    op: Builder,
    self: Value,
    A: Value,
    upper: bool = True,
    transpose: bool = False,
    unitriangular: bool = False,
) -> tuple[Value, Value]:
    """The second result is the matrix, repeated for each system."""
    triangle = transpose_matrix(op, A) if transpose else A
    solution = substitute_triangle(op, triangle, self, upper=upper != transpose, unit=unitriangular)
    return solution, as_batch(op, A, self)


# --- Cholesky decompositions ---------------------------------------------------------------------


def _factorize_cholesky(op: Builder, matrix: Value, upper: bool) -> tuple[Value, Value]:
    """The factor and ``info``; subtracts an outer product per column (Golub, Van Loan 4.2).

    Only one triangle is read, as in torch: the lower one, or the transpose of the upper one.
    """
    size = op.size(matrix, -1)
    rows, columns = row_numbers(op, size), range_of_length(op, 0, size)

    def factorize_column(i: Value, a: Value) -> tuple[Value]:
        at = op.Unsqueeze(i, [0])
        whole = column(op, a, at)
        factor = op.Div(whole, op.Sqrt(row(op, whole, at)))
        factor = op.Where(op.Less(rows, i), 0.0, factor)
        rest = op.Sub(a, op.Mul(factor, transpose_matrix(op, factor)))
        return (op.Where(op.Equal(columns, i), factor, rest),)

    factor = op.loop(size, [transpose_matrix(op, matrix) if upper else matrix], factorize_column)[0]
    info = first_failure(op, op.Not(op.Greater(diagonal(op, factor), 0.0)))
    return transpose_matrix(op, factor) if upper else factor, info


@register(aten.linalg_cholesky_ex.default)
def aten_linalg_cholesky_ex(
    op: Builder, self: Value, upper: bool = False, check_errors: bool = False
) -> tuple[Value, Value]:
    return _factorize_cholesky(op, self, upper)


@register(aten.cholesky.default, aten.linalg_cholesky.default)
def aten_cholesky(op: Builder, self: Value, upper: bool = False) -> Value:
    return _factorize_cholesky(op, self, upper)[0]


for _target in (aten.cholesky.default, aten.linalg_cholesky.default):
    LIMITS[_target] = (
        "a matrix that is not positive definite gives NaNs, where torch raises an error"
    )
LIMITS[aten.linalg_cholesky_ex.default] = (
    "the factor of a matrix that is not positive definite has NaNs from the column that info names"
)


def _solve_with_cholesky(op: Builder, factor: Value, right: Value, upper: bool) -> Value:
    """Solves ``L L^T x = right``, with ``L`` given as its transpose if ``upper``."""
    lower, turned = (
        (transpose_matrix(op, factor), factor) if upper else (factor, transpose_matrix(op, factor))
    )
    return substitute_triangle(
        op, turned, substitute_triangle(op, lower, right, upper=False), upper=True
    )


@register(aten.cholesky_solve.default)
def aten_cholesky_solve(op: Builder, self: Value, input2: Value, upper: bool = False) -> Value:
    return _solve_with_cholesky(op, input2, self, upper)


@register(aten.cholesky_inverse.default)
def aten_cholesky_inverse(op: Builder, self: Value, upper: bool = False) -> Value:
    ones = identity(op, op.size(self, -1), self.dtype)
    return _solve_with_cholesky(op, self, ones, upper)
