"""Translates operators that make tensors from sizes and numbers."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import onnx_ir as ir
import torch

from onnx_aot import dtypes
from onnx_aot.builder.builder import Builder, Size
from onnx_aot.builder.peephole import FOLD_LIMIT
from onnx_aot.dtypes import is_floating
from onnx_aot.ops.registry import register
from onnx_aot.torch_compat import aten, int64_ranges_truncate_their_bounds

__all__: list[str] = []

Value = ir.Value
DOUBLE = ir.DataType.DOUBLE
INT64 = ir.DataType.INT64


def make_full(op: Builder, sizes: Sequence[Size], value: Any, dtype: ir.DataType) -> Value:
    """Returns a tensor filled with a number, which may be a 0-d value of the graph."""
    return op.Expand(op.cast(value, dtype), op.sizes(sizes))


def make_full_like(op: Builder, like: Value, value: Any) -> Value:
    """Returns a tensor filled with a number, in another's shape and the recorded type."""
    return op.Expand(op.cast(value, op.result_dtype), op.Shape(like))


@register(aten.full.default)
def aten_full(op: Builder, size: Sequence[Size], fill_value: Any, dtype: Any = None) -> Value:
    return make_full(op, size, fill_value, op.result_dtype)


@register(aten.zeros.default, aten.empty.memory_format)
def aten_zeros(op: Builder, size: Sequence[Size], dtype: Any = None) -> Value:
    """The contents of ``empty`` are undefined in torch; here they are zeros."""
    return make_full(op, size, 0, op.result_dtype)


@register(aten.empty_strided.default)
def aten_empty_strided(
    op: Builder, size: Sequence[Size], stride: Sequence[Size], dtype: Any = None
) -> Value:
    return make_full(op, size, 0, op.result_dtype)


@register(aten.empty_permuted.default)
def aten_empty_permuted(
    op: Builder, size: Sequence[Size], physical_layout: Sequence[int], dtype: Any = None
) -> Value:
    return make_full(op, size, 0, op.result_dtype)


@register(aten.ones.default)
def aten_ones(op: Builder, size: Sequence[Size], dtype: Any = None) -> Value:
    return make_full(op, size, 1, op.result_dtype)


@register(aten.full_like.default)
def aten_full_like(op: Builder, self: Value, fill_value: Any, dtype: Any = None) -> Value:
    return make_full_like(op, self, fill_value)


@register(aten.zeros_like.default, aten.empty_like.default)
def aten_zeros_like(op: Builder, self: Value, dtype: Any = None) -> Value:
    return make_full_like(op, self, 0)


@register(aten.ones_like.default)
def aten_ones_like(op: Builder, self: Value, dtype: Any = None) -> Value:
    return make_full_like(op, self, 1)


@register(aten.new_full.default)
def aten_new_full(
    op: Builder, self: Value, size: Sequence[Size], fill_value: Any, dtype: Any = None
) -> Value:
    return make_full(op, size, fill_value, op.result_dtype)


@register(aten.new_zeros.default, aten.new_empty.default)
def aten_new_zeros(op: Builder, self: Value, size: Sequence[Size], dtype: Any = None) -> Value:
    return make_full(op, size, 0, op.result_dtype)


@register(aten.new_empty_strided.default)
def aten_new_empty_strided(
    op: Builder, self: Value, size: Sequence[Size], stride: Sequence[Size], dtype: Any = None
) -> Value:
    return make_full(op, size, 0, op.result_dtype)


@register(aten.new_ones.default)
def aten_new_ones(op: Builder, self: Value, size: Sequence[Size], dtype: Any = None) -> Value:
    return make_full(op, size, 1, op.result_dtype)


@register(aten.fill.Scalar, aten.fill.Tensor)
def aten_fill(op: Builder, self: Value, value: Any) -> Value:
    return make_full_like(op, self, value)


@register(aten.zero.default)
def aten_zero(op: Builder, self: Value) -> Value:
    return make_full_like(op, self, 0)


@register(aten.scalar_tensor.default)
def aten_scalar_tensor(op: Builder, s: Any, dtype: Any = None) -> Value:
    return make_full(op, [], s, op.result_dtype)


@register(aten.arange.default)
def aten_arange(op: Builder, end: Any, dtype: Any = None) -> Value:
    return _emit_arange(op, 0, end, 1)


@register(aten.arange.start)
def aten_arange_start(op: Builder, start: Any, end: Any, dtype: Any = None) -> Value:
    return _emit_arange(op, start, end, 1)


@register(aten.arange.start_step)
def aten_arange_start_step(
    op: Builder, start: Any, end: Any, step: Any = 1, dtype: Any = None
) -> Value:
    return _emit_arange(op, start, end, step)


def _emit_arange(op: Builder, start: Any, end: Any, step: Any) -> Value:
    """``start + i step``, counted in INT64 or DOUBLE, then cast.

    Range takes FLOAT, DOUBLE, INT16, INT32 and INT64 only, and FLOAT steps would accumulate errors.
    Elements of an integral result are computed from truncated bounds, but its length from the given
    bounds. On some releases of torch the length for INT64 is computed from truncated bounds, too.
    """
    bounds = (start, end, step)
    truncated = all(map(_is_integer, bounds))
    dtype = op.result_dtype
    if truncated or (dtype == INT64 and int64_ranges_truncate_their_bounds()):
        return op.cast(_emit_range(op, bounds, INT64), dtype)
    if is_floating(dtype):
        return op.cast(_emit_range(op, bounds, DOUBLE), dtype)
    index = _emit_range(op, (0, _count_steps(op, *bounds), 1), INT64)
    counted = op.Add(op.cast(start, INT64), op.Mul(index, op.cast(step, INT64)))
    return op.cast(counted, dtype)


def _emit_range(op: Builder, bounds: Sequence[Any], dtype: ir.DataType) -> Value:
    counted: Value = op.Range(*(op.cast(bound, dtype) for bound in bounds))
    return counted


def _count_steps(op: Builder, start: Any, end: Any, step: Any) -> Value:
    """Returns the number of steps to the end."""
    way = op.Sub(op.cast(end, DOUBLE), op.cast(start, DOUBLE))
    return op.cast(op.Ceil(op.Div(way, op.cast(step, DOUBLE))), INT64)


def _is_integer(bound: Any) -> bool:
    return bound.dtype == INT64 if isinstance(bound, ir.Value) else isinstance(bound, int)


@register(
    aten.linspace.default,
    aten.linspace.Scalar_Tensor,
    aten.linspace.Tensor_Scalar,
    aten.linspace.Tensor_Tensor,
)
def aten_linspace(op: Builder, start: Any, end: Any, steps: int, dtype: Any = None) -> Value:
    """``start + i step`` in the first half, ``end + (i - steps + 1) step`` in the second.

    This makes the first and the last element exact, as in torch. For an integral result the ends
    are truncated, but the step keeps its fraction.
    """
    known = isinstance(start, (int, float)) and isinstance(end, (int, float))
    if known and steps <= FOLD_LIMIT:
        dtype = dtypes.to_torch(op.result_dtype)
        return op.constant(torch.linspace(start, end, steps, dtype=dtype, device="cpu"))
    if not is_floating(op.result_dtype):
        start, end = op.cast(start, INT64), op.cast(end, INT64)
    first, last = op.cast(start, DOUBLE), op.cast(end, DOUBLE)
    step = op.Div(op.Sub(last, first), float(max(steps - 1, 1)))
    index = _emit_range(op, (0, steps, 1), INT64)
    in_first_half = op.Less(index, max(steps // 2, 1))
    position = op.cast(op.Where(in_first_half, index, op.Sub(index, steps - 1)), DOUBLE)
    end_point = op.Where(in_first_half, first, last)
    return op.cast(op.Add(end_point, op.Mul(position, step)), op.result_dtype)


@register(aten.eye.default)
def aten_eye(op: Builder, n: Size, dtype: Any = None) -> Value:
    return _emit_eye(op, n, n)


@register(aten.eye.m)
def aten_eye_m(op: Builder, n: Size, m: Size, dtype: Any = None) -> Value:
    return _emit_eye(op, n, m)


def _emit_eye(op: Builder, rows: Size, columns: Size) -> Value:
    dtype = op.result_dtype
    if isinstance(rows, int) and isinstance(columns, int) and rows * columns <= FOLD_LIMIT:
        return op.constant(torch.eye(rows, columns, dtype=dtypes.to_torch(dtype), device="cpu"))
    return op.EyeLike(make_full(op, [rows, columns], 0, dtype))


def _emit_trilu(op: Builder, value: Value, diagonal: Any, upper: int) -> Value:
    return op.Trilu(value, None if diagonal == 0 else diagonal, upper=upper)


@register(aten.tril.default)
def aten_tril(op: Builder, self: Value, diagonal: Any = 0) -> Value:
    return _emit_trilu(op, self, diagonal, 0)


@register(aten.triu.default)
def aten_triu(op: Builder, self: Value, diagonal: Any = 0) -> Value:
    return _emit_trilu(op, self, diagonal, 1)
