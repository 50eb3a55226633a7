"""Scaled dot-product attention."""

from __future__ import annotations

import math

import onnx_ir as ir
import torch

from onnx_aot.builder.builder import Builder
from onnx_aot.ops.core.movement import swap_axes
from onnx_aot.ops.core.size_math import as_value
from onnx_aot.ops.random.uniform_and_normal import drop
from onnx_aot.ops.registry import FLOATING, LIMITS, REPORTED, register
from onnx_aot.torch_compat import aten

__all__ = ["repeat_heads"]

Value = ir.Value
BOOL = ir.DataType.BOOL


@register(aten.scaled_dot_product_attention.default)
def aten_scaled_dot_product_attention(
    op: Builder,
    query: Value,
    key: Value,
    value: Value,
    attn_mask: Value | None = None,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    scale: float | None = None,
    enable_gqa: bool = False,
) -> Value:
    """``softmax(q k^T * scale + mask) v``; a row whose mask admits no key gives zeros.

    Boolean masks keep a score where they are true. They are added to the scores as 0 or as a number
    so low that the exponential of the sum is 0. The number is finite, so that a row without keys
    still has weights, and one product zeroes its result; this costs half as much as a Where.
    """
    if enable_gqa:
        key, value = repeat_heads(op, query, key), repeat_heads(op, query, value)
    factor = _attention_scale(op, query, scale)
    scaled = query if factor == 1.0 else op.Mul(query, factor)
    scores = op.MatMul(scaled, swap_axes(op, key, -2, -1))
    admitted = kept = None
    if is_causal:
        scores = op.Add(scores, _make_causal_bias(op, query, key))
    elif attn_mask is not None:
        if attn_mask.dtype == BOOL and op.result_dtype in _LOW:
            scores = op.Add(scores, op.Where(attn_mask, 0.0, _make_mask_bias(op)))
            kept = op.Min(_count_admitted(op, attn_mask), 1.0)
        else:
            bias, admitted = _convert_mask_to_bias(op, attn_mask)
            scores = op.Add(scores, bias)
    weights = op.Softmax(scores, axis=-1)
    if dropout_p > 0.0:
        weights = drop(op, weights, dropout_p)
    attended: Value = op.MatMul(weights, value)
    if kept is not None:
        return op.Mul(attended, kept)
    if admitted is not None:
        attended = op.Where(admitted, attended, 0.0)
    return attended


LIMITS[aten.scaled_dot_product_attention.default] = (
    "where all scores of a query are NaN, zeros may come instead of NaN or the other way round, "
    "as among the kernels of torch"
)
REPORTED[aten.scaled_dot_product_attention.default] = FLOATING


# Half of the lowest value, so that adding a score does not overflow. Float16 has no such number.
_LOW = {
    ir.DataType.FLOAT: torch.finfo(torch.float32).min / 2,
    ir.DataType.BFLOAT16: torch.finfo(torch.bfloat16).min / 2,
    ir.DataType.DOUBLE: torch.finfo(torch.float64).min / 2,
}


def _make_mask_bias(op: Builder) -> Value:
    """Bias for the score of a key that is not admitted."""
    assert op.result_dtype is not None
    return op.constant(_LOW[op.result_dtype], op.result_dtype)


def _attention_scale(op: Builder, query: Value, scale: float | None) -> float | Value:
    """One over the square root of the width, unless a scale is given."""
    if scale is not None:
        return scale
    width = op.size(query, -1)
    if isinstance(width, int):
        return 1.0 / math.sqrt(width) if width else 1.0
    return op.Reciprocal(op.Sqrt(op.cast(width, op.result_dtype)))


def _convert_mask_to_bias(op: Builder, mask: Value) -> tuple[Value, Value]:
    """Bias to add to the scores, and per row a flag that is true if any key is admitted."""
    minus_infinity = op.constant(float("-inf"), op.result_dtype)
    if mask.dtype == BOOL:
        bias = op.Where(mask, 0.0, minus_infinity)
    else:
        bias = op.cast(mask, op.result_dtype)
    finite = mask if mask.dtype == BOOL else op.Not(op.Equal(bias, minus_infinity))
    return bias, op.Greater(_count_admitted(op, finite), 0.0)


def _count_admitted(op: Builder, mask: Value) -> Value:
    """Numbers of admitted keys, ``[..., 1]``.

    A sum, since ONNX Runtime's symbolic shape inference, which its optimizers and quantizers begin
    with, does not know ReduceMax. The numbers come from constants instead of a Cast, whose type
    onnxconverter_common does not change when it converts a model to float16.
    """
    one, zero = (op.constant(number, op.result_dtype) for number in (1.0, 0.0))
    return op.reduce("ReduceSum", op.Where(mask, one, zero), [-1], True)


def _make_causal_bias(op: Builder, query: Value, key: Value) -> Value:
    """Bias with which row i admits keys 0 to i."""
    rows, columns = op.size(query, -2), op.size(key, -2)
    row = op.Unsqueeze(op.Range(0, rows, 1), [1])
    column = op.Range(0, columns, 1)
    minus_infinity = op.constant(float("-inf"), op.result_dtype)
    return op.Where(op.LessOrEqual(column, row), 0.0, minus_infinity)


def repeat_heads(op: Builder, query: Value, value: Value) -> Value:
    """Repeats each key-value head once for every query head that shares it."""
    heads, groups = op.size(query, -3), op.size(value, -3)
    if isinstance(heads, int) and isinstance(groups, int):
        if heads == groups:
            return value
        times = heads // groups
        index = torch.arange(groups).repeat_interleave(times)
        return op.Gather(value, index, axis=op.rank(value) - 3)
    count = op.Div(as_value(op, heads), groups)
    position = op.Div(op.Range(0, heads, 1), count)
    return op.Gather(value, position, axis=op.rank(value) - 3)
