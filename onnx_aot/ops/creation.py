"""Tensors made from sizes and numbers."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import onnx_ir as ir
import torch

from onnx_aot.ops.builder import Builder, Size
from onnx_aot.ops.registry import register

__all__: list[str] = []

aten = torch.ops.aten
Value = ir.Value


def filled(op: Builder, sizes: Sequence[Size], value: Any, dtype: ir.DataType) -> Value:
    """A tensor of one number, which may be a 0-d value of the graph."""
    if isinstance(value, ir.Value):
        return op.Expand(op.cast(value, dtype), op.sizes(sizes))
    shape = op.sizes(sizes)
    if not sizes:
        return op.constant(value, dtype)
    return op.Expand(op.constant(value, dtype), shape)


@register(aten.full.default)
def aten_full(op: Builder, size: Sequence[Size], fill_value: Any, dtype: Any = None) -> Value:
    return filled(op, size, fill_value, op.result_dtype)


@register(aten.zeros.default, aten.empty.memory_format)
def aten_zeros(op: Builder, size: Sequence[Size], dtype: Any = None) -> Value:
    """What ``empty`` holds is not defined; here it is zeros."""
    return filled(op, size, 0, op.result_dtype)


@register(aten.ones.default)
def aten_ones(op: Builder, size: Sequence[Size], dtype: Any = None) -> Value:
    return filled(op, size, 1, op.result_dtype)


@register(aten.full_like.default)
def aten_full_like(op: Builder, self: Value, fill_value: Any, dtype: Any = None) -> Value:
    return filled(op, op.all_sizes(self), fill_value, op.result_dtype)


@register(aten.zeros_like.default, aten.empty_like.default)
def aten_zeros_like(op: Builder, self: Value, dtype: Any = None) -> Value:
    return filled(op, op.all_sizes(self), 0, op.result_dtype)


@register(aten.ones_like.default)
def aten_ones_like(op: Builder, self: Value, dtype: Any = None) -> Value:
    return filled(op, op.all_sizes(self), 1, op.result_dtype)


@register(aten.new_full.default)
def aten_new_full(
    op: Builder, self: Value, size: Sequence[Size], fill_value: Any, dtype: Any = None
) -> Value:
    return filled(op, size, fill_value, op.result_dtype)


@register(aten.new_zeros.default, aten.new_empty.default)
def aten_new_zeros(op: Builder, self: Value, size: Sequence[Size], dtype: Any = None) -> Value:
    return filled(op, size, 0, op.result_dtype)


@register(aten.new_ones.default)
def aten_new_ones(op: Builder, self: Value, size: Sequence[Size], dtype: Any = None) -> Value:
    return filled(op, size, 1, op.result_dtype)


@register(aten.fill.Scalar, aten.fill.Tensor)
def aten_fill(op: Builder, self: Value, value: Any) -> Value:
    return filled(op, op.all_sizes(self), value, op.result_dtype)


@register(aten.zero.default)
def aten_zero(op: Builder, self: Value) -> Value:
    return filled(op, op.all_sizes(self), 0, op.result_dtype)


@register(aten.scalar_tensor.default)
def aten_scalar_tensor(op: Builder, s: Any, dtype: Any = None) -> Value:
    return filled(op, [], s, op.result_dtype)


@register(aten.arange.default)
def aten_arange(op: Builder, end: Any, dtype: Any = None) -> Value:
    return _arange(op, 0, end, 1)


@register(aten.arange.start)
def aten_arange_start(op: Builder, start: Any, end: Any, dtype: Any = None) -> Value:
    return _arange(op, start, end, 1)


@register(aten.arange.start_step)
def aten_arange_start_step(
    op: Builder, start: Any, end: Any, step: Any = 1, dtype: Any = None
) -> Value:
    return _arange(op, start, end, step)


def _arange(op: Builder, start: Any, end: Any, step: Any) -> Value:
    """Counted in INT64 when the bounds are integers, in DOUBLE otherwise, then cast.

    Range takes FLOAT, DOUBLE, INT16, INT32 and INT64 only, and FLOAT steps would add up errors.
    """
    bounds = (start, end, step)
    if all(_is_integer(bound) for bound in bounds):
        counted = op.Range(*(_as(op, bound, ir.DataType.INT64) for bound in bounds))
        counted.shape = ir.Shape([None])
        return op.cast(counted, op.result_dtype)
    counted = op.Range(*(_as(op, bound, ir.DataType.DOUBLE) for bound in bounds))
    counted.shape = ir.Shape([None])
    return op.cast(counted, op.result_dtype)


def _is_integer(bound: Any) -> bool:
    if isinstance(bound, ir.Value):
        return bound.dtype == ir.DataType.INT64
    return isinstance(bound, int)


def _as(op: Builder, bound: Any, dtype: ir.DataType) -> Value:
    return op.cast(bound, dtype) if isinstance(bound, ir.Value) else op.constant(bound, dtype)


@register(aten.linspace.default)
def aten_linspace(op: Builder, start: Any, end: Any, steps: Size, dtype: Any = None) -> Value:
    """From both ends, so that the first and the last element are exact, as torch computes it."""
    double = ir.DataType.DOUBLE
    count = _as(op, steps, ir.DataType.INT64)
    index = op.Range(0, count, 1)
    index.shape = ir.Shape([None])
    first, last = _as(op, start, double), _as(op, end, double)
    gaps = op.cast(op.Max(op.Sub(count, 1), 1), double)
    step = op.Div(op.Sub(last, first), gaps)
    position = op.cast(index, double)
    from_start = op.Add(first, op.Mul(position, step))
    back = op.Sub(op.cast(op.Sub(count, 1), double), position)
    from_end = op.Sub(last, op.Mul(back, step))
    in_first_half = op.Or(
        op.Less(position, op.Div(op.cast(count, double), 2.0)), op.Equal(count, 1)
    )
    return op.cast(op.Where(in_first_half, from_start, from_end), op.result_dtype)


@register(aten.eye.default)
def aten_eye(op: Builder, n: Size, dtype: Any = None) -> Value:
    return _eye(op, n, n)


@register(aten.eye.m)
def aten_eye_m(op: Builder, n: Size, m: Size, dtype: Any = None) -> Value:
    return _eye(op, n, m)


def _eye(op: Builder, rows: Size, columns: Size) -> Value:
    frame = filled(op, [rows, columns], 0, ir.DataType.FLOAT)
    return op.EyeLike(frame, dtype=int(op.result_dtype))


def _triangle(op: Builder, value: Value, diagonal: Any, upper: int) -> Value:
    return op.Trilu(value, None if diagonal == 0 else diagonal, upper=upper)


@register(aten.tril.default)
def aten_tril(op: Builder, self: Value, diagonal: Any = 0) -> Value:
    return _triangle(op, self, diagonal, 0)


@register(aten.triu.default)
def aten_triu(op: Builder, self: Value, diagonal: Any = 0) -> Value:
    return _triangle(op, self, diagonal, 1)
