"""Operators that PT2E quantization inserts: ``torch.ops.quantized_decomposed``.

They exist once ``torch.ao.quantization`` or torchao has been imported; this family is imported when
a graph has one of them.
"""

from __future__ import annotations

from typing import Any

import onnx_ir as ir
import torch

from onnx_aot import dtypes
from onnx_aot.builder.builder import Builder
from onnx_aot.ops.quantized.affine import AT_TIES, dequantize, quantize, reshape_to_scalar
from onnx_aot.ops.quantized.blocks import cast_to_four_bits
from onnx_aot.ops.registry import LIMITS, register

__all__: list[str] = []

decomposed = torch.ops.quantized_decomposed
Value = ir.Value
DOUBLE = ir.DataType.DOUBLE
FLOAT = ir.DataType.FLOAT
INT64 = ir.DataType.INT64


# --- per tensor ----------------------------------------------------------------------------------


@register(decomposed.quantize_per_tensor.default)
def quantize_per_tensor(
    op: Builder,
    input: Value,
    scale: float,
    zero_point: int,
    quant_min: int,
    quant_max: int,
    dtype: Any,
) -> Value:
    factor = reshape_to_scalar(op, scale, FLOAT)
    return quantize(op, input, factor, zero_point, quant_min, quant_max, op.result_dtype)


@register(decomposed.quantize_per_tensor.tensor)
def quantize_per_tensor_tensor(
    op: Builder,
    input: Value,
    scale: Value,
    zero_point: Value,
    quant_min: int,
    quant_max: int,
    dtype: Any,
) -> Value:
    factor, offset = reshape_to_scalar(op, scale, FLOAT), reshape_to_scalar(op, zero_point, INT64)
    return quantize(op, input, factor, offset, quant_min, quant_max, op.result_dtype)


@register(decomposed.quantize_per_tensor.tensor2)
def quantize_per_tensor_tensor2(
    op: Builder,
    input: Value,
    scale: Value,
    zero_point: Value,
    quant_min: Value,
    quant_max: Value,
    dtype: Any,
) -> Value:
    """The bounds are tensors too, so Clip does not have constant bounds."""
    factor, offset = reshape_to_scalar(op, scale, FLOAT), reshape_to_scalar(op, zero_point, FLOAT)
    scaled = op.Mul(op.cast(input, FLOAT), op.Reciprocal(factor))
    low, high = reshape_to_scalar(op, quant_min, FLOAT), reshape_to_scalar(op, quant_max, FLOAT)
    return op.cast(op.Clip(op.Add(op.Round(scaled), offset), low, high), op.result_dtype)


@register(decomposed.dequantize_per_tensor.default)
def dequantize_per_tensor(
    op: Builder,
    input: Value,
    scale: float,
    zero_point: int,
    quant_min: int,
    quant_max: int,
    dtype: Any,
    out_dtype: Any = None,
) -> Value:
    input = cast_to_four_bits(op, input, quant_min, quant_max)
    return dequantize(op, input, reshape_to_scalar(op, scale, FLOAT), zero_point, op.result_dtype)


@register(decomposed.dequantize_per_tensor.tensor, decomposed.dequantize_per_tensor.tensor2)
def dequantize_per_tensor_tensor(
    op: Builder,
    input: Value,
    scale: Value,
    zero_point: Value,
    quant_min: Any,
    quant_max: Any,
    dtype: Any,
    out_dtype: Any = None,
) -> Value:
    factor, offset = reshape_to_scalar(op, scale, FLOAT), reshape_to_scalar(op, zero_point, INT64)
    return dequantize(op, input, factor, offset, op.result_dtype)


# --- per channel ---------------------------------------------------------------------------------


@register(decomposed.quantize_per_channel.default)
def quantize_per_channel(
    op: Builder,
    input: Value,
    scales: Value,
    zero_points: Value,
    axis: int,
    quant_min: int,
    quant_max: int,
    dtype: Any,
) -> Value:
    factor, axis = op.cast(scales, FLOAT), op.axis(input, axis)
    return quantize(op, input, factor, zero_points, quant_min, quant_max, op.result_dtype, axis)


@register(decomposed.dequantize_per_channel.default)
def dequantize_per_channel(
    op: Builder,
    input: Value,
    scales: Value,
    zero_points: Value | None,
    axis: int,
    quant_min: int,
    quant_max: int,
    dtype: Any,
    out_dtype: Any = None,
) -> Value:
    input = cast_to_four_bits(op, input, quant_min, quant_max)
    factor, axis = op.cast(scales, FLOAT), op.axis(input, axis)
    return dequantize(op, input, factor, zero_points, op.result_dtype, axis)


@register(decomposed.fake_quant_per_channel.default)
def fake_quant_per_channel(
    op: Builder,
    input: Value,
    scales: Value,
    zero_points: Value,
    axis: int,
    quant_min: int,
    quant_max: int,
) -> Value:
    stored = ir.DataType.UINT8 if quant_min >= 0 else ir.DataType.INT8
    info = torch.iinfo(dtypes.to_torch(stored))
    if quant_min < info.min or quant_max > info.max:
        stored = ir.DataType.INT32
    factor, axis = op.cast(scales, FLOAT), op.axis(input, axis)
    offset = op.cast(zero_points, ir.DataType.INT32)
    integers = quantize(op, input, factor, offset, quant_min, quant_max, stored, axis)
    return dequantize(op, integers, factor, offset, op.result_dtype, axis)


# --- per token and per group ---------------------------------------------------------------------


def _quantize_rows(
    op: Builder, input: Value, scales: Value, zero_points: Value, low: int, high: int
) -> Value:
    """Rounds to integers with parameters that broadcast; adds the zero point before rounding."""
    work = DOUBLE if scales.dtype == DOUBLE else FLOAT
    scaled = op.Mul(op.cast(input, work), op.Reciprocal(op.cast(scales, work)))
    rounded = op.Round(op.Add(scaled, op.cast(zero_points, work)))
    return op.cast(op.Clip(rounded, float(low), float(high)), op.result_dtype)


def _dequantize_rows(op: Builder, input: Value, scales: Value, zero_points: Value | None) -> Value:
    work = DOUBLE if scales.dtype == DOUBLE else FLOAT
    numbers = op.cast(input, work)
    if zero_points is not None:
        numbers = op.Sub(numbers, op.cast(zero_points, work))
    return op.cast(op.Mul(numbers, op.cast(scales, work)), op.result_dtype)


@register(decomposed.quantize_per_token.default)
def quantize_per_token(
    op: Builder,
    input: Value,
    scales: Value,
    zero_points: Value,
    quant_min: int,
    quant_max: int,
    dtype: Any,
) -> Value:
    return _quantize_rows(op, input, scales, zero_points, quant_min, quant_max)


@register(decomposed.dequantize_per_token.default)
def dequantize_per_token(
    op: Builder,
    input: Value,
    scales: Value,
    zero_points: Value,
    quant_min: int,
    quant_max: int,
    dtype: Any,
    output_dtype: Any,
) -> Value:
    return _dequantize_rows(op, input, scales, zero_points)


def _clip_group_size(op: Builder, input: Value, scales: Value, group_size: int) -> int:
    """Size of a group; a row with a single scale is one group, even if it is shorter."""
    columns = op.size(input, -1)
    single = op.size(scales, -1) == 1
    if isinstance(columns, int) and single and group_size > columns:
        return columns
    return group_size


@register(decomposed.quantize_per_channel_group.default)
def quantize_per_channel_group(
    op: Builder,
    input: Value,
    scales: Value,
    zero_points: Value,
    quant_min: int,
    quant_max: int,
    dtype: Any,
    group_size: int,
) -> Value:
    """Cuts each row into groups that have their own parameters."""
    rows = op.Reshape(input, [-1, _clip_group_size(op, input, scales, group_size)])
    factors, offsets = op.Reshape(scales, [-1, 1]), op.Reshape(zero_points, [-1, 1])
    integers = _quantize_rows(op, rows, factors, offsets, quant_min, quant_max)
    return op.Reshape(integers, op.Shape(input))


@register(decomposed.dequantize_per_channel_group.default)
def dequantize_per_channel_group(
    op: Builder,
    input: Value,
    scales: Value,
    zero_points: Value | None,
    quant_min: int,
    quant_max: int,
    dtype: Any,
    group_size: int,
    output_dtype: Any,
) -> Value:
    """Emits DequantizeLinear with groups since opset 21, arithmetic otherwise."""
    size = _clip_group_size(op, input, scales, group_size)
    whole = zero_points is None or not dtypes.is_floating(zero_points.dtype)
    if (
        op.opset >= dtypes.FOUR_BITS_SINCE
        and whole
        and op.rank(scales) == 2
        and scales.dtype == FLOAT
    ):
        input = cast_to_four_bits(op, input, quant_min, quant_max)
        offset = None if zero_points is None else op.cast(zero_points, input.dtype)
        numbers = op.DequantizeLinear(input, scales, offset, axis=1, block_size=size)
        return op.cast(numbers, op.result_dtype)
    rows = op.Reshape(input, [-1, size])
    offsets = None if zero_points is None else op.Reshape(zero_points, [-1, 1])
    numbers = _dequantize_rows(op, rows, op.Reshape(scales, [-1, 1]), offsets)
    return op.Reshape(numbers, op.Shape(input))


# --- choosing the parameters ---------------------------------------------------------------------


def _find_range(op: Builder, input: Value) -> tuple[Value, Value]:
    """The least number or 0, and the largest number or 0."""
    low = op.Min(op.reduce("ReduceMin", input, None, False), 0.0)
    high = op.Max(op.reduce("ReduceMax", input, None, False), 0.0)
    return low, high


def _cast_qparams(op: Builder, scale: Value, zero_point: Any) -> list[Value]:
    """Scale and zero point as one element each, in the recorded types."""
    types = [dtypes.to_onnx(result.dtype) for result in op.result]
    return [
        op.cast(op.Reshape(value, [1]), dtype)
        for value, dtype in zip((scale, op.cast(zero_point, FLOAT)), types, strict=True)
    ]


@register(decomposed.choose_qparams.tensor)
def choose_qparams(
    op: Builder, input: Value, quant_min: int, quant_max: int, eps: float, dtype: Any
) -> list[Value]:
    """Grid that reaches from the least to the largest number and has 0 on it."""
    low, high = _find_range(op, input)
    scale = op.Div(op.Sub(high, low), float(quant_max - quant_min))
    scale = op.Max(op.cast(scale, FLOAT), float(eps))
    steps = op.Round(op.Div(op.cast(low, FLOAT), scale))
    zero_point = op.Clip(op.Sub(float(quant_min), steps), float(quant_min), float(quant_max))
    return _cast_qparams(op, scale, zero_point)


@register(decomposed.choose_qparams_symmetric.tensor)
def choose_qparams_symmetric(
    op: Builder, input: Value, quant_min: int, quant_max: int, eps: float, dtype: Any
) -> list[Value]:
    """Grid around 0 that reaches to the largest absolute number."""
    low, high = _find_range(op, input)
    reach = op.Max(op.Neg(low), high)
    scale = op.cast(op.Div(reach, float(quant_max - quant_min) / 2), FLOAT)
    middle = 128.0 if dtype in (torch.uint8, torch.quint8) else 0.0
    return _cast_qparams(op, op.Max(scale, float(eps)), op.constant(middle))


@register(decomposed.choose_qparams_per_token.default)
def choose_qparams_per_token(op: Builder, input: Value, dtype: Any) -> list[Value]:
    """Grid of int8 around 0, for each row."""
    reach = op.cast(op.reduce("ReduceMax", op.Abs(input), [-1], True), FLOAT)
    scale = op.Div(op.Max(reach, 1e-5), 127.0)
    types = [dtypes.to_onnx(result.dtype) for result in op.result]
    return [op.cast(scale, types[0]), op.cast(op.Mul(reach, 0.0), types[1])]


@register(
    decomposed.choose_qparams_per_token_asymmetric.default,
    decomposed._choose_qparams_per_token_asymmetric_impl.default,
)
def choose_qparams_per_token_asymmetric(op: Builder, input: Value, dtype: Any) -> list[Value]:
    """Grid of int8 with 0 on it, for each row, placed by the end with less rounding error."""
    lowest, highest = -128.0, 127.0
    numbers = op.cast(input, FLOAT)
    low = op.Min(op.reduce("ReduceMin", numbers, [-1], True), 0.0)
    high = op.Max(op.reduce("ReduceMax", numbers, [-1], True), 0.0)
    scale = op.Max(op.Div(op.Sub(high, low), highest - lowest), torch.finfo(torch.float32).eps)
    from_low, from_high = op.Div(low, scale), op.Div(high, scale)
    error = op.Add(op.Add(from_low, lowest), op.Add(from_high, highest))
    zero_point = op.Where(
        op.Greater(error, 0.0), op.Sub(lowest, from_low), op.Sub(highest, from_high)
    )
    zero_point = op.Round(op.Clip(zero_point, lowest, highest))
    types = [dtypes.to_onnx(result.dtype) for result in op.result]
    return [op.cast(scale, types[0]), op.cast(zero_point, types[1])]


@register(decomposed.convert_element_type.no_fuse)
def convert_element_type(op: Builder, input: Value, dtype: Any) -> Value:
    return op.cast(input, op.result_dtype)


LIMITS.update(
    dict.fromkeys(
        (
            decomposed.quantize_per_tensor.default,
            decomposed.quantize_per_tensor.tensor,
            decomposed.quantize_per_channel.default,
            decomposed.fake_quant_per_channel.default,
        ),
        AT_TIES,
    )
)
LIMITS[decomposed.choose_qparams.tensor] = LIMITS[decomposed.choose_qparams_symmetric.tensor] = (
    "the scale of float16 and bfloat16 numbers is computed in float32"
)
