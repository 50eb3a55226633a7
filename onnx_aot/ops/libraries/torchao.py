"""torchao's operators for small floating point numbers, and for dequantizing integers in blocks.

Its other operators (``quantize_affine``, ``choose_qparams_affine``, ...) have decompositions of
their own. They exist once torchao has been imported; this family is imported when a graph has one.
"""

from __future__ import annotations

from typing import Any

import onnx_ir as ir
import torch

from onnx_aot.builder.builder import Builder
from onnx_aot.errors import ConversionError
from onnx_aot.ops.quantized.blocks import dequantize_blocks
from onnx_aot.ops.registry import register

__all__: list[str] = []

torchao = torch.ops.torchao
Value = ir.Value
FLOAT = ir.DataType.FLOAT


def _expand_block_scales(op: Builder, scale: Value, like: Value) -> Value:
    """Scale of each element: each scale belongs to a block, of equal size along each axis."""
    if op.rank(scale) != op.rank(like):
        return scale  # one number
    for axis in range(op.rank(scale)):
        blocks, size = op.size(scale, axis), op.size(like, axis)
        if blocks == 1 or (isinstance(blocks, ir.Value) and isinstance(size, ir.Value)):
            continue  # one scale, or one for each of a dynamic number of rows
        if isinstance(blocks, ir.Value) or isinstance(size, ir.Value):
            raise ConversionError(
                f"several scales along axis {axis} need a static size, of the tensor and of the "
                "scales; make the axis static in dynamic_shapes",
                code="OA404",
            )
        if blocks != size:
            index = [position // (size // blocks) for position in range(size)]
            scale = op.Gather(scale, op.constant(index), axis=axis)
    return scale


@register(torchao.quantize_affine_float8_non_decomposed.default)
def quantize_float8(
    op: Builder, tensor: Value, scale: Value, float8_dtype: Any = torch.float8_e4m3fn
) -> Value:
    numbers = op.Div(
        op.cast(tensor, FLOAT), _expand_block_scales(op, op.cast(scale, FLOAT), tensor)
    )
    most = torch.finfo(op.result.dtype).max
    return op.cast(op.Clip(numbers, -most, most), op.result_dtype)


@register(torchao.dequantize_affine_float8_non_decomposed.default)
def dequantize_float8(
    op: Builder, tensor: Value, scale: Value, output_dtype: Any = torch.float32
) -> Value:
    numbers = op.cast(tensor, FLOAT)
    scaled = op.Mul(numbers, _expand_block_scales(op, op.cast(scale, FLOAT), tensor))
    return op.cast(scaled, op.result_dtype)


@register(torchao.dequantize_affine.default)
def dequantize_affine(
    op: Builder,
    input: Value,
    block_size: Any,
    scale: Value,
    zero_point: Value | None,
    input_dtype: Any,
    quant_min: Any = None,
    quant_max: Any = None,
    output_dtype: Any = torch.float32,
) -> Value:
    """Since opset 21, weights whose integers fit into four bits are stored that way."""
    bounds = (quant_min, quant_max)
    return dequantize_blocks(op, input, block_size, scale, zero_point, bounds, op.result_dtype)
