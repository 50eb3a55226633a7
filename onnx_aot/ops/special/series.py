"""Polynomials and series of a tensor, the building blocks of special functions."""

from __future__ import annotations

from collections.abc import Sequence

import onnx_ir as ir

from onnx_aot.builder.builder import Builder

__all__ = ["add_each", "log1p", "polynomial"]

Value = ir.Value


def polynomial(op: Builder, x: Value, coefficients: Sequence[float]) -> Value:
    """``c[0] + c[1] x + ...`` by Horner's rule."""
    total = op.constant(coefficients[-1], x.dtype)
    for coefficient in reversed(coefficients[:-1]):
        total = op.Add(op.Mul(total, x), coefficient)
    return total


def log1p(op: Builder, x: Value) -> Value:
    """``log(u) x / (u - 1)`` with the rounded ``u = 1 + x`` (Goldberg 1991, theorem 4)."""
    u = op.Add(x, 1.0)
    corrected = op.Div(op.Mul(op.Log(u), x), op.Sub(u, 1.0))
    unchanged = op.Or(op.Equal(u, 1.0), op.Equal(x, u))
    return op.Where(unchanged, op.Where(op.Equal(u, 1.0), x, op.Log(u)), corrected)


def add_each(op: Builder, x: Value, numbers: Sequence[float]) -> Value:
    """``x + n`` for each of the numbers, along a new last axis."""
    return op.Add(op.Unsqueeze(x, [op.rank(x)]), op.constant(list(numbers), x.dtype))
