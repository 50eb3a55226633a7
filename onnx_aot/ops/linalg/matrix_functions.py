"""Functions of square matrices, computed by power series."""

from __future__ import annotations

import math

import onnx_ir as ir

from onnx_aot.builder.builder import Builder
from onnx_aot.ops.linalg.matrices import on_diagonal
from onnx_aot.ops.registry import LIMITS, register
from onnx_aot.torch_compat import aten

__all__: list[str] = []

Value = ir.Value
INT64 = ir.DataType.INT64

SERIES = {ir.DataType.FLOAT: (3.0, 18), ir.DataType.DOUBLE: (1.0, 20)}
"""Largest norm of a matrix in the series, and the number of terms for it, by type."""

HALVINGS = 1100
"""More than the exponents of any type; infinite norms are halved this often."""


def _compute_exponential(op: Builder, matrix: Value) -> Value:
    """Scaling and squaring (Higham 2005), with a Taylor series as in torch.

    ``exp(A) = exp(A / 2^s)^(2^s)``, with s chosen for each matrix of a batch so that its norm is in
    the series' range. Squaring goes on as long as any matrix needs it.
    """
    size, rank = op.size(matrix, -1), op.rank(matrix)
    one = op.cast(on_diagonal(op, size, size), matrix.dtype)
    assert matrix.dtype is not None
    largest, terms = SERIES[matrix.dtype]
    columns = op.reduce("ReduceSum", op.Abs(matrix), [-2], keepdims=True)
    # padded with a column, because a maximum of nothing is an error
    columns = op.Pad(columns, [0] * (2 * rank - 1) + [1], largest)
    bound = op.reduce("ReduceMax", columns, [-1], keepdims=True)
    halvings = op.Ceil(op.Div(op.Log(op.Div(bound, largest)), math.log(2)))
    halvings = op.Min(halvings, float(HALVINGS))
    scaled = op.Mul(matrix, op.Pow(op.cast(0.5, matrix.dtype), halvings))

    def add(i: Value, total: Value) -> tuple[Value]:
        divisor = op.cast(op.Sub(terms, i), matrix.dtype)
        return (op.Add(one, op.Div(op.MatMul(scaled, total), divisor)),)

    series = op.loop(terms, [op.Add(op.Mul(scaled, 0.0), one)], add)[0]
    return _square_repeatedly(op, series, op.cast(halvings, INT64))


def _square_repeatedly(op: Builder, series: Value, times: Value) -> Value:
    """Squares each matrix as many times as ``times`` says."""

    def needs_squaring(done: Value) -> Value:
        left = op.cast(op.Greater(times, done), INT64)
        return op.Greater(op.reduce("ReduceSum", left, None, keepdims=False), 0)

    def square(i: Value, power: Value) -> tuple[Value, Value]:
        power = op.Where(op.Greater(times, i), op.MatMul(power, power), power)
        return needs_squaring(op.Add(i, 1)), power

    first = needs_squaring(op.constant(0))
    return op.loop(HALVINGS, [series], square, condition=first)[0]


LIMITS[aten.linalg_matrix_exp.default] = (
    "elements that are small against the largest one differ by the rounding errors of that one; "
    "float16 and bfloat16 are computed as float32, while torch's own series goes wrong for them"
)


@register(aten.linalg_matrix_exp.default)
def aten_linalg_matrix_exp(op: Builder, self: Value) -> Value:
    """Computes half precision as FLOAT: its powers overflow, and its series has few digits."""
    if self.dtype in SERIES:
        return _compute_exponential(op, self)
    return op.cast(_compute_exponential(op, op.cast(self, ir.DataType.FLOAT)), self.dtype)
