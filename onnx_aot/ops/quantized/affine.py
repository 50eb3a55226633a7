"""Quantization: rounding to a grid of integers and back, and choosing the grid.

QuantizeLinear and DequantizeLinear where they mean the same, so that a runtime can compute the
operators between them with integers; arithmetic otherwise.
"""

from __future__ import annotations

from typing import Any

import onnx_ir as ir
import torch

from onnx_aot import dtypes
from onnx_aot.builder.builder import Builder
from onnx_aot.ops.registry import LIMITS, register
from onnx_aot.torch_compat import aten

__all__ = [
    "AT_TIES",
    "dequantize",
    "fake_quantize",
    "mask_unclipped",
    "quantize",
    "reshape_to_scalar",
    "unsqueeze_parameters",
]

Value = ir.Value
BOOL = ir.DataType.BOOL
DOUBLE = ir.DataType.DOUBLE
FLOAT = ir.DataType.FLOAT
INT8 = ir.DataType.INT8
INT16 = ir.DataType.INT16
INT64 = ir.DataType.INT64
UINT8 = ir.DataType.UINT8
UINT16 = ir.DataType.UINT16

AT_TIES = (
    "QuantizeLinear divides by the scale where PyTorch multiplies by its reciprocal: a quotient "
    "within a rounding error of a half can become the other neighbour"
)


# --- one grid ------------------------------------------------------------------------------------


def _integer_range(dtype: ir.DataType) -> tuple[int, int]:
    if dtype in dtypes.FOUR_BITS:
        return (-8, 7) if dtype == ir.DataType.INT4 else (0, 15)
    info = torch.iinfo(dtypes.to_torch(dtype))
    return int(info.min), int(info.max)


def _is_quantize_linear_type(op: Builder, dtype: ir.DataType | None) -> bool:
    """True if QuantizeLinear and DequantizeLinear take integers of this type."""
    return dtype in (INT8, UINT8) or (
        op.opset >= dtypes.FOUR_BITS_SINCE
        and (dtype in (INT16, UINT16) or dtype in dtypes.FOUR_BITS)
    )


def _fits_type(op: Builder, zero_point: Any, dtype: ir.DataType) -> bool:
    """True if a zero point is an integer that the type holds."""
    literal = torch.tensor(zero_point) if isinstance(zero_point, int) else op.literal(zero_point)
    if literal is None:
        return isinstance(zero_point, Value) and not zero_point.dtype.is_floating_point()  # type: ignore[union-attr]
    if literal.is_floating_point():
        return False
    low, high = _integer_range(dtype)
    return bool(((literal >= low) & (literal <= high)).all())


def reshape_to_scalar(op: Builder, value: Any, dtype: ir.DataType) -> Value:
    """Number or one-element tensor as a 0-d value."""
    value = op.cast(value, dtype)
    return value if op.rank(value) == 0 else op.Reshape(value, [])


def unsqueeze_parameters(op: Builder, value: Value, rank: int, axis: int | None) -> Value:
    """Reshapes parameters per channel to broadcast along the channels' axis."""
    if axis is None:
        return value
    return op.Unsqueeze(value, [other for other in range(rank) if other != axis])


def quantize(
    op: Builder,
    value: Value,
    scale: Value,
    zero_point: Any,
    low: int,
    high: int,
    dtype: ir.DataType,
    axis: int | None = None,
) -> Value:
    """``clamp(round(value / scale) + zero_point, low, high)`` as integers.

    Args:
        op: The builder.
        value: Floating point numbers.
        scale: FLOAT; 0-d, or 1-D with an axis.
        zero_point: An int, or a value of the scale's shape.
        low: Least integer.
        high: Largest integer.
        dtype: The integers' type.
        axis: Axis of the channels if they have their own parameters.
    """
    value = op.cast(value, FLOAT)
    if _is_quantize_linear_type(op, dtype) and _fits_type(op, zero_point, dtype):
        quantized = op.QuantizeLinear(value, scale, op.cast(zero_point, dtype), axis=axis)
        full = (low, high) == _integer_range(dtype)
        return quantized if full else op.Clip(quantized, int(low), int(high))
    rank = op.rank(value)
    factor = unsqueeze_parameters(op, op.Reciprocal(scale), rank, axis)
    offset = unsqueeze_parameters(op, op.cast(zero_point, FLOAT), rank, axis)
    rounded = op.Add(op.Round(op.Mul(value, factor)), offset)
    return op.cast(op.Clip(rounded, float(low), float(high)), dtype)


def dequantize(
    op: Builder,
    value: Value,
    scale: Value,
    zero_point: Any,
    dtype: ir.DataType,
    axis: int | None = None,
) -> Value:
    """``(value - zero_point) scale`` in a floating point type.

    Args:
        op: The builder.
        value: Integers, or small floating point numbers.
        scale: FLOAT; 0-d, or 1-D with an axis.
        zero_point: An int, a value of the scale's shape, or None for 0.
        dtype: Type of the result.
        axis: Axis of the channels if they have their own parameters.
    """
    stored = value.dtype
    assert stored is not None
    if _is_quantize_linear_type(op, stored) and (
        zero_point is None or _fits_type(op, zero_point, stored)
    ):
        offset = None if zero_point is None else op.cast(zero_point, stored)
        return op.cast(op.DequantizeLinear(value, scale, offset, axis=axis), dtype)
    rank = op.rank(value)
    numbers = op.cast(value, FLOAT)
    if zero_point is not None and zero_point != 0:
        numbers = op.Sub(numbers, unsqueeze_parameters(op, op.cast(zero_point, FLOAT), rank, axis))
    return op.cast(op.Mul(numbers, unsqueeze_parameters(op, scale, rank, axis)), dtype)


# --- fake quantization: to the grid and back -----------------------------------------------------


def fake_quantize(
    op: Builder,
    value: Value,
    scale: Any,
    zero_point: Any,
    low: int,
    high: int,
    axis: int | None = None,
) -> Value:
    """Moves numbers to the grid, keeping their type."""
    dtype = value.dtype
    assert dtype is not None
    stored = UINT8 if low >= 0 and high <= 255 else INT8
    if low < -128 or high > (127 if stored == INT8 else 255):
        stored = UINT16 if low >= 0 else INT16
    least, most = _integer_range(stored)
    native = _is_quantize_linear_type(op, stored) and least <= low and high <= most
    if dtype != DOUBLE and native and _fits_type(op, zero_point, stored):
        scale = op.cast(scale, FLOAT)
        integers = quantize(op, value, scale, zero_point, low, high, stored, axis)
        return dequantize(op, integers, scale, zero_point, dtype, axis)
    integers, _ = _round_to_grid(op, value, scale, zero_point, low, high, axis)
    work = integers.dtype
    rank = op.rank(value)
    steps = op.Sub(integers, unsqueeze_parameters(op, op.cast(zero_point, work), rank, axis))
    return op.cast(op.Mul(steps, unsqueeze_parameters(op, op.cast(scale, work), rank, axis)), dtype)


def mask_unclipped(
    op: Builder, value: Value, scale: Any, zero_point: Any, low: int, high: int, axis: int | None
) -> Value:
    """Mask of the numbers that the bounds do not change."""
    return _round_to_grid(op, value, scale, zero_point, low, high, axis)[1]


def _round_to_grid(
    op: Builder, value: Value, scale: Any, zero_point: Any, low: int, high: int, axis: int | None
) -> tuple[Value, Value]:
    """Integers, as floating point numbers, and the mask of those within the bounds.

    A floating point zero point is added before rounding, an integer one after it.
    """
    work = DOUBLE if value.dtype == DOUBLE else FLOAT
    rank = op.rank(value)
    factor = unsqueeze_parameters(op, op.Reciprocal(op.cast(scale, work)), rank, axis)
    scaled = op.Mul(op.cast(value, work), factor)
    offset = unsqueeze_parameters(op, op.cast(zero_point, work), rank, axis)
    fractional = isinstance(zero_point, Value) and dtypes.is_floating(zero_point.dtype)
    integers = op.Round(op.Add(scaled, offset)) if fractional else op.Add(op.Round(scaled), offset)
    inside = op.And(op.GreaterOrEqual(integers, float(low)), op.LessOrEqual(integers, float(high)))
    return op.Clip(integers, float(low), float(high)), inside


@register(aten.fake_quantize_per_tensor_affine.default)
def aten_fake_quantize_per_tensor_affine(
    op: Builder, self: Value, scale: float, zero_point: int, quant_min: int, quant_max: int
) -> Value:
    return fake_quantize(op, self, scale, zero_point, quant_min, quant_max)


@register(aten.fake_quantize_per_tensor_affine.tensor_qparams)
def aten_fake_quantize_per_tensor_affine_tensors(
    op: Builder, self: Value, scale: Value, zero_point: Value, quant_min: int, quant_max: int
) -> Value:
    factor, offset = reshape_to_scalar(op, scale, FLOAT), reshape_to_scalar(op, zero_point, INT64)
    return fake_quantize(op, self, factor, offset, quant_min, quant_max)


@register(aten.fake_quantize_per_tensor_affine_cachemask.default)
def aten_fake_quantize_per_tensor_affine_cachemask(
    op: Builder, self: Value, scale: float, zero_point: int, quant_min: int, quant_max: int
) -> list[Value]:
    """Also returns the mask of the elements that the bounds did not change."""
    return [
        fake_quantize(op, self, scale, zero_point, quant_min, quant_max),
        mask_unclipped(op, self, scale, zero_point, quant_min, quant_max, None),
    ]


@register(aten._fake_quantize_per_tensor_affine_cachemask_tensor_qparams.default)
def aten_fake_quantize_cachemask_tensors(
    op: Builder,
    self: Value,
    scale: Value,
    zero_point: Value,
    fake_quant_enabled: Value,
    quant_min: int,
    quant_max: int,
) -> list[Value]:
    factor, offset = reshape_to_scalar(op, scale, FLOAT), reshape_to_scalar(op, zero_point, INT64)
    enabled = reshape_to_scalar(op, fake_quant_enabled, BOOL)
    quantized = fake_quantize(op, self, factor, offset, quant_min, quant_max)
    inside = mask_unclipped(op, self, factor, offset, quant_min, quant_max, None)
    return [op.Where(enabled, quantized, self), op.Or(inside, op.Not(enabled))]


@register(aten.fake_quantize_per_channel_affine.default)
def aten_fake_quantize_per_channel_affine(
    op: Builder,
    self: Value,
    scale: Value,
    zero_point: Value,
    axis: int,
    quant_min: int,
    quant_max: int,
) -> Value:
    axis = op.axis(self, axis)
    return fake_quantize(op, self, scale, zero_point, quant_min, quant_max, axis)


@register(aten.fake_quantize_per_channel_affine_cachemask.default)
def aten_fake_quantize_per_channel_affine_cachemask(
    op: Builder,
    self: Value,
    scale: Value,
    zero_point: Value,
    axis: int,
    quant_min: int,
    quant_max: int,
) -> list[Value]:
    axis = op.axis(self, axis)
    return [
        fake_quantize(op, self, scale, zero_point, quant_min, quant_max, axis),
        mask_unclipped(op, self, scale, zero_point, quant_min, quant_max, axis),
    ]


def _round_zero_point(op: Builder, zero_point: Value, low: int, high: int) -> Value:
    rounded = op.Clip(op.Round(op.cast(zero_point, FLOAT)), float(low), float(high))
    return op.cast(rounded, INT64)


@register(aten._fake_quantize_learnable_per_tensor_affine.default)
def aten_fake_quantize_learnable_per_tensor_affine(
    op: Builder,
    self: Value,
    scale: Value,
    zero_point: Value,
    quant_min: int,
    quant_max: int,
    grad_factor: float = 1.0,
) -> Value:
    offset = _round_zero_point(op, reshape_to_scalar(op, zero_point, FLOAT), quant_min, quant_max)
    return fake_quantize(
        op, self, reshape_to_scalar(op, scale, FLOAT), offset, quant_min, quant_max
    )


@register(aten._fake_quantize_learnable_per_channel_affine.default)
def aten_fake_quantize_learnable_per_channel_affine(
    op: Builder,
    self: Value,
    scale: Value,
    zero_point: Value,
    axis: int,
    quant_min: int,
    quant_max: int,
    grad_factor: float = 1.0,
) -> Value:
    offset = _round_zero_point(op, zero_point, quant_min, quant_max)
    axis = op.axis(self, axis)
    return fake_quantize(op, self, scale, offset, quant_min, quant_max, axis)


# --- products of integers -------------------------------------------------------------------------


@register(aten._int_mm.default)
def aten_int_mm(op: Builder, self: Value, mat2: Value) -> Value:
    return op.MatMulInteger(self, mat2)


LIMITS.update(
    dict.fromkeys(
        (
            aten.fake_quantize_per_tensor_affine.default,
            aten.fake_quantize_per_tensor_affine.tensor_qparams,
            aten.fake_quantize_per_channel_affine.default,
        ),
        AT_TIES,
    )
)
