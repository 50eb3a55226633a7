"""Functions of square matrices that are power series."""

from __future__ import annotations

import math

import onnx_ir as ir
import torch

from onnx_aot.ops.builder import Builder
from onnx_aot.ops.matrices import on_diagonal
from onnx_aot.ops.registry import register

__all__: list[str] = []

aten = torch.ops.aten
Value = ir.Value
INT64 = ir.DataType.INT64

TERMS = {ir.DataType.FLOAT: 12, ir.DataType.DOUBLE: 20}
"""Terms of the series that count for a matrix whose norm is at most 1."""

HALVINGS = 1100
"""More than the exponents of any type; infinite norms would ask for as many."""


def _exponential(op: Builder, matrix: Value) -> Value:
    """Scaling and squaring (Higham 2005), with Taylor's series as torch has it.

    ``exp(A) = exp(A / 2^s)^(2^s)``, where s is for each matrix of a batch such that the norm is at
    most 1. Squaring goes on as long as one of them needs it.
    """
    size = op.size(matrix, -1)
    one = op.cast(on_diagonal(op, size, size), matrix.dtype)
    columns = op.reduce("ReduceSum", op.Abs(matrix), [-2], keepdims=True)
    # the norm as a power mean: a maximum of nothing is an error
    bound = op.reduce("ReduceL2", columns, [-1], keepdims=True)
    halvings = op.Ceil(op.Div(op.Log(op.Max(bound, 1.0)), math.log(2)))
    halvings = op.Min(halvings, float(HALVINGS))
    scaled = op.Mul(matrix, op.Pow(op.cast(0.5, matrix.dtype), halvings))
    terms = TERMS.get(matrix.dtype or ir.DataType.FLOAT, 20)

    def add(i: Value, total: Value) -> tuple[Value]:
        divisor = op.cast(op.Sub(terms, i), matrix.dtype)
        return (op.Add(one, op.Div(op.MatMul(scaled, total), divisor)),)

    series = op.loop(terms, [op.Add(op.Mul(scaled, 0.0), one)], add)[0]
    return _squared(op, series, op.cast(halvings, INT64))


def _squared(op: Builder, series: Value, times: Value) -> Value:
    """Each matrix squared as many times as its number says."""

    def more(done: Value) -> Value:
        left = op.cast(op.Greater(times, done), INT64)
        return op.Greater(op.reduce("ReduceSum", left, None, keepdims=False), 0)

    def square(i: Value, power: Value) -> tuple[Value, Value]:
        power = op.Where(op.Greater(times, i), op.MatMul(power, power), power)
        return more(op.Add(i, 1)), power

    first = more(op.constant(0))
    return op.loop(HALVINGS, [series], square, condition=first)[0]


@register(aten.linalg_matrix_exp.default)
def aten_linalg_matrix_exp(op: Builder, self: Value) -> Value:
    return _exponential(op, self)
