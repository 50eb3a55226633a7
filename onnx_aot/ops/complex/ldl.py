"""LDL decompositions of complex matrices, symmetric or Hermitian, by Bunch and Kaufman's method."""

# ruff: noqa: N803 (arguments are named as in the schema)

from __future__ import annotations

import onnx_ir as ir

from onnx_aot.builder.builder import Builder
from onnx_aot.ops.complex.arithmetic import divide, multiply, subtract
from onnx_aot.ops.complex.matrices import (
    build_hermitian,
    column_of,
    conjugate,
    is_zero,
    map_parts,
    row_of,
    select_parts,
    sum_axis,
)
from onnx_aot.ops.complex.pairs import Complex, register_complex, zeros_like
from onnx_aot.ops.core.indexing import range_of_length
from onnx_aot.ops.core.movement import annotate_shape
from onnx_aot.ops.linalg.ldl import choose_pivot, exchange_rows
from onnx_aot.ops.linalg.matrices import (
    as_batch,
    diagonal,
    first_failure,
    row,
    row_numbers,
    transpose_matrix,
)
from onnx_aot.torch_compat import aten

__all__: list[str] = []

Value = ir.Value
INT32 = ir.DataType.INT32
INT64 = ir.DataType.INT64


def _mirror(op: Builder, matrix: Complex, hermitian: bool) -> Complex:
    """Transpose, or conjugate transpose if Hermitian."""
    turned = map_parts(lambda part: transpose_matrix(op, part), matrix)
    return conjugate(op, turned) if hermitian else turned


def _fill_from_lower(op: Builder, matrix: Complex, hermitian: bool) -> Complex:
    """Whole matrix from its lower triangle."""
    if hermitian:
        return build_hermitian(op, matrix, upper=False)
    return map_parts(
        lambda part: op.Add(
            op.Trilu(part, upper=0), transpose_matrix(op, op.Trilu(part, -1, upper=0))
        ),
        matrix,
    )


def _exchange_both(op: Builder, matrix: Complex, rows: Value, one: Value, other: Value) -> Complex:
    """Exchanges two rows of each matrix."""
    return map_parts(lambda part: exchange_rows(op, part, rows, one, other), matrix)


def _measure(op: Builder, value: Complex) -> Value:
    """``|re| + |im|``, LAPACK's size of a pivot."""
    size: Value = op.Add(op.Abs(value.real), op.Abs(value.imag))
    return size


def _divide_pair(
    op: Builder, x: Complex, y: Complex, one: Complex, between: Complex, two: Complex, herm: bool
) -> tuple[Complex, Complex]:
    """Columns x and y times the inverse of ``[[one, between'], [between, two]]``.

    All are divided by the size of ``between`` first, as in LAPACK's hetf2.
    """
    size = op.Max(op.Abs(between.real), op.Abs(between.imag))
    p, q, b = (map_parts(lambda part: op.Div(part, size), v) for v in (two, one, between))
    mirrored = conjugate(op, b) if herm else b
    determinant = subtract(op, multiply(op, p, q), multiply(op, b, mirrored))
    determinant = multiply(op, determinant, size)
    left = subtract(op, multiply(op, p, x), multiply(op, b, y))
    right = subtract(op, multiply(op, q, y), multiply(op, mirrored, x))
    return divide(op, left, determinant), divide(op, right, determinant)


def _factorize_ldl(op: Builder, matrix: Complex, herm: bool) -> tuple[Complex, Value, Value]:
    """L and D stored as by LAPACK's sytrf or hetrf, its pivots, and ``info``.

    A step of two rows does the work of both; ``idle`` tells the next step to do nothing.
    """
    shape = list(matrix.shape or ())
    size = op.size(matrix.real, -1)
    rows, columns = row_numbers(op, size), range_of_length(op, 0, size)
    start = _fill_from_lower(op, matrix, herm)
    batch = op.Shape(matrix.real, start=0, end=-2)
    idle = op.Expand(op.constant(False), op.Concat(batch, [1, 1], axis=0))
    idle = annotate_shape(idle, [*shape[:-2], 1, 1])
    pivots = op.Expand(rows, op.Concat(batch, op.sizes([size, 1]), axis=0))
    pivots = annotate_shape(pivots, [*shape[:-1], 1])

    def eliminate_column(i: Value, *state: Value) -> list[Value]:
        a, store, pivots, idle = Complex(*state[:2]), Complex(*state[2:4]), *state[4:]
        after = op.Add(i, 1)
        at = op.Unsqueeze(i, [0])
        behind = op.Unsqueeze(op.Min(after, op.Sub(size, 1)), [0])
        chosen, pair = choose_pivot(op, i, _measure(op, a), rows)
        pair = op.And(pair, op.Not(idle))
        chosen = op.Where(idle, i, chosen)
        place = op.Where(pair, after, i)
        a = _exchange_both(op, a, rows, place, chosen)
        turned = map_parts(lambda part: transpose_matrix(op, part), a)
        turned = _exchange_both(op, turned, rows, place, chosen)
        a = map_parts(lambda part: transpose_matrix(op, part), turned)
        x, y = column_of(op, a, at), column_of(op, a, behind)
        one, between, two = row_of(op, x, at), row_of(op, x, behind), row_of(op, y, behind)
        divisor = select_parts(op, is_zero(op, one), 1.0, one)
        alone = select_parts(op, op.Greater(rows, i), divide(op, x, divisor), 0.0)
        below = op.And(pair, op.Greater(rows, after))
        left, right = (
            select_parts(op, below, pair_column, 0.0)
            for pair_column in _divide_pair(op, x, y, one, between, two, herm)
        )
        left = select_parts(op, op.Or(pair, idle), left, alone)
        rest = subtract(op, a, multiply(op, left, _mirror(op, x, herm)))
        rest = subtract(op, rest, multiply(op, right, _mirror(op, y, herm)))
        here, next_one = op.Equal(rows, i), op.Equal(rows, after)
        kept = select_parts(op, op.And(pair, next_one), between, left)
        kept = select_parts(op, here, one, kept)
        is_here = op.And(op.Equal(columns, i), op.Not(idle))
        is_next = op.And(op.Equal(columns, after), pair)
        store = select_parts(op, is_here, kept, store)
        store = select_parts(op, is_next, select_parts(op, next_one, two, right), store)
        number = op.Add(chosen, 1)
        written = op.Or(op.And(here, op.Not(idle)), op.And(next_one, pair))
        pivots = op.Where(written, op.Where(pair, op.Neg(number), number), pivots)
        return [rest.real, rest.imag, store.real, store.imag, pivots, pair]

    # every column of the matrix is overwritten
    carried = [start.real, start.imag, matrix.real, matrix.imag, pivots, idle]
    _, _, real, imag, pivots, _ = op.loop(size, carried, eliminate_column)
    pivots = op.Squeeze(pivots, [-1])
    nothing = op.And(op.Equal(diagonal(op, real), 0.0), op.Equal(diagonal(op, imag), 0.0))
    info = first_failure(op, op.And(nothing, op.Greater(pivots, 0)))
    return Complex(real, imag), op.cast(pivots, INT32), info


@register_complex(aten.linalg_ldl_factor_ex.default)
def complex_linalg_ldl_factor_ex(
    op: Builder, self: Complex, hermitian: bool = False, check_errors: bool = False
) -> tuple[Complex, Value, Value]:
    return _factorize_ldl(op, self, hermitian)


@register_complex(aten.linalg_ldl_factor.default)
def complex_linalg_ldl_factor(
    op: Builder, self: Complex, hermitian: bool = False
) -> tuple[Complex, Value]:
    return _factorize_ldl(op, self, hermitian)[:2]


def _solve_diagonal(
    op: Builder, factor: Complex, x: Complex, partner: Value, paired: Value, herm: bool
) -> Complex:
    """Solves ``D y = x``; ``partner`` is the other row of a pair, and ``paired`` marks its rows."""
    size = op.size(factor.real, -1)
    rows, columns = row_numbers(op, size), range_of_length(op, 0, size)
    axis = op.rank(factor.real) - 2

    def gather(part: Value, index: Value) -> Value:
        return annotate_shape(op.GatherElements(part, index, axis=axis), list(part.shape or ()))

    own = map_parts(lambda part: diagonal(op, part, keepdims=True), factor)
    if herm:
        own = Complex(own.real, zeros_like(op, own.real))
    other = map_parts(lambda part: gather(part, partner), own)
    met = op.And(op.Equal(columns, partner), op.Not(op.Equal(columns, rows)))
    both = select_parts(op, op.Greater(rows, columns), factor, _mirror(op, factor, herm))
    between = sum_axis(op, select_parts(op, met, both, 0.0), -1)
    index = op.Expand(as_batch(op, partner, x.real), op.Shape(x.real))
    across = map_parts(lambda part: gather(part, index), x)
    mirrored = conjugate(op, between) if herm else between
    determinant = subtract(op, multiply(op, own, other), multiply(op, between, mirrored))
    pair = subtract(op, multiply(op, other, x), multiply(op, between, across))
    return select_parts(op, paired, divide(op, pair, determinant), divide(op, x, own))


@register_complex(aten.linalg_ldl_solve.default)
def complex_linalg_ldl_solve(
    op: Builder, LD: Complex, pivots: Value, B: Complex, hermitian: bool = False
) -> Complex:
    """Exchanges rows and eliminates L forwards, D, then the same backwards (sytrs and hetrs).

    Paired rows have negative pivots; an odd number of these up to a row means that the row is the
    first of its pair.
    """
    size = op.size(LD.real, -1)
    rows, columns = row_numbers(op, size), range_of_length(op, 0, size)
    numbers = op.Unsqueeze(op.cast(pivots, INT64), [-1])
    negative = op.Less(numbers, 0)
    count = op.CumSum(op.cast(negative, INT64), op.rank(numbers) - 2)
    first = op.And(negative, op.Equal(op.Mod(count, 2), 1))
    second = op.And(negative, op.Not(first))
    chosen = op.Where(second, rows, op.Sub(op.Abs(numbers), 1))
    places = op.Where(first, op.Add(rows, 1), rows)
    inner = op.And(op.Equal(rows, op.Add(columns, 1)), transpose_matrix(op, first))
    below = map_parts(lambda part: op.Trilu(part, -1, upper=0), LD)
    strict = select_parts(op, inner, 0.0, below)
    backward = conjugate(op, strict) if hermitian else strict

    def exchange(x: Complex, at: Value) -> Complex:
        return _exchange_both(op, x, rows, row(op, places, at), row(op, chosen, at))

    def substitute_forward(i: Value, *parts: Value) -> list[Value]:
        at = op.Unsqueeze(i, [0])
        x = exchange(Complex(*parts), at)
        x = subtract(op, x, multiply(op, column_of(op, strict, at), row_of(op, x, at)))
        return [x.real, x.imag]

    def substitute_backward(i: Value, *parts: Value) -> list[Value]:
        last = op.Sub(op.Sub(size, 1), i)
        at, x = op.Unsqueeze(last, [0]), Complex(*parts)
        known = sum_axis(op, multiply(op, column_of(op, backward, at), x), -2)
        x = exchange(select_parts(op, op.Equal(rows, last), subtract(op, x, known), x), at)
        return [x.real, x.imag]

    start = map_parts(lambda part, other: as_batch(op, part, other), B, LD)
    x = Complex(*op.loop(size, [start.real, start.imag], substitute_forward))
    partner = op.Where(first, op.Add(rows, 1), op.Where(second, op.Sub(rows, 1), rows))
    x = _solve_diagonal(op, LD, x, partner, negative, hermitian)
    return Complex(*op.loop(size, [x.real, x.imag], substitute_backward))
