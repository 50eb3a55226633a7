"""Computes with sizes that are known during export or only at run time."""

from __future__ import annotations

import onnx_ir as ir

from onnx_aot.builder.builder import Builder, Size

__all__ = [
    "add_sizes",
    "as_value",
    "divide_size",
    "largest",
    "multiply_sizes",
    "product",
    "subtract_sizes",
]


def add_sizes(op: Builder, left: Size, right: Size) -> Size:
    """``left + right``."""
    if isinstance(left, int) and isinstance(right, int):
        return left + right
    total: ir.Value = op.Add(left, right)
    return total


def subtract_sizes(op: Builder, left: Size, right: Size) -> Size:
    """``left - right``."""
    if isinstance(left, int) and isinstance(right, int):
        return left - right
    difference: ir.Value = op.Sub(left, right)
    return difference


def multiply_sizes(op: Builder, left: Size, right: Size) -> Size:
    """``left * right``."""
    if isinstance(left, int) and isinstance(right, int):
        return left * right
    result: ir.Value = op.Mul(left, right)
    return result


def divide_size(op: Builder, size: Size, divisor: Size) -> Size:
    """``size // divisor`` for a non-negative size."""
    if isinstance(size, int) and isinstance(divisor, int):
        return size // divisor
    quotient: ir.Value = op.Div(size, divisor)
    return quotient


def largest(op: Builder, sizes: list[Size]) -> Size:
    """The largest of some sizes."""
    known = [size for size in sizes if isinstance(size, int)]
    others = [size for size in sizes if not isinstance(size, int)]
    if not others:
        return max(known)
    computed: list[Size] = [*([max(known)] if known else []), *others]
    result = computed[0]
    for size in computed[1:]:
        result = op.Max(result, size)
    return result


def product(op: Builder, sizes: list[Size]) -> Size:
    """Multiplies all sizes; 1 if there are none."""
    result: Size = 1
    for size in sizes:
        result = multiply_sizes(op, result, size)
    return result


def as_value(op: Builder, size: Size) -> ir.Value:
    """Returns the size as a 0-d INT64 value."""
    return size if isinstance(size, ir.Value) else op.constant(size, ir.DataType.INT64)
