"""Eigenvalues and eigenvectors of any square matrix.

The iteration of Aberth and Ehrlich (O. Aberth, Math. Comp. 27, 1973) improves approximations of all
eigenvalues at once. It needs the quotient p'/p of the characteristic polynomial and its derivative,
which Hyman's method computes from a Hessenberg matrix without the polynomial's coefficients, which
lose digits (J. H. Wilkinson, The Algebraic Eigenvalue Problem, 7.11). The eigenvectors come from
inverse iteration (Golub and Van Loan, 7.6). Everything is computed in float64, because eigenvalues
are sensitive to rounding, from the matrix divided by its largest element.
"""

from __future__ import annotations

import math
from typing import Any

import onnx_ir as ir
import torch

from onnx_aot.builder.builder import Builder, Size
from onnx_aot.ops.complex.arithmetic import absolute, add, divide, multiply, subtract
from onnx_aot.ops.complex.linear_algebra import invert
from onnx_aot.ops.complex.matrices import (
    column_of,
    conjugate_transpose,
    map_parts,
    matmul,
    measure_column,
    row_of,
    select_parts,
    split_direction,
)
from onnx_aot.ops.complex.pairs import Complex, from_real, register_complex, zeros_like
from onnx_aot.ops.core.indexing import range_of_length
from onnx_aot.ops.linalg.jacobi import reduce_any
from onnx_aot.ops.linalg.matrices import diagonal, on_diagonal, row_numbers, transpose_matrix
from onnx_aot.ops.registry import LIMITS
from onnx_aot.torch_compat import aten

__all__: list[str] = []

Value = ir.Value
DOUBLE = ir.DataType.DOUBLE

STEPS = 400
"""Limit of the iteration. Distinct eigenvalues need some 15 steps, m equal ones about 20 m."""

ENOUGH = 2.0**-46
"""Corrections below this end the iteration."""

REAL = 2.0**-40
"""Imaginary parts below this are rounding errors if the matrix is real."""

APART = 2.0**-44
"""Distance of inverse iteration from the eigenvalue, where the matrix is singular."""

TINY = 2.0**-600
"""Replaces zeros below the diagonal of a Hessenberg matrix, by which Hyman's method divides."""


# --- Hessenberg matrices -------------------------------------------------------------------------


def _sum_last(op: Builder, value: Value, keepdims: bool = False) -> Value:
    return op.reduce("ReduceSum", value, [-1], keepdims)


def _divide_or_zero(op: Builder, value: Complex, divisor: Value) -> Complex:
    """Quotients; zeros where the divisor is zero."""
    nothing = op.Equal(divisor, 0.0)
    safe = op.Where(nothing, 1.0, divisor)
    return map_parts(lambda part: op.Where(nothing, 0.0, op.Div(part, safe)), value)


def _reduce_to_hessenberg(op: Builder, matrix: Complex, size: Size) -> Complex:
    """Matrix with the same eigenvalues and zeros below its first subdiagonal.

    One column per step by Householder's reflections from both sides (Golub and Van Loan, 7.4.2).
    """
    rows = row_numbers(op, size)
    steps = max(size - 2, 0) if isinstance(size, int) else op.Max(op.Sub(size, 2), 0)

    def reflect(i: Value, real: Value, imag: Value) -> list[Value]:
        a = Complex(real, imag)
        x = select_parts(op, op.Greater(rows, i), column_of(op, a, op.Unsqueeze(i, [0])), 0.0)
        first = row_of(op, x, op.Unsqueeze(op.Add(i, 1), [0]))
        _, phase = split_direction(op, first)
        length = measure_column(op, x.real, x.imag)
        grown = add(op, x, map_parts(lambda part: op.Mul(part, length), phase))
        v = select_parts(op, op.Equal(rows, op.Add(i, 1)), grown, x)
        v = _divide_or_zero(op, v, measure_column(op, v.real, v.imag))
        adjoint = conjugate_transpose(op, v)
        twice = map_parts(lambda part: op.Mul(part, 2.0), v)
        a = subtract(op, a, matmul(op, twice, matmul(op, adjoint, a)))
        a = subtract(op, a, matmul(op, matmul(op, a, twice), adjoint))
        return [a.real, a.imag]

    reduced = Complex(*op.loop(steps, [matrix.real, matrix.imag], reflect))
    return map_parts(lambda part: op.Trilu(part, -1, upper=1), reduced)


def _divide_derivative(op: Builder, matrix: Complex, points: Complex, size: Size) -> Complex:
    """p'/p of a Hessenberg matrix's characteristic polynomial at points, ``[..., k]``.

    The last row of the vector x is 1; each row of ``(A - z) x = 0`` but the first gives the element
    of x before. The first row's product with x is p(z) times a constant.
    """
    places = range_of_length(op, 0, size)
    last = op.Equal(places, op.Sub(op.cast(size, ir.DataType.INT64), 1))
    shape = op.Concat(op.Shape(points.real), op.sizes([size]), axis=0)
    known = list(points.shape or ())
    zeros = op.Expand(op.constant(0.0, DOUBLE), shape)
    zeros.shape = ir.Shape([*known, matrix.real.shape[-1]])  # type: ignore[index]
    ones = op.Where(last, 1.0, zeros)
    column = map_parts(lambda part: op.Unsqueeze(part, [-1]), points)

    def multiply_row(at: Value, x: Complex) -> tuple[Complex, Complex]:
        """A row of ``A - z`` times x, and the element of x at that row."""
        row = row_of(op, matrix, at)
        element = map_parts(lambda part: op.Gather(part, at, axis=op.rank(part) - 1), x)
        product = matmul(op, x, map_parts(lambda part: transpose_matrix(op, part), row))
        return subtract(op, product, multiply(op, column, element)), element

    def step_back(i: Value, *state: Value) -> list[Value]:
        x, slope = Complex(*state[:2]), Complex(*state[2:])
        at = op.Unsqueeze(op.Sub(op.Sub(op.cast(size, ir.DataType.INT64), 1), i), [0])
        before = op.Sub(at, 1)
        below = column_of(op, row_of(op, matrix, at), before)
        nothing = op.And(op.Equal(below.real, 0.0), op.Equal(below.imag, 0.0))
        below = select_parts(op, nothing, TINY, below)
        value, element = multiply_row(at, x)
        change, _ = multiply_row(at, slope)
        value = divide(op, value, below)
        change = divide(op, subtract(op, change, element), below)
        here = op.Equal(places, before)
        x = select_parts(op, here, map_parts(op.Neg, value), x)
        slope = select_parts(op, here, map_parts(op.Neg, change), slope)
        # Only the quotient matters, so both are kept in range.
        largest = op.Max(
            *(op.Abs(part) for part in (value.real, value.imag, change.real, change.imag))
        )
        scale = op.Max(largest, 1.0)
        return [op.Div(part, scale) for part in (x.real, x.imag, slope.real, slope.imag)]

    steps = max(size - 1, 0) if isinstance(size, int) else op.Max(op.Sub(size, 1), 0)
    end = op.loop(steps, [ones, zeros, zeros, zeros], step_back)
    first = op.constant([0], ir.DataType.INT64)
    value, element = multiply_row(first, Complex(*end[:2]))
    change, _ = multiply_row(first, Complex(*end[2:]))
    quotient = divide(op, subtract(op, change, element), value)
    return map_parts(lambda part: op.Squeeze(part, [-1]), quotient)


# --- eigenvalues ---------------------------------------------------------------------------------


def _start(op: Builder, center: Complex, radius: Value, size: Size) -> Complex:
    """Points on a circle, ``[..., n]``, none of which is another's conjugate."""
    places = op.cast(range_of_length(op, 0, size), DOUBLE)
    angles = op.Add(op.Mul(op.Div(places, op.cast(size, DOUBLE)), 2 * math.pi), 0.7)
    circle = Complex(op.Cos(angles), op.Sin(angles))
    return add(op, center, map_parts(lambda part: op.Mul(part, radius), circle))


def _subtract_from(op: Builder, points: Complex, matrix: Complex) -> Complex:
    """``zI - A`` for each point, ``[..., k, n, n]`` from ``[..., k]`` and ``[..., n, n]``."""
    size = op.size(matrix.real, -1)
    on = on_diagonal(op, size, size)
    spread = map_parts(lambda part: op.Where(on, op.Unsqueeze(part, [-1, -2]), 0.0), points)
    return subtract(op, spread, map_parts(lambda part: op.Unsqueeze(part, [-3]), matrix))


def _repel(op: Builder, points: Complex, on: Value) -> Complex:
    """Sum of the inverse distances of each point from all others."""
    gaps = subtract(
        op,
        map_parts(lambda part: op.Unsqueeze(part, [-1]), points),
        map_parts(lambda part: op.Unsqueeze(part, [-2]), points),
    )
    inverse = select_parts(op, on, 0.0, divide(op, 1.0, select_parts(op, on, 1.0, gaps)))
    return map_parts(lambda part: _sum_last(op, part), inverse)


def _find_eigenvalues(op: Builder, matrix: Complex, is_real: bool) -> Complex:
    """Eigenvalues, ``[..., n]``, by descending real part."""
    size = op.size(matrix.real, -1)
    on, count = on_diagonal(op, size, size), op.cast(size, DOUBLE)
    center = map_parts(
        lambda part: op.Div(_sum_last(op, diagonal(op, part), keepdims=True), count), matrix
    )
    apart = _subtract_from(op, center, matrix)
    both = op.Concat(apart.real, apart.imag, axis=-1)
    deviation = op.Squeeze(op.reduce("ReduceL2", both, [-2, -1], keepdims=True), [-2, -1])
    hessenberg = _reduce_to_hessenberg(op, matrix, size)

    def improve(_: Value, real: Value, imag: Value) -> list[Value]:
        points = Complex(real, imag)
        slope = _divide_derivative(op, hessenberg, points, size)
        change = divide(op, 1.0, subtract(op, slope, _repel(op, points, on)))
        length = absolute(op, change)
        # Infinite or NaN: the point is an eigenvalue, where p is zero.
        finite = op.Less(length, torch.finfo(torch.float64).max)
        shorten = op.Min(op.Div(op.Mul(count, 2.0), length), 1.0)
        change = select_parts(op, finite, map_parts(lambda p: op.Mul(p, shorten), change), 0.0)
        after = subtract(op, points, change)
        more = reduce_any(op, op.And(finite, op.Greater(length, ENOUGH)))
        return [more, after.real, after.imag]

    start = _start(op, center, op.Max(deviation, 2.0**-200), size)
    any_rows = op.Greater(count, 0.0)
    found = Complex(*op.loop(STEPS, [start.real, start.imag], improve, condition=any_rows))
    if is_real:
        found = Complex(found.real, op.Where(op.Less(op.Abs(found.imag), REAL), 0.0, found.imag))
    # The upper one of two conjugates is first; their real parts are equal but for rounding.
    key = op.Add(found.real, op.Mul(found.imag, 2.0**-20))
    _, order = op.TopK(key, op.sizes([size]), largest=1, _outputs=2)
    order.shape = key.shape
    return map_parts(lambda part: op.GatherElements(part, order, axis=-1), found)


# --- eigenvectors --------------------------------------------------------------------------------


def _divide_by_largest(op: Builder, vectors: Complex) -> Complex:
    """Columns divided by their largest component, which becomes 1."""
    length = absolute(op, vectors)
    place = op.ArgMax(length, axis=-2, keepdims=1)
    place.shape = ir.Shape([*list(length.shape or ())[:-2], 1, 1])
    largest = map_parts(lambda part: op.GatherElements(part, place, axis=-2), vectors)
    return divide(op, vectors, largest)


def _find_eigenvectors(op: Builder, matrix: Complex, values: Complex) -> Complex:
    """Eigenvectors as columns, of length 1, the largest component of each real and positive."""
    size = op.size(matrix.real, -1)
    near = Complex(op.Add(values.real, APART), values.imag)
    inverse = invert(op, _subtract_from(op, near, matrix))
    numbers = op.cast(range_of_length(op, 1, size), DOUBLE)
    # Equal eigenvalues need different starts, one per row.
    start = op.Unsqueeze(op.Cos(op.Mul(op.Unsqueeze(numbers, [1]), numbers)), [-1])
    vectors = Complex(start, zeros_like(op, start))
    for _ in range(2):
        vectors = _divide_by_largest(op, matmul(op, inverse, vectors))
    columns = map_parts(lambda part: transpose_matrix(op, op.Squeeze(part, [-1])), vectors)
    length = measure_column(op, columns.real, columns.imag)
    return map_parts(lambda part: op.Div(part, length), columns)


def _decompose(op: Builder, matrix: Any, vectors: bool) -> list[Complex]:
    """Eigenvalues, and eigenvectors if they are requested, in the type of the result."""
    results = op.result if isinstance(op.result, (list, tuple)) else [op.result]
    given = from_real(op, matrix, torch.complex128)
    both = op.Max(op.Abs(given.real), op.Abs(given.imag))
    scale = op.reduce("ReduceMax", both, [-2, -1], keepdims=True)
    scale = op.Where(op.Equal(scale, 0.0), 1.0, scale)
    scaled = map_parts(lambda part: op.Div(part, scale), given)
    values = _find_eigenvalues(op, scaled, not isinstance(matrix, Complex))
    factor = op.Squeeze(scale, [-1])
    found = [map_parts(lambda part: op.Mul(part, factor), values)]
    if vectors:
        found.append(_find_eigenvectors(op, scaled, values))
    return [from_real(op, value, results[0].dtype) for value in found]


@register_complex(aten.linalg_eig.default)
def complex_linalg_eig(op: Builder, self: Any) -> tuple[Complex, Complex]:
    values, eigenvectors = _decompose(op, self, vectors=True)
    return values, eigenvectors


@register_complex(aten.linalg_eigvals.default, aten._linalg_eigvals.default)
def complex_linalg_eigvals(op: Builder, self: Any) -> Complex:
    return _decompose(op, self, vectors=False)[0]


for _target in (
    aten.linalg_eig.default,
    aten.linalg_eigvals.default,
    aten._linalg_eigvals.default,
):
    LIMITS[_target] = (
        "eigenvalues come by descending real part, where torch promises no order, and eigenvectors "
        "have another phase; eigenvalues that occur more than about 20 times are less exact"
    )
