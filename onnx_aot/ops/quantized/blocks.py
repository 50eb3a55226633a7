"""Dequantization of integers with a scale, and a zero point, for each block of them.

A block has a size along each axis. DequantizeLinear supports a single block, one for each index
along an axis, and, since opset 21, blocks along one axis.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import onnx_ir as ir

from onnx_aot import dtypes
from onnx_aot.builder.builder import Builder

__all__ = ["cast_to_four_bits", "dequantize_blocks"]

FLOAT = ir.DataType.FLOAT
Value = ir.Value
HALF = 19
"""Opset since which the scales of DequantizeLinear may have half precision."""

NATIVE = frozenset({ir.DataType.INT8, ir.DataType.UINT8})


def _is_weight(value: Value) -> bool:
    """True if a value is a tensor of the module."""
    return value.const_value is not None and not value.is_graph_input()


def cast_to_four_bits(op: Builder, value: Value, low: int | None, high: int | None) -> Value:
    """Casts a weight to the narrowest type that holds its integers: INT4 or UINT4 if they fit.

    Args:
        op: The builder.
        value: Integers of a weight; other values are returned unchanged.
        low: Least integer that occurs; None for that of its type.
        high: Largest integer that occurs; None for that of its type.
    """
    if low is None or high is None or op.opset < dtypes.FOUR_BITS_SINCE or not _is_weight(value):
        return value
    if value.dtype == ir.DataType.INT8 and low >= -8 and high <= 7:
        return op.Cast(value, to=ir.DataType.INT4)
    if value.dtype == ir.DataType.UINT8 and low >= 0 and high <= 15:
        return op.Cast(value, to=ir.DataType.UINT4)
    return value


def dequantize_blocks(
    op: Builder,
    value: Value,
    block: Sequence[int],
    scale: Value,
    zero_point: Value | None,
    bounds: tuple[int | None, int | None],
    dtype: ir.DataType,
) -> Value:
    """``(value - zero_point) scale`` with the parameters of each element's block.

    Args:
        op: The builder.
        value: Integers of any shape.
        block: Size of a block along each axis; a negative one stands for the whole axis.
        scale: One number per block.
        zero_point: One number per block; None for 0.
        bounds: Least and largest integer; None for those of the type.
        dtype: Type of the result.
    """
    sizes = op.all_sizes(value)
    whole = [
        width < 0 or op.number(size) == width for size, width in zip(sizes, block, strict=True)
    ]
    integers = zero_point is None or not dtypes.is_floating(zero_point.dtype)
    if value.dtype in NATIVE and integers and _is_weight(value):
        along = _find_blocked_axis(block, whole)
        if along is not None:
            scale = scale if scale.dtype in _scale_types(op) else op.cast(scale, FLOAT)
            narrow = cast_to_four_bits(op, value, *bounds)
            return op.cast(
                _emit_dequantize_linear(op, narrow, block, along, scale, zero_point), dtype
            )
    return _dequantize_by_arithmetic(op, value, block, whole, scale, zero_point, dtype)


def _scale_types(op: Builder) -> frozenset[ir.DataType]:
    """Types of scales that DequantizeLinear supports."""
    return frozenset({FLOAT, ir.DataType.FLOAT16}) if op.opset >= HALF else frozenset({FLOAT})


def _find_blocked_axis(block: Sequence[int], whole: Sequence[bool]) -> int | None:
    """Axis that is cut into blocks, -1 for a single block, None if several axes are cut."""
    cut = [axis for axis, is_whole in enumerate(whole) if not is_whole]
    if not cut:
        return -1
    if len(cut) == 1 and block[cut[0]] == 1:
        return cut[0]
    wide = [axis for axis in cut if block[axis] != 1]
    others = [width for axis, width in enumerate(block) if axis not in wide]
    return wide[0] if len(wide) == 1 and set(others) <= {1} else None


def _emit_dequantize_linear(
    op: Builder,
    value: Value,
    block: Sequence[int],
    axis: int,
    scale: Value,
    zero_point: Value | None,
) -> Value:
    """Emits DequantizeLinear; before opset 21 each block along the axis becomes a row."""
    if axis < 0 or block[axis] == 1:
        parameters = [] if axis < 0 else [-1]
        scale, zero_point = _reshape_parameters(op, scale, zero_point, parameters)
        offset = None if zero_point is None else op.cast(zero_point, value.dtype)
        return op.DequantizeLinear(value, scale, offset, axis=None if axis < 0 else axis)
    assert value.shape is not None
    sizes = [int(size) for size in value.shape.numpy()]
    if op.opset >= dtypes.FOUR_BITS_SINCE:
        counts = [size // width for size, width in zip(sizes, block, strict=True)]
        scale, zero_point = _reshape_parameters(op, scale, zero_point, counts)
        offset = None if zero_point is None else op.cast(zero_point, value.dtype)
        return op.DequantizeLinear(value, scale, offset, axis=axis, block_size=block[axis])
    order = [*(other for other in range(len(sizes)) if other != axis), axis]
    rows = op.Reshape(op.Transpose(value, perm=order), [-1, block[axis]])
    counts = [size // width for size, width in zip(sizes, block, strict=True)]
    scale, zero_point = _reshape_parameters(op, scale, zero_point, counts)
    scale = op.Transpose(scale, perm=order)
    zero_point = None if zero_point is None else op.Transpose(zero_point, perm=order)
    scale, zero_point = _reshape_parameters(op, scale, zero_point, [-1])
    offset = None if zero_point is None else op.cast(zero_point, value.dtype)
    numbers = op.DequantizeLinear(rows, scale, offset, axis=0)
    numbers = op.Reshape(numbers, [sizes[other] for other in order])
    return op.Transpose(numbers, perm=[order.index(other) for other in range(len(order))])


def _reshape_parameters(
    op: Builder, scale: Value, zero_point: Value | None, sizes: Sequence[int]
) -> tuple[Value, Value | None]:
    """Reshapes the parameters; zero points are cast later: ONNX Runtime reshapes no 4-bit ones."""
    offset = None if zero_point is None else op.Reshape(zero_point, list(sizes))
    return op.Reshape(scale, list(sizes)), offset


def _dequantize_by_arithmetic(
    op: Builder,
    value: Value,
    block: Sequence[int],
    whole: Sequence[bool],
    scale: Value,
    zero_point: Value | None,
    dtype: ir.DataType,
) -> Value:
    """Splits axes of several blocks in two, so that the parameters broadcast."""
    cut: list[Any] = []
    parameters: list[Any] = []
    for size, width, is_whole in zip(op.all_sizes(value), block, whole, strict=True):
        if is_whole or width == 1:
            cut.append(size)
            parameters.append(1 if is_whole else size)
        else:
            count = size // width if isinstance(size, int) else op.Div(size, width)
            cut += [count, width]
            parameters += [count, 1]
    several = len(cut) > len(block)
    numbers = op.cast(op.Reshape(value, op.sizes(cut)) if several else value, FLOAT)
    if several or op.rank(scale) != len(block):
        scale = op.Reshape(scale, op.sizes(parameters))
    if zero_point is not None:
        offset = op.cast(zero_point, FLOAT)
        if several or op.rank(offset) != len(block):
            offset = op.Reshape(offset, op.sizes(parameters))
        numbers = op.Sub(numbers, offset)
    numbers = op.cast(op.Mul(numbers, op.cast(scale, FLOAT)), dtype)
    return op.Reshape(numbers, op.sizes(op.all_sizes(value))) if several else numbers
