"""Least squares."""

from __future__ import annotations

from typing import Any

import onnx_ir as ir

from onnx_aot.builder.builder import Builder
from onnx_aot.ops.linalg.jacobi import compute_tolerance, decompose_svd
from onnx_aot.ops.linalg.matrices import transpose_matrix
from onnx_aot.ops.registry import LIMITS, register
from onnx_aot.torch_compat import aten

__all__: list[str] = []

Value = ir.Value
INT64 = ir.DataType.INT64


@register(aten.linalg_lstsq.default)
def aten_linalg_lstsq(
    op: Builder,
    self: Value,
    b: Value,
    rcond: float | None = None,
    driver: str | None = None,
) -> tuple[Value, Value, Value, Value]:
    """The shortest ``x`` that minimizes ``|A x - b|``, by singular values with every driver.

    Residuals, rank and singular values are empty where the driver does not give them.
    """
    is_vector = op.rank(b) < op.rank(self)
    right = op.Unsqueeze(b, [-1]) if is_vector else b
    left, lengths, basis = decompose_svd(op, self, full=False)
    default = driver == "gels" or rcond is None or rcond < 0
    sizes = op.cast(lengths, ir.DataType.DOUBLE)
    counts = op.Greater(sizes, compute_tolerance(op, self, sizes, None, None if default else rcond))
    inverse = op.Where(counts, op.Reciprocal(op.Where(counts, lengths, 1.0)), 0.0)
    scaled = op.Mul(op.Unsqueeze(inverse, [-1]), transpose_matrix(op, left))
    solution = op.MatMul(basis, op.MatMul(scaled, right))
    rank = op.reduce("ReduceSum", op.cast(counts, INT64), [-1], keepdims=False)
    return (
        op.Squeeze(solution, [-1]) if is_vector else solution,
        _sum_residuals(op, self, solution, right),
        op.constant([], INT64) if driver == "gels" else rank,
        lengths if driver in ("gelsd", "gelss") else op.constant([], self.dtype),
    )


def _sum_residuals(op: Builder, matrix: Value, solution: Value, right: Value) -> Value:
    """Squared distances of the columns, empty if the recorded result is."""
    if _has_no_elements(op.result[1]):
        return op.constant([], matrix.dtype)
    distance = op.Sub(right, op.MatMul(matrix, solution))
    return op.reduce("ReduceSumSquare", distance, [-2], keepdims=False)


def _has_no_elements(recorded: Any) -> bool:
    return recorded.ndim == 1 and isinstance(recorded.shape[0], int) and recorded.shape[0] == 0


LIMITS[aten.linalg_lstsq.default] = (
    "the solution is the shortest one with every driver, as gelsy, gelsd and gelss define it; "
    "with gelsd and gelss, residuals are present also for matrices without full rank, for which "
    "eager returns none"
)
