"""Reads the bits of numbers as numbers of another type, by BitCast or by arithmetic.

ONNX has BitCast since opset 26. Up to opset 25 the bits of a number are computed as INT64, which
holds the bits of every type as the integer of that width. Numbers keep their bits exactly except
NaN, which has many bit patterns and is read as the positive one that torch makes.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import onnx_ir as ir
import torch

from onnx_aot import dtypes
from onnx_aot.builder.builder import Builder
from onnx_aot.dtypes import INT64_MAX
from onnx_aot.errors import TranslationError
from onnx_aot.ops.core.cumulative import scan_by_doubling
from onnx_aot.ops.core.elementwise import sign_bit
from onnx_aot.ops.core.float_bits import (
    PRECISION,
    scale_by_power_of_two,
    split_mantissa_exponent,
)
from onnx_aot.ops.core.movement import reshape, slice_axis
from onnx_aot.ops.core.size_math import divide_size, multiply_sizes
from onnx_aot.ops.registry import LIMITS, register
from onnx_aot.torch_compat import aten

__all__ = ["view_bits"]

Value = ir.Value
DOUBLE = ir.DataType.DOUBLE
INT64 = ir.DataType.INT64

BITS_SINCE = 26
INTEGERS = {16: ir.DataType.INT16, 32: ir.DataType.INT32, 64: INT64}
"""Signed integers with as many bits as a floating-point number."""

# --- one number ----------------------------------------------------------------------------------


def _read_bits(op: Builder, value: Value) -> Value:
    """INT64 of the bits, as the signed integer of the type's width, or the unsigned one itself."""
    assert value.dtype is not None
    if not dtypes.is_floating(value.dtype):
        return op.cast(value, INT64)
    digits, least = PRECISION[value.dtype]
    width = value.dtype.bitwidth
    if op.opset >= BITS_SINCE:
        return op.cast(op.BitCast(value, to=INTEGERS[width]), INT64)
    number = op.cast(value, DOUBLE)
    mantissa, exponent = split_mantissa_exponent(op, op.Abs(number))
    # below the smallest normal number the exponent is 0, and the mantissa has leading zeros
    above = op.Max(op.Sub(exponent, float(least)), 0.0)
    places = op.Add(op.Sub(exponent, above), float(digits - least))
    fraction = op.cast(scale_by_power_of_two(op, mantissa, places), INT64)
    bits = op.Add(op.Mul(op.cast(above, INT64), 2 ** (digits - 1)), fraction)
    infinity = 2 ** (width - 1) - 2 ** (digits - 1)
    bits = op.Where(op.Equal(number, 0.0), 0, bits)
    bits = op.Where(op.IsInf(number), infinity, bits)
    negative = op.cast(sign_bit(op, number), INT64)
    # in two steps, because INT64 does not hold 2^63
    half = op.Mul(negative, -(2 ** (width - 2)))
    return op.Where(
        op.IsNaN(number), infinity + 2 ** (digits - 2), op.Add(op.Add(bits, half), half)
    )


def _write_bits(op: Builder, bits: Value, dtype: ir.DataType) -> Value:
    """Inverse of ``_read_bits``, which reads the low bits of an INT64."""
    if not dtypes.is_floating(dtype):
        return op.cast(bits, dtype)
    digits, least = PRECISION[dtype]
    width = dtype.bitwidth
    if op.opset >= BITS_SINCE:
        return op.BitCast(op.cast(bits, INTEGERS[width]), to=dtype)
    low = _keep_low_bits(op, bits, width)
    # of INT64 itself, the sign is the highest bit
    negative = op.Less(low, 0) if width == 64 else op.GreaterOrEqual(low, 2 ** (width - 1))
    half = op.Mul(op.cast(negative, INT64), 2 ** (width - 2))
    rest = op.Add(op.Add(low, half), half) if width == 64 else op.Sub(op.Sub(low, half), half)
    field = op.Div(rest, 2 ** (digits - 1))
    fraction = op.Sub(rest, op.Mul(field, 2 ** (digits - 1)))
    normal = op.cast(op.Greater(field, 0), INT64)
    mantissa = op.cast(op.Add(fraction, op.Mul(normal, 2 ** (digits - 1))), DOUBLE)
    exponent = op.Add(op.cast(op.Max(field, 1), DOUBLE), float(least - 1 - digits))
    number = scale_by_power_of_two(op, mantissa, exponent)
    special = op.Where(op.Equal(fraction, 0), op.constant(math.inf, DOUBLE), math.nan)
    highest = 2 ** (width - digits) - 1
    number = op.Where(op.Equal(field, highest), special, number)
    # a product, because ONNX Runtime's Where turns minus zero into zero
    sign = op.Sub(1.0, op.Mul(op.cast(negative, DOUBLE), 2.0))
    return op.cast(op.Mul(number, sign), dtype)


def _keep_low_bits(op: Builder, bits: Value, width: int) -> Value:
    """Low bits as a number that is not negative, except all 64 of them."""
    if width == 64:
        return bits
    kept: Value = op.Mod(bits, 2**width)
    return kept


# --- several numbers -----------------------------------------------------------------------------


def _split_bits(op: Builder, bits: Value, width: int, count: int) -> Value:
    """Cuts each integer into ``count`` of a width, the lowest bits first, along the last axis."""
    sizes = op.all_sizes(bits)
    pieces = []
    for index in range(count):
        rest = op.Sub(bits, op.Mod(bits, 2 ** (width * index))) if index else bits
        pieces.append(op.Unsqueeze(op.Div(rest, 2 ** (width * index)), [-1]))
    return reshape(
        op, op.Concat(*pieces, axis=-1), [*sizes[:-1], multiply_sizes(op, sizes[-1], count)]
    )


def _join_bits(op: Builder, bits: Value, width: int, count: int) -> Value:
    """Joins ``count`` integers of a width to one each, the lowest bits first."""
    sizes = op.all_sizes(bits)
    rows = reshape(op, bits, [*sizes[:-1], divide_size(op, sizes[-1], count), count])
    low = op.Mod(rows, 2**width)
    # the highest one keeps its sign, so that no product overflows
    sign = op.Mul(op.cast(op.GreaterOrEqual(low, 2 ** (width - 1)), INT64), 2**width)
    pieces = [op.Gather(low, index, axis=-1) for index in range(count - 1)]
    total = op.Gather(op.Sub(low, sign), count - 1, axis=-1)
    for piece in reversed(pieces):
        total = op.Add(op.Mul(total, 2**width), piece)
    return total


def view_bits(op: Builder, value: Value, dtype: ir.DataType) -> Value:
    """Reads the bits of a tensor as numbers of another type, as ``Tensor.view(dtype)`` does.

    Args:
        op: The builder.
        value: Tensor of integers, booleans, or 16, 32 or 64 bit floating-point numbers.
        dtype: Type to read; the last dimension grows or shrinks with the ratio of the widths.

    Raises:
        TranslationError: One of the types has another floating-point format.
    """
    source = value.dtype
    assert source is not None
    if source == dtype:
        return value
    for kind in (source, dtype):
        if (dtypes.is_floating(kind) and kind not in PRECISION) or kind.bitwidth < 8:
            name = str(dtypes.to_torch(kind))
            raise TranslationError(
                f"view(dtype) reads the bits of {name}, for which ONNX has no operator up to opset "
                "25; integers, booleans, bfloat16, float16, float32, float64 and complex numbers "
                "are computed. Convert with .to(dtype) if the values are meant, or compute the "
                "view outside the model",
                code="OA404",
            )
    before, after = (_byte_width(kind) for kind in (source, dtype))
    bits = _read_bits(op, value)
    if before > after:
        bits = _split_bits(op, bits, after, before // after)
    elif before < after:
        bits = _join_bits(op, bits, before, after // before)
    return _write_bits(op, bits, dtype)


def _byte_width(dtype: ir.DataType) -> int:
    """Bits of an element in memory; a boolean takes a byte."""
    return max(dtype.bitwidth, 8)


@register(aten.view.dtype)
def aten_view_dtype(op: Builder, self: Value, dtype: torch.dtype) -> Value:
    """Tensor.view(dtype), ``aten::view.dtype``."""
    return view_bits(op, self, dtypes.to_onnx(dtype))


LIMITS[aten.view.dtype] = (
    "a NaN is read as the bits that torch gives one; float8 and types of less than 8 bits are "
    "refused"
)


# --- hashes --------------------------------------------------------------------------------------


@register(aten.hash_tensor.default)
def aten_hash_tensor(
    op: Builder, self: Value, dim: Sequence[int] = (), keepdim: bool = False, mode: int = 0
) -> Value:
    """Exclusive or of the bits of all elements, as float64 or 64 bit integers; 0 of none."""
    floating = dtypes.is_floating(self.dtype)
    bits = _read_bits(op, op.cast(self, DOUBLE) if floating else self)
    rank = op.rank(bits)
    axes = sorted({axis % rank for axis in dim} or range(rank)) if rank else []
    for axis in axes:
        bits = _fold_axis(op, bits, axis)
    if axes and not keepdim:
        bits = op.Squeeze(bits, axes)
    return op.cast(bits, op.result_dtype)


def _fold_axis(op: Builder, bits: Value, axis: int) -> Value:
    """Exclusive or along an axis, which is kept with size 1."""
    rank = op.rank(bits)
    # a zero makes no difference, and there may be no element
    padded = op.Pad(bits, [0] * (rank + axis) + [1] + [0] * (rank - axis - 1))

    def join(earlier: Sequence[Value], later: Sequence[Value]) -> list[Value]:
        return [op.BitwiseXor(earlier[0], later[0])]

    folded = scan_by_doubling(op, [padded], axis, join, neutral=[op.constant(0, INT64)])[0]
    return slice_axis(op, folded, axis, -1, INT64_MAX)


LIMITS[aten.hash_tensor.default] = "since opset 18; a NaN counts with the bits that torch gives one"
