"""Eigenvalues of symmetric matrices, singular values and pseudoinverses by Jacobi's methods.

Both methods rotate pairs of rows or columns against each other, all pairs of a round at once: in
each of n - 1 rounds (n if n is odd) every index meets another one, as teams do in a tournament, and
after a sweep of all rounds every pair has met. Sweeps repeat until there is nothing left to rotate;
they converge quadratically (Golub and Van Loan, Matrix Computations, 8.5 and 8.6.3).
"""

# ruff: noqa: N803 (arguments are named as in the schema)

from __future__ import annotations

from typing import Any

import onnx_ir as ir
import torch

from onnx_aot import dtypes
from onnx_aot.builder.builder import Builder, Size
from onnx_aot.ops.core.indexing import range_of_length
from onnx_aot.ops.core.movement import annotate_shape, slice_axis
from onnx_aot.ops.core.size_math import add_sizes, subtract_sizes
from onnx_aot.ops.linalg.matrices import (
    diagonal,
    on_diagonal,
    row,
    row_numbers,
    shorter_side,
    transpose_matrix,
)
from onnx_aot.ops.linalg.qr import orthogonal_and_triangle
from onnx_aot.ops.registry import register
from onnx_aot.torch_compat import aten

__all__ = [
    "SWEEPS",
    "batch_identity",
    "compute_rotations",
    "compute_tolerance",
    "cut_to_shorter_side",
    "decompose_svd",
    "is_wide",
    "machine_epsilon",
    "reduce_any",
    "rows_at",
    "schedule_partners",
]

Value = ir.Value
DOUBLE = ir.DataType.DOUBLE
INT64 = ir.DataType.INT64

SWEEPS = 30
"""More sweeps than are ever needed: matrices of 1000 rows take about ten."""

# --- rotations -----------------------------------------------------------------------------------


def schedule_partners(op: Builder, size: Size) -> tuple[Value, Size]:
    """Partner of each index in each round, itself if it pauses; and the number of rounds.

    For an odd number N of indices, those meet whose sum is the round's number modulo N. For an even
    number, the last index is left out of this rule and meets the one that would pause.
    """
    odd = size % 2 if isinstance(size, int) else op.Mod(size, 2)
    rounds = add_sizes(op, subtract_sizes(op, size, 1), odd)
    places, numbers = range_of_length(op, 0, size), row_numbers(op, rounds)
    others = op.Mod(op.Sub(numbers, places), rounds)
    halves = size // 2 if isinstance(size, int) else op.Div(size, 2)
    pausing = op.Mod(op.Mul(numbers, halves), rounds)
    alone = op.Where(op.Equal(op.cast(odd, INT64), 1), places, rounds)
    others = op.Where(op.Equal(others, places), alone, others)
    table = op.Where(op.Equal(places, rounds), pausing, others)
    return annotate_shape(table, [None, None]), rounds


def compute_rotations(
    op: Builder, partner: Value, products: Value, squares: Value
) -> tuple[Value, Value, Value]:
    """Tangents, cosines and sines of the rotations that make the products of partners zero.

    The smaller angle is taken. The angles of two partners are exact opposites if their products are
    equal: ``products`` holds twice the product. All are columns.
    """
    difference = op.Sub(row(op, squares, partner), squares)
    places = range_of_length(op, 0, op.size(partner, 0))
    first = op.Unsqueeze(op.Sign(op.cast(op.Sub(partner, places), squares.dtype)), [1])
    sign = op.Where(op.Equal(difference, 0.0), first, op.Sign(difference))
    length = op.Sqrt(op.Add(op.Mul(difference, difference), op.Mul(products, products)))
    divisor = op.Add(op.Abs(difference), length)
    divisor = op.Where(op.Equal(divisor, 0.0), 1.0, divisor)
    tangent = op.Mul(sign, op.Div(products, divisor))
    cosine = op.Reciprocal(op.Sqrt(op.Add(op.Mul(tangent, tangent), 1.0)))
    return tangent, cosine, op.Mul(tangent, cosine)


def _rotate_rows(op: Builder, matrix: Value, partner: Value, cosine: Value, sine: Value) -> Value:
    """Rotates rows against their partners; rows, because each is gathered as a whole."""
    return op.Sub(op.Mul(cosine, matrix), op.Mul(sine, row(op, matrix, partner)))


def _scale_matrix(op: Builder, matrix: Value) -> tuple[Value, Value, Value]:
    """Matrix divided by a number to keep squares in range; the number; the norm after that."""
    scale = op.reduce("ReduceL1", matrix, [-2, -1], keepdims=True)
    scale = op.Where(op.Equal(scale, 0.0), 1.0, scale)
    scaled = op.Div(matrix, scale)
    return scaled, scale, op.reduce("ReduceL2", scaled, [-2, -1], keepdims=True)


def machine_epsilon(value: Value) -> float:
    """Distance from 1 to the next number of the value's type."""
    assert value.dtype is not None
    return torch.finfo(dtypes.to_torch(value.dtype)).eps


def reduce_any(op: Builder, condition: Value) -> Value:
    """True if any element is true; False if there are none."""
    count = op.reduce("ReduceSum", op.cast(condition, INT64), None, keepdims=False)
    return op.Greater(count, 0)


def batch_identity(op: Builder, matrix: Value) -> Value:
    """Identity matrices, as many as there are matrices, of their number of columns."""
    size = op.size(matrix, -1)
    ones = op.cast(on_diagonal(op, size, size), matrix.dtype)
    if op.rank(matrix) == 2:
        return ones
    batch = op.Shape(matrix, start=0, end=-2)
    batched = op.Expand(ones, op.Concat(batch, op.sizes([size, size]), axis=0))
    shape = list(matrix.shape or ())
    return annotate_shape(batched, [*shape[:-2], shape[-1], shape[-1]])


def rows_at(op: Builder, matrix: Value, order: Value) -> Value:
    """Rows in the given order, which differs for each matrix of a batch."""
    index = op.Expand(op.Unsqueeze(order, [-1]), op.Shape(matrix))
    moved = op.GatherElements(matrix, index, axis=op.rank(matrix) - 2)
    return annotate_shape(moved, list(matrix.shape or ()))


# --- symmetric matrices --------------------------------------------------------------------------


def _mirror_triangle(op: Builder, matrix: Value, triangle: str) -> Value:
    """Symmetric matrix from one triangle and its mirror image."""
    upper = int(triangle.upper() == "U")
    half = op.Trilu(matrix, upper=upper)
    rest = op.Trilu(matrix, 1 if upper else -1, upper=upper)
    return op.Add(half, transpose_matrix(op, rest))


def _eigendecompose(
    op: Builder, matrix: Value, triangle: str, vectors: bool = True
) -> tuple[Value, Value | None]:
    """Ascending eigenvalues, and eigenvectors: Jacobi's method of rotating rows and columns."""
    size = op.size(matrix, -1)
    scaled, scale, norm = _scale_matrix(op, _mirror_triangle(op, matrix, triangle))
    partners, rounds = schedule_partners(op, size)
    on = on_diagonal(op, size, size)
    places = range_of_length(op, 0, size)
    negligible = op.Mul(norm, machine_epsilon(matrix) / 16)

    def has_large_element(a: Value) -> Value:
        rest = op.Where(on, 0.0, op.Abs(a))
        return reduce_any(op, op.Greater(rest, negligible))

    def turn(i: Value, a: Value, *basis: Value) -> list[Value]:
        partner = op.Gather(partners, i, axis=0)
        met = op.Equal(op.Unsqueeze(partner, [1]), places)
        old = diagonal(op, a, keepdims=True)
        one = op.reduce("ReduceSum", op.Where(met, a, 0.0), [-1], keepdims=True)
        products = op.Add(one, row(op, one, partner))
        tangent, cosine, sine = compute_rotations(op, partner, products, old)
        new = op.Sub(old, op.Mul(tangent, op.Mul(products, 0.5)))
        half = transpose_matrix(op, _rotate_rows(op, a, partner, cosine, sine))
        a = op.Where(met, 0.0, _rotate_rows(op, half, partner, cosine, sine))
        a = op.Where(on, new, a)
        return [a, *(_rotate_rows(op, b, partner, cosine, sine) for b in basis)]

    def run_sweep(_: Value, *state: Value) -> list[Value]:
        after = op.loop(rounds, state, turn)
        return [has_large_element(after[0]), *after]

    start = [scaled, batch_identity(op, scaled)] if vectors else [scaled]
    last, *basis = op.loop(SWEEPS, start, run_sweep, condition=has_large_element(scaled))
    values, order = op.TopK(
        op.Mul(diagonal(op, last), op.Squeeze(scale, [-1])), op.sizes([size]), largest=0, _outputs=2
    )
    order.shape = values.shape = ir.Shape(list(matrix.shape or ())[:-1])
    return values, transpose_matrix(op, rows_at(op, basis[0], order)) if vectors else None


@register(aten._linalg_eigh.default)
def aten__linalg_eigh(
    op: Builder, A: Value, UPLO: str = "L", compute_v: bool = True
) -> tuple[Value, Value]:
    """The eigenvectors are empty unless they are requested."""
    values, vectors = _eigendecompose(op, A, UPLO, compute_v)
    return values, op.constant([], A.dtype) if vectors is None else vectors


@register(aten.linalg_eigvalsh.default)
def aten_linalg_eigvalsh(op: Builder, self: Value, UPLO: str = "L") -> Value:
    return _eigendecompose(op, self, UPLO, vectors=False)[0]


@register(aten.linalg_matrix_sqrth.default)
def aten_linalg_matrix_sqrth(op: Builder, self: Value) -> Value:
    """``V sqrt(w) V^T`` of the lower triangle; NaN where an eigenvalue is negative."""
    values, vectors = _eigendecompose(op, self, "L")
    assert vectors is not None
    roots = op.Unsqueeze(op.Sqrt(values), [-2])
    return op.MatMul(op.Mul(vectors, roots), transpose_matrix(op, vectors))


# --- singular values -----------------------------------------------------------------------------


def _orthogonal_columns(
    op: Builder, matrix: Value, vectors: bool
) -> tuple[Value, Value, Value | None]:
    """``matrix V`` with orthogonal columns, longest first; their lengths; V.

    Hestenes' method: columns are rotated until no projection of one on another exceeds the rounding
    error of the largest ones. They are stored as rows meanwhile.
    """
    scaled, scale, norm = _scale_matrix(op, transpose_matrix(op, matrix))
    size = op.size(matrix, -1)
    partners, rounds = schedule_partners(op, size)
    negligible = op.Mul(norm, machine_epsilon(matrix))

    def turn(i: Value, left: Value, a: Value, *basis: Value) -> list[Value]:
        partner = op.Gather(partners, i, axis=0)
        other = row(op, a, partner)
        squares = op.reduce("ReduceSum", op.Mul(a, a), [-1], keepdims=True)
        product = op.reduce("ReduceSum", op.Mul(a, other), [-1], keepdims=True)
        twice = op.Add(product, row(op, product, partner))  # equal for both despite rounding
        _, cosine, sine = compute_rotations(op, partner, twice, squares)
        longer = op.Sqrt(op.Max(squares, row(op, squares, partner)))
        large = op.Greater(op.Abs(product), op.Mul(negligible, longer))
        met = op.Not(op.Equal(partner, range_of_length(op, 0, size)))
        left = op.Or(left, reduce_any(op, op.And(large, op.Unsqueeze(met, [1]))))
        turned = op.Sub(op.Mul(cosine, a), op.Mul(sine, other))
        return [left, turned, *(_rotate_rows(op, b, partner, cosine, sine) for b in basis)]

    def run_sweep(_: Value, *state: Value) -> list[Value]:
        return op.loop(rounds, [op.constant(False), *state], turn)

    start = [scaled, batch_identity(op, matrix)] if vectors else [scaled]
    last, *basis = op.loop(SWEEPS, start, run_sweep, condition=op.constant(True))
    lengths = op.Mul(op.reduce("ReduceL2", last, [-1], keepdims=False), op.Squeeze(scale, [-1]))
    lengths, order = op.TopK(lengths, op.sizes([size]), _outputs=2)
    shape = list(matrix.shape or ())
    lengths.shape = order.shape = ir.Shape([*shape[:-2], shape[-1]])
    last = transpose_matrix(op, op.Mul(rows_at(op, last, order), scale))
    return last, lengths, transpose_matrix(op, rows_at(op, basis[0], order)) if vectors else None


def is_wide(matrix: Value) -> bool:
    """True if a matrix of static size has more columns than rows."""
    rows, columns = list(matrix.shape or ())[-2:]
    return isinstance(rows, int) and isinstance(columns, int) and rows < columns


def _singular_values(op: Builder, matrix: Value) -> Value:
    """Singular values in descending order."""
    if is_wide(matrix):
        matrix = transpose_matrix(op, matrix)
    lengths = _orthogonal_columns(op, matrix, vectors=False)[1]
    return cut_to_shorter_side(op, matrix, lengths, op.rank(lengths) - 1)


def cut_to_shorter_side(op: Builder, matrix: Value, value: Value, axis: int) -> Value:
    """Cuts an axis of the matrix' columns to the length of the matrix' shorter side."""
    rows, columns = op.size(matrix, -2), op.size(matrix, -1)
    side = shorter_side(op, rows, columns)
    if side is columns or (isinstance(side, int) and side == columns):
        return value
    return slice_axis(op, value, axis, 0, side)


def decompose_svd(op: Builder, matrix: Value, full: bool) -> tuple[Value, Value, Value]:
    """U, the singular values and V of ``matrix = U S V^T``.

    U is Q of the orthogonal columns' QR decomposition, so that it is orthogonal even where singular
    values are zero, and has the additional columns of full matrices.
    """
    if is_wide(matrix):
        right, lengths, left = decompose_svd(op, transpose_matrix(op, matrix), full)
        return left, lengths, right
    columns, lengths, basis = _orthogonal_columns(op, matrix, vectors=True)
    assert basis is not None
    left, triangle = orthogonal_and_triangle(op, columns, full)
    negative = op.Unsqueeze(op.Less(diagonal(op, triangle), 0.0), [-2])
    left = op.Where(negative, op.Neg(left), left)
    right = basis if full else cut_to_shorter_side(op, matrix, basis, op.rank(basis) - 1)
    return left, cut_to_shorter_side(op, matrix, lengths, op.rank(lengths) - 1), right


@register(aten._linalg_svd.default)
def aten__linalg_svd(
    op: Builder,
    A: Value,
    full_matrices: bool = False,
    compute_uv: bool = True,
    driver: str | None = None,
) -> tuple[Value, Value, Value]:
    """The matrices are empty unless they are requested."""
    if not compute_uv:
        none = op.constant([], A.dtype)
        return none, _singular_values(op, A), none
    left, lengths, right = decompose_svd(op, A, full_matrices)
    return left, lengths, transpose_matrix(op, right)


@register(aten.linalg_svdvals.default)
def aten_linalg_svdvals(op: Builder, A: Value, driver: str | None = None) -> Value:
    return _singular_values(op, A)


@register(aten.linalg_polar.default)
def aten_linalg_polar(op: Builder, A: Value) -> tuple[Value, Value]:
    """``U H``, ``[m, n]`` with orthonormal columns and ``[n, n]``: ``W V^T`` and ``V S V^T``."""
    left, lengths, right = decompose_svd(op, A, full=False)
    turned = transpose_matrix(op, right)
    stretched = op.Mul(right, op.Unsqueeze(lengths, [-2]))
    return op.MatMul(left, turned), op.MatMul(stretched, turned)


# --- pseudoinverses ------------------------------------------------------------------------------


@register(aten.linalg_pinv.atol_rtol_tensor)
def aten_linalg_pinv(
    op: Builder,
    self: Value,
    atol: Value | None = None,
    rtol: Value | None = None,
    hermitian: bool = False,
) -> Value:
    """``V S^-1 U^T`` without the singular values that count as zero.

    The products do not take transposes as inputs: ONNX Runtime would fuse them and then fail for
    empty ones.
    """
    if hermitian:
        values, vectors = _eigendecompose(op, self, "L")
        assert vectors is not None
        left = right = vectors
    else:
        left, values, right = decompose_svd(op, self, full=False)
    sizes = op.cast(op.Abs(values), DOUBLE)
    counts = op.Greater(sizes, compute_tolerance(op, self, sizes, atol, rtol))
    inverse = op.Where(counts, op.Reciprocal(op.Where(counts, values, 1.0)), 0.0)
    return op.MatMul(right, op.Mul(op.Unsqueeze(inverse, [-1]), transpose_matrix(op, left)))


def compute_tolerance(op: Builder, matrix: Value, sizes: Value, atol: Any, rtol: Any) -> Value:
    """``max(atol, rtol max(sizes))``; rtol defaults to eps times the longer side, 0 if atol > 0."""
    absolute = op.constant(0.0, DOUBLE) if atol is None else op.cast(atol, DOUBLE)
    if rtol is None:
        rows, columns = op.size(matrix, -2), op.size(matrix, -1)
        longer = op.cast(op.Max(op.cast(rows, INT64), op.cast(columns, INT64)), DOUBLE)
        relative = op.Mul(longer, machine_epsilon(matrix))
        if atol is not None:
            relative = op.Where(op.Greater(absolute, 0.0), 0.0, relative)
    else:
        relative = op.cast(rtol, DOUBLE)
    # padded with a zero, because a maximum of nothing is an error
    rank = op.rank(sizes)
    padded = op.Pad(sizes, [0] * (rank - 1) + [1] + [0] * rank)
    largest = op.reduce("ReduceMax", padded, [-1], keepdims=True)
    relative = op.Mul(op.Unsqueeze(relative, [-1]), largest)
    return op.Max(op.Unsqueeze(absolute, [-1]), relative)
