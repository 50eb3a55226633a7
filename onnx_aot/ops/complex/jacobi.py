"""Eigenvectors of Hermitian matrices and singular vectors of complex ones by Jacobi's methods.

The methods of ``linalg.jacobi`` with complex rotations: a row is rotated against its partner times
the direction of their product, a number of absolute value 1, so that the new product is zero.
"""

# ruff: noqa: N803 (arguments are named as in the schema)

from __future__ import annotations

from typing import Any

import onnx_ir as ir

from onnx_aot.builder.builder import Builder
from onnx_aot.ops.complex.arithmetic import multiply, subtract
from onnx_aot.ops.complex.matrices import (
    build_hermitian,
    conjugate,
    conjugate_transpose,
    map_parts,
    row_of,
    select_parts,
    split_direction,
    sum_axis,
)
from onnx_aot.ops.complex.pairs import Complex, from_real, register_complex, zeros_like
from onnx_aot.ops.complex.qr import orthogonal_and_triangle
from onnx_aot.ops.core.indexing import range_of_length
from onnx_aot.ops.linalg.jacobi import (
    SWEEPS,
    batch_identity,
    compute_rotations,
    cut_to_shorter_side,
    is_wide,
    machine_epsilon,
    reduce_any,
    rows_at,
    schedule_partners,
)
from onnx_aot.ops.linalg.matrices import diagonal, on_diagonal, row, transpose_matrix
from onnx_aot.torch_compat import aten

__all__: list[str] = []

Value = ir.Value

# --- rotations -----------------------------------------------------------------------------------


def _rotate_rows(
    op: Builder, matrix: Complex, partner: Value, cosine: Value, sine: Complex
) -> Complex:
    """Rotates rows against their partners."""
    return subtract(
        op, multiply(op, matrix, cosine), multiply(op, sine, row_of(op, matrix, partner))
    )


def _average_products(op: Builder, product: Complex, partner: Value) -> Complex:
    """Twice the product; those of two partners are exact conjugates despite rounding."""
    other = row_of(op, product, partner)
    return Complex(op.Add(product.real, other.real), op.Sub(product.imag, other.imag))


def _scale_matrix(op: Builder, matrix: Complex) -> tuple[Complex, Value, Value]:
    """Matrix divided by a number to keep squares in range; the number; the norm after that."""
    both = op.Concat(matrix.real, matrix.imag, axis=-1)
    scale = op.reduce("ReduceL1", both, [-2, -1], keepdims=True)
    scale = op.Where(op.Equal(scale, 0.0), 1.0, scale)
    norm = op.reduce("ReduceL2", op.Div(both, scale), [-2, -1], keepdims=True)
    return map_parts(lambda part: op.Div(part, scale), matrix), scale, norm


def _start_basis(op: Builder, matrix: Complex, vectors: bool) -> list[Value]:
    """Parts of identity matrices, or none if no vectors are requested."""
    if not vectors:
        return []
    ones = batch_identity(op, matrix.real)
    return [ones, zeros_like(op, ones)]


def _flatten(values: list[Complex]) -> list[Value]:
    return [part for value in values for part in (value.real, value.imag)]


def _pair(parts: tuple[Value, ...]) -> list[Complex]:
    return [Complex(*pair) for pair in zip(parts[::2], parts[1::2], strict=True)]


# --- Hermitian matrices --------------------------------------------------------------------------


def _eigendecompose(
    op: Builder, matrix: Complex, triangle: str, vectors: bool
) -> tuple[Value, Complex | None]:
    """Ascending eigenvalues, and eigenvectors: rotates rows and columns (Golub, Van Loan, 8.5)."""
    size = op.size(matrix.real, -1)
    hermitian = build_hermitian(op, matrix, triangle.upper() == "U")
    scaled, scale, norm = _scale_matrix(op, hermitian)
    partners, rounds = schedule_partners(op, size)
    on, places = on_diagonal(op, size, size), range_of_length(op, 0, size)
    negligible = op.Mul(norm, machine_epsilon(matrix.real) / 16)

    def has_large_element(real: Value, imag: Value) -> Value:
        rest = op.Where(on, 0.0, op.Max(op.Abs(real), op.Abs(imag)))
        return reduce_any(op, op.Greater(rest, negligible))

    def turn(i: Value, *state: Value) -> list[Value]:
        a, *basis = _pair(state)
        partner = op.Gather(partners, i, axis=0)
        met = op.Equal(op.Unsqueeze(partner, [1]), places)
        old = diagonal(op, a.real, keepdims=True)
        product = sum_axis(op, select_parts(op, met, a, 0.0), -1)
        twice, unit = split_direction(op, _average_products(op, product, partner))
        tangent, cosine, sine = compute_rotations(op, partner, twice, old)
        turned = multiply(op, unit, sine)
        new = op.Sub(old, op.Mul(tangent, op.Mul(twice, 0.5)))
        half = conjugate_transpose(op, _rotate_rows(op, a, partner, cosine, turned))
        a = select_parts(op, met, 0.0, _rotate_rows(op, half, partner, cosine, turned))
        a = select_parts(op, on, new, a)
        basis = [_rotate_rows(op, b, partner, cosine, turned) for b in basis]
        return _flatten([a, *basis])

    def run_sweep(_: Value, *state: Value) -> list[Value]:
        after = op.loop(rounds, state, turn)
        return [has_large_element(*after[:2]), *after]

    start = [scaled.real, scaled.imag, *_start_basis(op, scaled, vectors)]
    first = has_large_element(scaled.real, scaled.imag)
    last, _, *basis = op.loop(SWEEPS, start, run_sweep, condition=first)
    values, order = op.TopK(
        op.Mul(diagonal(op, last), op.Squeeze(scale, [-1])), op.sizes([size]), largest=0, _outputs=2
    )
    order.shape = values.shape = ir.Shape(list(matrix.shape or ())[:-1])
    if not basis:
        return values, None
    return values, conjugate_transpose(
        op, map_parts(lambda part: rows_at(op, part, order), Complex(*basis))
    )


@register_complex(aten._linalg_eigh.default)
def complex__linalg_eigh(
    op: Builder, A: Complex, UPLO: str = "L", compute_v: bool = True
) -> tuple[Value, Complex]:
    """The eigenvectors are empty unless they are requested."""
    values, vectors = _eigendecompose(op, A, UPLO, compute_v)
    if vectors is None:
        vectors = from_real(op, op.constant([], A.real.dtype), op.result[1].dtype)
    return values, vectors


@register_complex(aten.linalg_eigvalsh.default)
def complex_linalg_eigvalsh(op: Builder, self: Complex, UPLO: str = "L") -> Value:
    return _eigendecompose(op, self, UPLO, vectors=False)[0]


# --- singular values -----------------------------------------------------------------------------


def _orthogonal_columns(
    op: Builder, matrix: Complex, vectors: bool
) -> tuple[Complex, Value, Complex | None]:
    """``matrix V`` with orthogonal columns, longest first; their lengths; V (Hestenes' method).

    The columns are stored as rows meanwhile.
    """
    scaled, scale, norm = _scale_matrix(
        op, map_parts(lambda part: transpose_matrix(op, part), matrix)
    )
    size = op.size(matrix.real, -1)
    partners, rounds = schedule_partners(op, size)
    negligible = op.Mul(norm, machine_epsilon(matrix.real))

    def turn(i: Value, left: Value, *state: Value) -> list[Value]:
        a, *basis = _pair(state)
        partner = op.Gather(partners, i, axis=0)
        squares = op.Add(op.Mul(a.real, a.real), op.Mul(a.imag, a.imag))
        squares = op.reduce("ReduceSum", squares, [-1], keepdims=True)
        other = row_of(op, a, partner)
        product = sum_axis(op, multiply(op, a, conjugate(op, other)), -1)
        twice, unit = split_direction(op, _average_products(op, product, partner))
        _, cosine, sine = compute_rotations(op, partner, twice, squares)
        longer = op.Sqrt(op.Max(squares, row(op, squares, partner)))
        large = op.Greater(op.Mul(twice, 0.5), op.Mul(negligible, longer))
        met = op.Not(op.Equal(partner, range_of_length(op, 0, size)))
        left = op.Or(left, reduce_any(op, op.And(large, op.Unsqueeze(met, [1]))))
        turned = multiply(op, unit, sine)
        rotated = [_rotate_rows(op, b, partner, cosine, turned) for b in (a, *basis)]
        return [left, *_flatten(rotated)]

    def run_sweep(_: Value, *state: Value) -> list[Value]:
        return op.loop(rounds, [op.constant(False), *state], turn)

    start = [scaled.real, scaled.imag, *_start_basis(op, matrix, vectors)]
    real, imag, *basis = op.loop(SWEEPS, start, run_sweep, condition=op.constant(True))
    lengths = op.reduce("ReduceL2", op.Concat(real, imag, axis=-1), [-1], keepdims=False)
    lengths = op.Mul(lengths, op.Squeeze(scale, [-1]))
    lengths, order = op.TopK(lengths, op.sizes([size]), _outputs=2)
    shape = list(matrix.shape or ())
    lengths.shape = order.shape = ir.Shape([*shape[:-2], shape[-1]])

    def sort_columns(part: Value) -> Value:
        return transpose_matrix(op, rows_at(op, part, order))

    columns = map_parts(lambda part: op.Mul(sort_columns(part), scale), Complex(real, imag))
    return columns, lengths, map_parts(sort_columns, Complex(*basis)) if basis else None


def _decompose_svd(op: Builder, matrix: Complex, full: bool) -> tuple[Complex, Value, Complex]:
    """U, the singular values and V of ``matrix = U S V^H``, as ``linalg.jacobi.decompose_svd``."""
    if is_wide(matrix.real):
        right, lengths, left = _decompose_svd(op, conjugate_transpose(op, matrix), full)
        return left, lengths, right
    columns, lengths, basis = _orthogonal_columns(op, matrix, vectors=True)
    assert basis is not None
    left, triangle = orthogonal_and_triangle(op, columns, full)
    negative = op.Unsqueeze(op.Less(diagonal(op, triangle.real), 0.0), [-2])
    left = map_parts(lambda part: op.Where(negative, op.Neg(part), part), left)

    def cut_columns(part: Value) -> Value:
        return cut_to_shorter_side(op, matrix.real, part, op.rank(part) - 1)

    return left, cut_columns(lengths), basis if full else map_parts(cut_columns, basis)


def _singular_values(op: Builder, matrix: Complex) -> Value:
    """Singular values in descending order."""
    if is_wide(matrix.real):
        matrix = conjugate_transpose(op, matrix)
    lengths = _orthogonal_columns(op, matrix, vectors=False)[1]
    return cut_to_shorter_side(op, matrix.real, lengths, op.rank(lengths) - 1)


@register_complex(aten._linalg_svd.default)
def complex__linalg_svd(
    op: Builder,
    A: Complex,
    full_matrices: bool = False,
    compute_uv: bool = True,
    driver: str | None = None,
) -> tuple[Any, Value, Any]:
    """The matrices are empty unless they are requested."""
    if not compute_uv:
        none = from_real(op, op.constant([], A.real.dtype), op.result[0].dtype)
        return none, _singular_values(op, A), none
    left, lengths, right = _decompose_svd(op, A, full_matrices)
    return left, lengths, conjugate_transpose(op, right)


@register_complex(aten.linalg_svdvals.default)
def complex_linalg_svdvals(op: Builder, A: Complex, driver: str | None = None) -> Value:
    return _singular_values(op, A)
