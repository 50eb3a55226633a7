"""Expresses QuantizeLinear and DequantizeLinear by others: per tensor, channel or block."""

from __future__ import annotations

from collections.abc import Sequence

import onnx_ir as ir

from onnx_aot.targets.emitter import Emitter

__all__ = ["dequantize", "quantize"]

_T = ir.DataType
_BOUNDS = {
    _T.INT8: (-128.0, 127.0),
    _T.UINT8: (0.0, 255.0),
    _T.INT16: (-32768.0, 32767.0),
    _T.UINT16: (0.0, 65535.0),
    _T.INT4: (-8.0, 7.0),
    _T.UINT4: (0.0, 15.0),
}


def quantize(e: Emitter, node: ir.Node) -> Sequence[ir.Value] | None:
    """``QuantizeLinear(x, s, z)`` -> ``Cast(Clip(Round(x / s) + z))``, computed in float32.

    Returns None for other types than integers of 4 to 16 bits, and for blocks along a dynamic axis.
    """
    to = node.outputs[0].dtype
    bounds = None if to is None else _BOUNDS.get(to)
    scale = _spread(e, node, node.inputs[1], _T.FLOAT)
    if bounds is None or scale is None:
        return None
    rounded = e.Round(e.Div(_cast(e, node.inputs[0], _T.FLOAT), scale))
    zero = node.inputs[2] if len(node.inputs) > 2 else None
    if zero is not None:
        rounded = e.Add(rounded, _spread(e, node, zero, _T.FLOAT))
    low, high = (e.constant(bound, _T.FLOAT) for bound in bounds)
    return [e.Cast(e.Clip(rounded, low, high), to=to)]


def dequantize(e: Emitter, node: ir.Node) -> Sequence[ir.Value] | None:
    """``DequantizeLinear(x, s, z)`` -> ``(x - z) * s``, computed in int32 and float32.

    Returns None for numbers that are not integers, and for blocks along a dynamic axis.
    """
    value, result = node.inputs[0], node.outputs[0].dtype
    scale = _spread(e, node, node.inputs[1], _T.FLOAT)
    if value is None or value.dtype not in {*_BOUNDS, _T.INT32} or scale is None or result is None:
        return None
    numbers = _cast(e, value, _T.INT32)
    zero = node.inputs[2] if len(node.inputs) > 2 else None
    if zero is not None:
        numbers = e.Sub(numbers, _spread(e, node, zero, _T.INT32))
    return [_cast(e, e.Mul(e.Cast(numbers, to=_T.FLOAT), scale), result)]


def _cast(e: Emitter, value: ir.Value | None, to: ir.DataType) -> ir.Value:
    if value is not None and value.dtype == to:
        return value
    made: ir.Value = e.Cast(value, to=to)
    return made


def _spread(
    e: Emitter, node: ir.Node, given: ir.Value | None, dtype: ir.DataType
) -> ir.Value | None:
    """Returns scales or zero points in a shape that broadcasts with the numbers; None if unknown.

    Those of one axis get an axis of size 1 for each later axis. Those of blocks are repeated.
    """
    value = node.inputs[0]
    if given is None or given.shape is None or value is None:
        return None
    shape, size = given.shape, node.attributes.get_int("block_size", 0)
    given = _cast(e, given, dtype)
    if len(shape) == 0 or (len(shape) == 1 and shape[0] == 1):
        return given
    if value.shape is None:
        return None
    axis = node.attributes.get_int("axis", 1) % len(value.shape)
    if not size:
        shaped: ir.Value = e.Reshape(given, e.ints([-1] + [1] * (len(value.shape) - 1 - axis)))
        return shaped
    length = value.shape[axis]
    if not isinstance(length, int):
        return None
    repeated: ir.Value = e.Gather(given, e.ints([i // size for i in range(length)]), axis=axis)
    return repeated
