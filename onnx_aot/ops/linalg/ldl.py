"""LDL decompositions of symmetric matrices that need not be positive definite."""

# ruff: noqa: N803 (arguments are named as in the schema)

from __future__ import annotations

import math

import onnx_ir as ir

from onnx_aot.builder.builder import Builder
from onnx_aot.ops.core.indexing import range_of_length
from onnx_aot.ops.core.movement import annotate_shape
from onnx_aot.ops.linalg.matrices import (
    as_batch,
    column,
    diagonal,
    first_failure,
    row,
    row_numbers,
    transpose_matrix,
)
from onnx_aot.ops.registry import register
from onnx_aot.torch_compat import aten

__all__ = ["choose_pivot", "exchange_rows"]

Value = ir.Value
INT32 = ir.DataType.INT32
INT64 = ir.DataType.INT64

GROWTH = (1 + math.sqrt(17)) / 8
"""Least ratio of a pivot to its column; a step of two rows then grows as two steps of one."""


def exchange_rows(op: Builder, matrix: Value, rows: Value, one: Value, other: Value) -> Value:
    """Exchanges two rows of each matrix."""
    places = op.Where(op.Equal(rows, other), one, rows)
    places = op.Where(op.Equal(rows, one), other, places)
    index = op.Expand(places, op.Shape(matrix))
    moved = op.GatherElements(matrix, index, axis=op.rank(matrix) - 2)
    return annotate_shape(moved, list(matrix.shape or ()))


def choose_pivot(op: Builder, i: Value, sizes: Value, rows: Value) -> tuple[Value, Value]:
    """Row to exchange into step i, and a flag for a step of two rows (Bunch and Kaufman).

    ``sizes`` are those of the matrix's elements, ``|a|``, or ``|re| + |im|`` of complex ones.
    """
    first = column(op, sizes, op.Unsqueeze(i, [0]))
    here = row(op, first, op.Unsqueeze(i, [0]))
    heights = op.Where(op.Greater(rows, i), first, -1.0)
    highest = op.ArgMax(heights, axis=op.rank(sizes) - 2)
    top = op.Max(op.reduce("ReduceMax", heights, [-2], keepdims=True), 0.0)
    is_highest = op.Equal(rows, highest)
    there = op.reduce("ReduceSum", op.Where(is_highest, sizes, 0.0), [-2], keepdims=True)
    there = transpose_matrix(op, there)
    others = op.And(op.Not(op.Less(rows, i)), op.Not(is_highest))
    beside = op.reduce("ReduceMax", op.Where(others, there, 0.0), [-2], keepdims=True)
    own = op.reduce("ReduceSum", op.Where(is_highest, there, 0.0), [-2], keepdims=True)
    bound = op.Mul(top, GROWTH)
    stays = op.Or(
        op.GreaterOrEqual(here, bound),
        op.GreaterOrEqual(here, op.Mul(bound, op.Div(top, beside))),
    )
    alone = op.Or(stays, op.GreaterOrEqual(own, op.Mul(beside, GROWTH)))
    return op.Where(stays, i, highest), op.Not(alone)


def _factorize_ldl(op: Builder, matrix: Value) -> tuple[Value, Value, Value]:
    """L and D stored as by LAPACK's sytrf, its pivots, and ``info``.

    A step of two rows does the work of both; ``idle`` tells the next step to do nothing.
    """
    size = op.size(matrix, -1)
    rows, columns = row_numbers(op, size), range_of_length(op, 0, size)
    half = op.Trilu(matrix, upper=0)
    start = op.Add(half, transpose_matrix(op, op.Trilu(matrix, -1, upper=0)))
    batch = op.Shape(matrix, start=0, end=-2)
    idle = op.Expand(op.constant(False), op.Concat(batch, [1, 1], axis=0))
    shape = list(matrix.shape or ())[:-2]
    idle = annotate_shape(idle, [*shape, 1, 1])
    pivots = op.Expand(rows, op.Concat(batch, op.sizes([size, 1]), axis=0))
    pivots = annotate_shape(pivots, [*shape, list(matrix.shape or ())[-1], 1])

    def eliminate_column(
        i: Value, a: Value, store: Value, pivots: Value, idle: Value
    ) -> list[Value]:
        after = op.Add(i, 1)
        at = op.Unsqueeze(i, [0])
        behind = op.Unsqueeze(op.Min(after, op.Sub(size, 1)), [0])
        chosen, pair = choose_pivot(op, i, op.Abs(a), rows)
        pair = op.And(pair, op.Not(idle))
        chosen = op.Where(idle, i, chosen)
        place = op.Where(pair, after, i)
        a = transpose_matrix(op, exchange_rows(op, a, rows, place, chosen))
        a = exchange_rows(op, a, rows, place, chosen)
        x, y = column(op, a, at), column(op, a, behind)
        one, between, two = row(op, x, at), row(op, x, behind), row(op, y, behind)
        divisor = op.Where(op.Equal(one, 0.0), 1.0, one)
        alone = op.Where(op.Greater(rows, i), op.Div(x, divisor), 0.0)
        # scaled by the element between the two, as in LAPACK
        p, q = op.Div(two, between), op.Div(one, between)
        scale = op.Div(op.Reciprocal(op.Sub(op.Mul(p, q), 1.0)), between)
        below = op.And(pair, op.Greater(rows, after))
        left = op.Where(below, op.Mul(scale, op.Sub(op.Mul(p, x), y)), 0.0)
        right = op.Where(below, op.Mul(scale, op.Sub(op.Mul(q, y), x)), 0.0)
        left = op.Where(op.Or(pair, idle), left, alone)
        rest = op.Sub(a, op.Mul(left, transpose_matrix(op, x)))
        rest = op.Sub(rest, op.Mul(right, transpose_matrix(op, y)))
        here, next_one = op.Equal(rows, i), op.Equal(rows, after)
        kept = op.Where(here, one, op.Where(op.And(pair, next_one), between, left))
        is_here = op.And(op.Equal(columns, i), op.Not(idle))
        is_next = op.And(op.Equal(columns, after), pair)
        store = op.Where(is_here, kept, store)
        store = op.Where(is_next, op.Where(next_one, two, right), store)
        number = op.Add(chosen, 1)
        written = op.Or(op.And(here, op.Not(idle)), op.And(next_one, pair))
        pivots = op.Where(written, op.Where(pair, op.Neg(number), number), pivots)
        return [rest, store, pivots, pair]

    # every column of the matrix is overwritten
    _, store, pivots, _ = op.loop(size, [start, matrix, pivots, idle], eliminate_column)
    pivots = op.Squeeze(pivots, [-1])
    failed = op.And(op.Equal(diagonal(op, store), 0.0), op.Greater(pivots, 0))
    return store, op.cast(pivots, INT32), first_failure(op, failed)


@register(aten.linalg_ldl_factor_ex.default)
def aten_linalg_ldl_factor_ex(
    op: Builder, self: Value, hermitian: bool = False, check_errors: bool = False
) -> tuple[Value, Value, Value]:
    return _factorize_ldl(op, self)


@register(aten.linalg_ldl_factor.default)
def aten_linalg_ldl_factor(
    op: Builder, self: Value, hermitian: bool = False
) -> tuple[Value, Value]:
    return _factorize_ldl(op, self)[:2]


@register(aten.linalg_ldl_solve.default)
def aten_linalg_ldl_solve(
    op: Builder, LD: Value, pivots: Value, B: Value, hermitian: bool = False
) -> Value:
    """Exchanges rows and eliminates L forwards, D, then the same backwards (LAPACK's sytrs).

    Paired rows have negative pivots; an odd number of these up to a row means that the row is the
    first of its pair.
    """
    size = op.size(LD, -1)
    rows, columns = row_numbers(op, size), range_of_length(op, 0, size)
    numbers = op.Unsqueeze(op.cast(pivots, INT64), [-1])
    negative = op.Less(numbers, 0)
    count = op.CumSum(op.cast(negative, INT64), op.rank(numbers) - 2)
    first = op.And(negative, op.Equal(op.Mod(count, 2), 1))
    second = op.And(negative, op.Not(first))
    chosen = op.Where(second, rows, op.Sub(op.Abs(numbers), 1))
    places = op.Where(first, op.Add(rows, 1), rows)
    inner = op.And(op.Equal(rows, op.Add(columns, 1)), transpose_matrix(op, first))
    strict = op.Where(inner, 0.0, op.Trilu(LD, -1, upper=0))

    def substitute_forward(i: Value, x: Value) -> tuple[Value]:
        at = op.Unsqueeze(i, [0])
        x = exchange_rows(op, x, rows, row(op, places, at), row(op, chosen, at))
        return (op.Sub(x, op.Mul(column(op, strict, at), row(op, x, at))),)

    def substitute_backward(i: Value, x: Value) -> tuple[Value]:
        last = op.Sub(op.Sub(size, 1), i)
        at = op.Unsqueeze(last, [0])
        known = op.reduce("ReduceSum", op.Mul(column(op, strict, at), x), [-2], keepdims=True)
        x = op.Where(op.Equal(rows, last), op.Sub(x, known), x)
        return (exchange_rows(op, x, rows, row(op, places, at), row(op, chosen, at)),)

    x = op.loop(size, [as_batch(op, B, LD)], substitute_forward)[0]
    partner = op.Where(first, op.Add(rows, 1), op.Where(second, op.Sub(rows, 1), rows))
    own = diagonal(op, LD, keepdims=True)
    axis = op.rank(own) - 2
    other = annotate_shape(op.GatherElements(own, partner, axis=axis), list(own.shape or ()))
    met = op.And(op.Equal(columns, partner), op.Not(op.Equal(columns, rows)))
    both = op.Where(op.Greater(rows, columns), LD, transpose_matrix(op, LD))
    between = op.reduce("ReduceSum", op.Where(met, both, 0.0), [-1], keepdims=True)
    index = op.Expand(as_batch(op, partner, x), op.Shape(x))
    across = annotate_shape(op.GatherElements(x, index, axis=op.rank(x) - 2), list(x.shape or ()))
    determinant = op.Sub(op.Mul(own, other), op.Mul(between, between))
    pair = op.Div(op.Sub(op.Mul(other, x), op.Mul(between, across)), determinant)
    x = op.Where(negative, pair, op.Div(x, own))
    return op.loop(size, [x], substitute_backward)[0]
