"""Parts of matrix algorithms; matrices lie in the last two axes, the others are batches."""

from __future__ import annotations

from typing import Any

import onnx_ir as ir

from onnx_aot.builder.builder import Builder, Size
from onnx_aot.ops.core.indexing import range_of_length
from onnx_aot.ops.core.movement import swap_axes

__all__ = [
    "as_batch",
    "column",
    "diagonal",
    "first_failure",
    "identity",
    "on_diagonal",
    "row",
    "row_numbers",
    "shorter_side",
    "transpose_matrix",
]

Value = ir.Value


def transpose_matrix(op: Builder, matrix: Value) -> Value:
    """Exchanges rows and columns."""
    return swap_axes(op, matrix, -2, -1)


def row_numbers(op: Builder, count: Size) -> Value:
    """``0, 1, ...`` as a column, which broadcasts with matrices of that many rows."""
    return op.Unsqueeze(range_of_length(op, 0, count), [1])


def shorter_side(op: Builder, rows: Size, columns: Size) -> Size:
    """The smaller of two sizes."""
    if isinstance(rows, int) and isinstance(columns, int):
        return min(rows, columns)
    smaller: Size = rows if rows is columns else op.Min(rows, columns)
    return smaller


def on_diagonal(op: Builder, rows: Size, columns: Size) -> Value:
    """Boolean mask of the diagonal."""
    return op.Equal(row_numbers(op, rows), range_of_length(op, 0, columns))


def identity(op: Builder, size: Size, dtype: ir.DataType | None) -> Value:
    """Identity matrix."""
    return op.cast(on_diagonal(op, size, size), dtype)


def diagonal(op: Builder, matrix: Value, keepdims: bool = False) -> Value:
    """Diagonal with one element per row, zeros beyond the end of a short one.

    Sums each row after replacing the other elements by zeros, so that those may be infinite.
    """
    mask = on_diagonal(op, op.size(matrix, -2), op.size(matrix, -1))
    return op.reduce("ReduceSum", op.Where(mask, matrix, 0.0), [-1], keepdims)


def row(op: Builder, matrix: Value, at: Value) -> Value:
    """Gathers rows at a 1-D index."""
    return op.Gather(matrix, at, axis=op.rank(matrix) - 2)


def column(op: Builder, matrix: Value, at: Value) -> Value:
    """Gathers columns at a 1-D index."""
    return op.Gather(matrix, at, axis=op.rank(matrix) - 1)


def as_batch(op: Builder, matrix: Value, other: Value) -> Value:
    """Repeats the matrix along the batch axes of another value."""
    if op.rank(other) <= 2 or list(matrix.shape or ())[:-2] == list(other.shape or ())[:-2]:
        return matrix
    batch = op.Concat(op.Shape(other, start=0, end=-2), [1, 1], axis=0)
    return op.Expand(matrix, batch)


def first_failure(op: Builder, failed: Any) -> Value:
    """LAPACK's ``info``: the first step that failed, counted from 1; 0 if none did."""
    failures = op.CumSum(op.cast(failed, ir.DataType.INT32), -1)
    before = op.reduce(
        "ReduceSum", op.cast(op.Equal(failures, 0), ir.DataType.INT32), [-1], keepdims=False
    )
    steps = op.cast(op.size(failed, -1), ir.DataType.INT32)
    return op.Where(op.Equal(before, steps), 0, op.Add(before, 1))
