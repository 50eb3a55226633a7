"""Norms of matrices, condition numbers, and ``linalg.norm``, which also takes vectors.

Torch's own rules ask whether a matrix has elements, which a dynamic size does not tell.
"""

from __future__ import annotations

import math
from typing import Any

import onnx_ir as ir

from onnx_aot.builder.builder import Builder
from onnx_aot.ops.core.movement import move_axis
from onnx_aot.ops.core.reduction import Axes, reduce_extreme
from onnx_aot.ops.linalg.jacobi import aten_linalg_svdvals
from onnx_aot.ops.linalg.products_and_norms import reduce_vector_norm
from onnx_aot.ops.linalg.solvers import aten_linalg_inv_ex
from onnx_aot.ops.registry import register
from onnx_aot.torch_compat import aten

__all__: list[str] = []

Value = ir.Value


def _reduce_matrices(op: Builder, value: Value, ord: Any, dim: Any, keepdim: bool) -> Value:
    rows, columns = (op.axis(value, axis) for axis in dim)
    if ord == "fro":
        return op.reduce("ReduceL2", value, [rows, columns], keepdim)
    if ord == "nuc" or abs(ord) == 2:
        return _reduce_singular_values(op, value, ord, rows, columns, keepdim)
    # The largest or smallest sum of a column for 1 and -1, of a row for the infinities.
    added, compared = (columns, rows) if math.isinf(ord) else (rows, columns)
    sums = op.reduce("ReduceL1", value, [added], keepdims=True)
    extreme = reduce_extreme(op, "ReduceMax" if ord > 0 else "ReduceMin", sums, [compared], True)
    return extreme if keepdim else op.Squeeze(extreme, sorted([rows, columns]))


def _reduce_singular_values(
    op: Builder, value: Value, ord: Any, rows: int, columns: int, keepdim: bool
) -> Value:
    """Sum of the singular values, or the largest or smallest of them."""
    last = op.rank(value) - 1
    matrices = move_axis(op, value, rows, last)
    matrices = move_axis(op, matrices, columns - 1 if columns > rows else columns, last)
    values = aten_linalg_svdvals(op, matrices)
    if ord == "nuc":
        found = op.reduce("ReduceSum", values, [-1], keepdims=False)
    else:
        found = reduce_extreme(op, "ReduceMax" if ord > 0 else "ReduceMin", values, [-1], False)
    return op.Unsqueeze(found, sorted([rows, columns])) if keepdim else found


@register(aten.linalg_matrix_norm.default, aten.linalg_matrix_norm.str_ord)
def aten_linalg_matrix_norm(
    op: Builder,
    self: Value,
    ord: Any = "fro",
    dim: Any = (-2, -1),
    keepdim: bool = False,
    dtype: Any = None,
) -> Value:
    """Frobenius or nuclear norm, or those of order 1, 2 and infinity, or their negatives."""
    return _reduce_matrices(op, op.cast(self, op.result_dtype), ord, dim, keepdim)


@register(aten.linalg_norm.default, aten.linalg_norm.ord_str)
def aten_linalg_norm(
    op: Builder,
    self: Value,
    ord: Any = None,
    dim: Axes = None,
    keepdim: bool = False,
    dtype: Any = None,
) -> Value:
    """The matrix norm for two axes or a matrix with an order, else the vector norm."""
    axes = [dim] if isinstance(dim, int) else dim
    value = op.cast(self, op.result_dtype)
    if ord is None:
        return reduce_vector_norm(op, value, 2, axes, keepdim)
    if axes is None and op.rank(value) == 2:
        axes = [0, 1]
    if axes is not None and len(axes) == 2:
        return _reduce_matrices(op, value, ord, axes, keepdim)
    return reduce_vector_norm(op, value, ord, axes, keepdim)


@register(aten.linalg_cond.default, aten.linalg_cond.p_str)
def aten_linalg_cond(op: Builder, self: Value, p: Any = None) -> Value:
    """The norm of a matrix times that of its inverse, which is infinite for a singular matrix."""
    if p == "nuc" or p is None or abs(p if isinstance(p, (int, float)) else 0) == 2:
        values = aten_linalg_svdvals(op, self)
        if p == "nuc":
            inverse = op.reduce("ReduceSum", op.Reciprocal(values), [-1], False)
            return op.Mul(op.reduce("ReduceSum", values, [-1], False), inverse)
        largest, smallest = (op.Gather(values, op.constant(i), axis=-1) for i in (0, -1))
        return op.Div(smallest, largest) if p == -2 else op.Div(largest, smallest)
    inverse, info = aten_linalg_inv_ex(op, self)
    singular = op.Unsqueeze(op.Greater(info, 0), [-2, -1])
    inverse = op.Where(singular, math.inf, inverse)
    norms = [_reduce_matrices(op, matrix, p, (-2, -1), False) for matrix in (self, inverse)]
    number = op.Mul(*norms)
    return op.Where(op.IsNaN(number), math.inf, number)
