"""Linear algebra over complex matrices, in two ways; rotations and reflections have other files.

Complex matrices ``A + Bi`` and real ones ``[[A, -B], [B, A]]`` add and multiply alike. Sums,
products and limits of them (inverses, solutions, exponentials, pseudoinverses) are therefore
computed by the real translation on the real matrix, which has every singular value and every
eigenvalue twice. Elimination depends on the order of elements and works on pairs.
"""

# ruff: noqa: N803 (arguments are named as in the schema)

from __future__ import annotations

import math
from typing import Any

import onnx_ir as ir
import torch

from onnx_aot.builder.builder import Builder, Size
from onnx_aot.dtypes import INT64_MAX
from onnx_aot.ops.complex.arithmetic import divide, multiply, subtract
from onnx_aot.ops.complex.elementary import logarithm
from onnx_aot.ops.complex.matrices import (
    build_hermitian,
    conjugate_transpose,
    matmul,
    select_parts,
)
from onnx_aot.ops.complex.pairs import (
    Complex,
    from_real,
    make_recorded_part,
    real_function,
    register_complex,
)
from onnx_aot.ops.core.indexing import range_of_length
from onnx_aot.ops.core.movement import slice_axis
from onnx_aot.ops.linalg.matrices import (
    diagonal,
    first_failure,
    on_diagonal,
    row_numbers,
    shorter_side,
    transpose_matrix,
)
from onnx_aot.torch_compat import aten

__all__ = ["invert"]

Value = ir.Value
INT32, INT64 = ir.DataType.INT32, ir.DataType.INT64


# --- by the real matrix --------------------------------------------------------------------------


def _as_real(op: Builder, value: Any) -> Value:
    """``[[A, -B], [B, A]]``, with B = 0 for a real matrix."""
    value = _ensure_complex(op, value)
    upper = op.Concat(value.real, op.Neg(value.imag), axis=-1)
    return op.Concat(upper, op.Concat(value.imag, value.real, axis=-1), axis=-2)


def _as_complex(op: Builder, value: Value) -> Complex:
    """Reads the complex matrix from the first column of blocks."""
    rank = op.rank(value)
    columns = _halve_size(op, op.size(value, -1))
    left = slice_axis(op, value, rank - 1, 0, columns)
    rows = _halve_size(op, op.size(value, -2))
    return Complex(
        slice_axis(op, left, rank - 2, 0, rows), slice_axis(op, left, rank - 2, rows, INT64_MAX)
    )


def _halve_size(op: Builder, size: Size) -> Size:
    if isinstance(size, int):
        return size // 2
    half: Value = op.Div(size, 2)
    return half


def _ensure_complex(op: Builder, value: Any) -> Complex:
    results = op.result if isinstance(op.result, (list, tuple)) else [op.result]
    if isinstance(value, Complex):
        return value
    return from_real(op, value, next(r.dtype for r in results if r.dtype.is_complex))


def _call_real(op: Builder, target: Any, *arguments: Any) -> Any:
    """Calls the real translation, which may read the type and rank of its result."""
    recorded = op.result
    op.result = make_recorded_part(recorded)
    try:
        return real_function(target)(op, *arguments)
    finally:
        op.result = recorded


def invert(op: Builder, matrix: Complex) -> Complex:
    """Inverse; infinities or NaNs if there is none."""
    return _as_complex(op, _call_real(op, aten.linalg_inv.default, _as_real(op, matrix)))


@register_complex(aten.linalg_inv.default)
def complex_linalg_inv(op: Builder, A: Complex) -> Complex:
    return invert(op, A)


@register_complex(aten.inverse.default)
def complex_inverse(op: Builder, self: Complex) -> Complex:
    return invert(op, self)


@register_complex(aten.linalg_inv_ex.default)
def complex_linalg_inv_ex(op: Builder, A: Complex, check_errors: bool = False) -> tuple[Any, Value]:
    inverse, info = _call_real(op, aten.linalg_inv_ex.default, _as_real(op, A))
    return _as_complex(op, inverse), info


@register_complex(aten.linalg_matrix_exp.default, aten.matrix_exp.default)
def complex_matrix_exp(op: Builder, self: Complex) -> Complex:
    return _as_complex(op, _call_real(op, aten.linalg_matrix_exp.default, _as_real(op, self)))


def _solve_system(op: Builder, A: Any, B: Any, left: bool, rank: int) -> tuple[Complex, Value]:
    matrix, right = _as_real(op, A), _ensure_complex(op, B)
    vector = rank < op.rank(matrix)
    if vector:
        right = Complex(op.Unsqueeze(right.real, [-1]), op.Unsqueeze(right.imag, [-1]))
        left = True
    solved = real_function(aten.linalg_solve_ex.default)
    recorded = op.result
    op.result = [torch.empty((1,) * op.rank(matrix), device="meta")]
    try:
        solution, info = solved(op, matrix, _as_real(op, right), left)
    finally:
        op.result = recorded
    answer = _as_complex(op, solution)
    if vector:
        answer = Complex(op.Squeeze(answer.real, [-1]), op.Squeeze(answer.imag, [-1]))
    return answer, info


@register_complex(aten.linalg_solve.default)
def complex_linalg_solve(op: Builder, A: Any, B: Any, left: bool = True) -> Complex:
    return _solve_system(op, A, B, left, op.result.ndim)[0]


@register_complex(aten.linalg_solve_ex.default)
def complex_linalg_solve_ex(
    op: Builder, A: Any, B: Any, left: bool = True, check_errors: bool = False
) -> tuple[Complex, Value]:
    return _solve_system(op, A, B, left, op.result[0].ndim)


@register_complex(aten._linalg_solve_ex.default)
def complex__linalg_solve_ex(
    op: Builder, A: Any, B: Any, left: bool = True, check_errors: bool = False
) -> tuple[Any, ...]:
    """Omits the factors, which only gradients use."""
    solution, info = _solve_system(op, A, B, left, op.result[0].ndim)
    return solution, None, None, info


def _extract_triangle(op: Builder, value: Complex, upper: bool, unit: bool) -> Complex:
    """Triangle that is read, with ones on its diagonal if it is a unit triangle."""
    size = op.size(value.real, -1)
    real, imag = (op.Trilu(part, upper=int(upper)) for part in (value.real, value.imag))
    if not unit:
        return Complex(real, imag)
    ones = on_diagonal(op, size, size)
    return Complex(op.Where(ones, 1.0, real), op.Where(ones, 0.0, imag))


@register_complex(aten.linalg_solve_triangular.default)
def complex_linalg_solve_triangular(
    op: Builder, self: Any, B: Any, upper: bool, left: bool = True, unitriangular: bool = False
) -> Complex:
    triangle = _extract_triangle(op, _ensure_complex(op, self), upper, unitriangular)
    return _solve_system(op, triangle, B, left, op.result.ndim)[0]


@register_complex(aten.triangular_solve.default)
def complex_triangular_solve(
    op: Builder,
    self: Any,
    A: Any,
    upper: bool = True,
    transpose: bool = False,
    unitriangular: bool = False,
) -> tuple[Complex, Complex]:
    given = _ensure_complex(op, A)
    triangle = _extract_triangle(op, given, upper, unitriangular)
    if transpose:
        triangle = Complex(transpose_matrix(op, triangle.real), transpose_matrix(op, triangle.imag))
    return _solve_system(op, triangle, self, True, op.result[0].ndim)[0], given


def _take_every_second(op: Builder, doubled: Value) -> Value:
    """Every second one of values that come in pairs."""
    return slice_axis(op, doubled, op.rank(doubled) - 1, 0, INT64_MAX, 2)


@register_complex(aten.linalg_pinv.atol_rtol_tensor)
def complex_linalg_pinv(
    op: Builder, self: Complex, atol: Any = None, rtol: Any = None, hermitian: bool = False
) -> Complex:
    """Sets the default tolerance here, as the longer side of the real matrix is twice as long."""
    if rtol is None and atol is None:
        sides = op.Shape(self.real, start=op.rank(self.real) - 2)
        longer = op.cast(op.ReduceMax(sides, keepdims=0), ir.DataType.DOUBLE)
        precision = torch.finfo(op.result.dtype).eps
        rtol = op.Mul(longer, op.constant(precision, ir.DataType.DOUBLE))
    target = aten.linalg_pinv.atol_rtol_tensor
    if hermitian:
        self = build_hermitian(op, self, upper=False)
    return _as_complex(op, _call_real(op, target, _as_real(op, self), atol, rtol, hermitian))


@register_complex(aten.linalg_matrix_sqrth.default)
def complex_linalg_matrix_sqrth(op: Builder, self: Complex) -> Complex:
    hermitian = _as_real(op, build_hermitian(op, self, upper=False))
    return _as_complex(op, _call_real(op, aten.linalg_matrix_sqrth.default, hermitian))


@register_complex(aten.linalg_polar.default)
def complex_linalg_polar(op: Builder, A: Complex) -> tuple[Complex, Complex]:
    factors = _call_real(op, aten.linalg_polar.default, _as_real(op, A))
    return _as_complex(op, factors[0]), _as_complex(op, factors[1])


@register_complex(aten.linalg_lstsq.default)
def complex_linalg_lstsq(
    op: Builder, self: Complex, b: Complex, rcond: float | None = None, driver: str | None = None
) -> tuple[Complex, Value, Value, Value]:
    """Solves the real system for real parts above imaginary ones; it has twice the rank."""
    axis = op.rank(self.real) - 2
    stacked = op.Concat(b.real, b.imag, axis=axis)
    solution, residuals, rank, values = _call_real(
        op, aten.linalg_lstsq.default, _as_real(op, self), stacked, rcond, driver
    )
    half = _halve_size(op, op.size(solution, axis))
    answer = Complex(
        slice_axis(op, solution, axis, 0, half), slice_axis(op, solution, axis, half, INT64_MAX)
    )
    return answer, residuals, op.Div(rank, 2), _take_every_second(op, values)


# --- elimination ---------------------------------------------------------------------------------


def _eliminate_columns(
    op: Builder, matrix: Complex, steps: Size, pivot: bool = True
) -> tuple[Complex, Value]:
    """Gaussian elimination as for real matrices (Golub and Van Loan, 3.4.1).

    The height of a pivot is ``|re| + |im|``, as in LAPACK.

    Returns:
        U, with the multipliers of L below its diagonal; and for each row, as a column, the row that
        it was exchanged with.
    """
    rows = row_numbers(op, op.size(matrix.real, -2))
    columns = range_of_length(op, 0, op.size(matrix.real, -1))
    shape = op.Concat(op.Shape(matrix.real, start=0, end=-1), [1], axis=0)
    start = op.Expand(rows, shape)
    start.shape = ir.Shape([*list(matrix.shape or ())[:-1], 1])
    axis = op.rank(matrix.real) - 2

    def eliminate_column(
        i: Value, real: Value, imag: Value, exchanges: Value
    ) -> tuple[Value, Value, Value]:
        at = op.Unsqueeze(i, [0])
        if pivot:
            heights = op.Add(
                op.Abs(op.Gather(real, at, axis=axis + 1)),
                op.Abs(op.Gather(imag, at, axis=axis + 1)),
            )
            highest = op.ArgMax(op.Where(op.Less(rows, i), -1.0, heights), axis=axis)
            order = op.Where(op.Equal(rows, highest), i, rows)
            order = op.Where(op.Equal(rows, i), highest, order)
            order = op.Expand(order, op.Shape(real))
            real = _copy_shape(op.GatherElements(real, order, axis=axis), matrix)
            imag = _copy_shape(op.GatherElements(imag, order, axis=axis), matrix)
            exchanges = op.Where(op.Equal(rows, i), highest, exchanges)
        a = Complex(real, imag)
        pivot_row = Complex(*(op.Gather(part, at, axis=axis) for part in (real, imag)))
        first = Complex(*(op.Gather(part, at, axis=axis + 1) for part in (real, imag)))
        pivots = Complex(
            op.Gather(pivot_row.real, at, axis=axis + 1),
            op.Gather(pivot_row.imag, at, axis=axis + 1),
        )
        nothing = op.And(op.Equal(pivots.real, 0.0), op.Equal(pivots.imag, 0.0))
        divisors = Complex(op.Where(nothing, 1.0, pivots.real), pivots.imag)
        below = op.Greater(rows, i)
        multipliers = select_parts(op, below, divide(op, first, divisors), 0.0)
        right = select_parts(op, op.Greater(columns, i), pivot_row, 0.0)
        rest = subtract(op, a, multiply(op, multipliers, right))
        kept = op.And(below, op.Equal(columns, i))
        return (
            op.Where(kept, multipliers.real, rest.real),
            op.Where(kept, multipliers.imag, rest.imag),
            exchanges,
        )

    real, imag, exchanges = op.loop(steps, [matrix.real, matrix.imag, start], eliminate_column)
    return Complex(real, imag), exchanges


def _copy_shape(value: Value, like: Complex) -> Value:
    value.shape = like.shape
    return value


def _factorize_lu(op: Builder, matrix: Complex, pivot: bool = True) -> tuple[Complex, Value, Value]:
    """LU, pivots counted from 1 as in LAPACK, and ``info``."""
    rows, columns = op.size(matrix.real, -2), op.size(matrix.real, -1)
    steps = shorter_side(op, rows, columns)
    lu, exchanges = _eliminate_columns(op, matrix, steps, pivot)
    pivots = op.Squeeze(exchanges, [-1])
    pivots = slice_axis(op, pivots, op.rank(pivots) - 1, 0, steps)
    parts = [diagonal(op, part) for part in (lu.real, lu.imag)]
    nothing = op.And(op.Equal(parts[0], 0.0), op.Equal(parts[1], 0.0))
    nothing = slice_axis(op, nothing, op.rank(nothing) - 1, 0, steps)
    return lu, op.cast(op.Add(pivots, 1), INT32), first_failure(op, nothing)


def _sign_and_logarithm(op: Builder, matrix: Complex) -> tuple[Complex, Value]:
    """Sign of the determinant, of absolute value 1, and logarithm of its absolute value."""
    size = op.size(matrix.real, -1)
    lu, exchanges = _eliminate_columns(op, matrix, size)
    exchanged = op.Not(op.Equal(op.Squeeze(exchanges, [-1]), range_of_length(op, 0, size)))
    count = op.reduce("ReduceSum", op.cast(exchanged, INT64), [-1], keepdims=False)
    half_turns = op.cast(op.Mod(count, 2), matrix.real.dtype)
    factors = Complex(diagonal(op, lu.real), diagonal(op, lu.imag))
    polar = logarithm(op, factors)
    height = op.reduce("ReduceSum", polar.real, [-1], keepdims=False)
    turn = op.reduce("ReduceSum", polar.imag, [-1], keepdims=False)
    turn = op.Add(turn, op.Mul(half_turns, math.pi))
    singular = op.IsInf(height, detect_positive=0)
    sign = Complex(op.Where(singular, 0.0, op.Cos(turn)), op.Where(singular, 0.0, op.Sin(turn)))
    return sign, height


def _compute_determinant(op: Builder, matrix: Complex) -> Complex:
    sign, height = _sign_and_logarithm(op, matrix)
    size = op.Exp(height)
    return Complex(op.Mul(sign.real, size), op.Mul(sign.imag, size))


@register_complex(aten.linalg_det.default)
def complex_linalg_det(op: Builder, A: Complex) -> Complex:
    return _compute_determinant(op, A)


@register_complex(aten.det.default)
def complex_det(op: Builder, self: Complex) -> Complex:
    return _compute_determinant(op, self)


@register_complex(aten._linalg_det.default)
def complex__linalg_det(op: Builder, A: Complex) -> tuple[Any, ...]:
    return _compute_determinant(op, A), None, None


@register_complex(aten.linalg_slogdet.default)
def complex_linalg_slogdet(op: Builder, A: Complex) -> tuple[Complex, Value]:
    return _sign_and_logarithm(op, A)


@register_complex(aten.slogdet.default)
def complex_slogdet(op: Builder, self: Complex) -> tuple[Complex, Value]:
    return _sign_and_logarithm(op, self)


@register_complex(aten._linalg_slogdet.default)
def complex__linalg_slogdet(op: Builder, A: Complex) -> tuple[Any, ...]:
    return (*_sign_and_logarithm(op, A), None, None)


@register_complex(aten.logdet.default)
def complex_logdet(op: Builder, self: Complex) -> Complex:
    sign, height = _sign_and_logarithm(op, self)
    return Complex(height, logarithm(op, sign).imag)


@register_complex(aten.linalg_lu_factor_ex.default)
def complex_linalg_lu_factor_ex(
    op: Builder, A: Complex, pivot: bool = True, check_errors: bool = False
) -> tuple[Complex, Value, Value]:
    return _factorize_lu(op, A, pivot)


@register_complex(aten.linalg_lu_factor.default)
def complex_linalg_lu_factor(op: Builder, A: Complex, pivot: bool = True) -> tuple[Complex, Value]:
    return _factorize_lu(op, A, pivot)[:2]


@register_complex(aten._lu_with_info.default)
def complex__lu_with_info(
    op: Builder, self: Complex, pivot: bool = True, check_errors: bool = True
) -> tuple[Complex, Value, Value]:
    return _factorize_lu(op, self, pivot)


def _unpack_lu(
    op: Builder, lu: Complex, pivots: Value, data: bool, permutation: bool
) -> tuple[Any, Complex, Complex]:
    """P, L and U by the real translation; the imaginary part of L has no ones on its diagonal."""
    function = real_function(aten.lu_unpack.default)
    p, left, upper = function(op, lu.real, pivots, data, permutation)
    _, left_imag, upper_imag = function(op, lu.imag, pivots, data, False)
    if not data:
        return p, left, upper
    rows, columns = op.size(left_imag, -2), op.size(left_imag, -1)
    left_imag = op.Where(on_diagonal(op, rows, columns), 0.0, left_imag)
    return p, Complex(left, left_imag), Complex(upper, upper_imag)


@register_complex(aten.lu_unpack.default)
def complex_lu_unpack(
    op: Builder,
    LU_data: Complex,
    LU_pivots: Value,
    unpack_data: bool = True,
    unpack_pivots: bool = True,
) -> tuple[Any, ...]:
    p, left, upper = _unpack_lu(op, LU_data, LU_pivots, unpack_data, unpack_pivots)
    return from_real(op, p, op.result[1].dtype), left, upper


@register_complex(aten.linalg_lu.default)
def complex_linalg_lu(op: Builder, A: Complex, pivot: bool = True) -> tuple[Any, ...]:
    lu, pivots, _ = _factorize_lu(op, A, pivot)
    p, left, upper = _unpack_lu(op, lu, pivots, True, pivot)
    return from_real(op, p, op.result[1].dtype), left, upper


def _multiply_lu_factors(op: Builder, lu: Complex, pivots: Value) -> Complex:
    """Restores the matrix that was factorized."""
    p, left, upper = _unpack_lu(op, lu, pivots, True, True)
    return matmul(op, Complex(op.MatMul(p, left.real), op.MatMul(p, left.imag)), upper)


@register_complex(aten.lu_solve.default)
def complex_lu_solve(op: Builder, self: Any, LU_data: Complex, LU_pivots: Value) -> Complex:
    return _solve_system(
        op, _multiply_lu_factors(op, LU_data, LU_pivots), self, True, op.rank(LU_data.real)
    )[0]


@register_complex(aten.linalg_lu_solve.default)
def complex_linalg_lu_solve(
    op: Builder, LU: Complex, pivots: Value, B: Any, left: bool = True, adjoint: bool = False
) -> Complex:
    matrix = _multiply_lu_factors(op, LU, pivots)
    matrix = conjugate_transpose(op, matrix) if adjoint else matrix
    return _solve_system(op, matrix, B, left, op.rank(LU.real))[0]


# --- Cholesky decompositions ---------------------------------------------------------------------


def _factorize_cholesky(op: Builder, matrix: Complex, upper: bool) -> tuple[Complex, Value]:
    """L of ``L L^H``, one column per step (Golub and Van Loan, 4.2.5), and ``info``."""
    matrix = conjugate_transpose(op, matrix) if upper else matrix
    size = op.size(matrix.real, -1)
    rows, columns = row_numbers(op, size), range_of_length(op, 0, size)
    axis = op.rank(matrix.real) - 2

    def factorize_column(i: Value, real: Value, imag: Value) -> tuple[Value, Value]:
        at = op.Unsqueeze(i, [0])
        column = Complex(*(op.Gather(part, at, axis=axis + 1) for part in (real, imag)))
        root = op.Sqrt(op.Gather(column.real, at, axis=axis))
        inside = op.GreaterOrEqual(rows, i)
        column = select_parts(op, inside, divide(op, column, root), 0.0)
        outer = matmul(op, column, conjugate_transpose(op, column))
        here, behind = op.Equal(columns, i), op.Greater(columns, i)
        return (
            op.Where(here, column.real, op.Where(behind, op.Sub(real, outer.real), real)),
            op.Where(here, column.imag, op.Where(behind, op.Sub(imag, outer.imag), imag)),
        )

    real, imag = op.loop(size, [matrix.real, matrix.imag], factorize_column)
    roots = diagonal(op, real)
    info = first_failure(op, op.Or(op.IsNaN(roots), op.LessOrEqual(roots, 0.0)))
    factor = Complex(op.Trilu(real, upper=0), op.Trilu(imag, upper=0))
    return (conjugate_transpose(op, factor) if upper else factor), info


@register_complex(aten.linalg_cholesky_ex.default)
def complex_linalg_cholesky_ex(
    op: Builder, self: Complex, upper: bool = False, check_errors: bool = False
) -> tuple[Complex, Value]:
    return _factorize_cholesky(op, self, upper)


@register_complex(aten.linalg_cholesky.default, aten.cholesky.default)
def complex_linalg_cholesky(op: Builder, self: Complex, upper: bool = False) -> Complex:
    return _factorize_cholesky(op, self, upper)[0]


def _multiply_by_adjoint(op: Builder, factor: Complex, upper: bool) -> Complex:
    """``L L^H``, or ``U^H U``."""
    other = conjugate_transpose(op, factor)
    return matmul(op, other, factor) if upper else matmul(op, factor, other)


@register_complex(aten.cholesky_solve.default)
def complex_cholesky_solve(op: Builder, self: Any, input2: Complex, upper: bool = False) -> Complex:
    matrix = _multiply_by_adjoint(
        op, _extract_triangle(op, _ensure_complex(op, input2), upper, False), upper
    )
    return _solve_system(op, matrix, self, True, op.rank(matrix.real))[0]


@register_complex(aten.cholesky_inverse.default)
def complex_cholesky_inverse(op: Builder, self: Complex, upper: bool = False) -> Complex:
    matrix = _multiply_by_adjoint(op, _extract_triangle(op, self, upper, False), upper)
    return _as_complex(op, _call_real(op, aten.linalg_inv.default, _as_real(op, matrix)))
