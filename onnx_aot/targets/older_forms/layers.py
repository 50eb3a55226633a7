"""Older forms of normalization, softmax and quantization."""

from __future__ import annotations

from collections.abc import Sequence

import onnx_ir as ir

from onnx_aot.dtypes import HALVES
from onnx_aot.targets.emitter import Emitter
from onnx_aot.targets.older_forms.rows import Row, find_axes
from onnx_aot.targets.quantization import dequantize, quantize

__all__ = ["ROWS"]

_T = ir.DataType


def _layer_normalization(e: Emitter, node: ir.Node) -> Sequence[ir.Value]:
    """``LayerNormalization(x, s, b)`` -> ``(x - mean) / sqrt(variance + epsilon) * s + b``.

    Half precision is computed in float32 and rounded once, as in torch.
    """
    value, scale, *rest = node.inputs
    assert value is not None
    narrow = value.dtype
    wide = _T.FLOAT if narrow in HALVES else narrow
    axes = find_axes(node, node.attributes.get_int("axis", -1))

    def widen(given: ir.Value | None) -> ir.Value | None:
        return given if given is None or given.dtype == wide else e.Cast(given, to=wide)

    value = widen(value)
    mean = e.reduce_axes("ReduceMean", value, axes)
    centred = e.Sub(value, mean)
    variance = e.reduce_axes("ReduceMean", e.Mul(centred, centred), axes)
    deviation = e.Sqrt(e.Add(variance, node.attributes.get_float("epsilon", 1e-5)))
    result = e.Mul(e.Div(centred, deviation), widen(scale))
    if rest and rest[0] is not None:
        result = e.Add(result, widen(rest[0]))
    if narrow != wide:
        result = e.Cast(result, to=narrow)
    statistics = [mean, e.Reciprocal(deviation)] if len(node.outputs) > 1 else []
    return [result, *statistics[: len(node.outputs) - 1]]


def _softmax(e: Emitter, node: ir.Node) -> Sequence[ir.Value] | None:
    """Moves the axis to the end, since all axes from it on share one sum before opset 13."""
    axis = node.attributes.get_int("axis", -1)
    value = node.inputs[0]
    rank = None if value is None or value.shape is None else len(value.shape)
    if axis == -1 or (rank is not None and axis % max(rank, 1) == max(rank, 1) - 1):
        node.attributes["axis"] = ir.AttrInt64("axis", -1 if rank != 0 else 0)
        return None
    last = find_axes(node, 0)
    axis %= len(last)
    last[axis], last[-1] = last[-1], last[axis]
    moved = e.Transpose(value, perm=last)
    return [e.Transpose(e.op(node.op_type, [moved], {"axis": -1}), perm=last)]


def _batch_normalization(e: Emitter, node: ir.Node) -> Sequence[ir.Value] | None:
    """Computes in the type of the statistics, since all types are one before opset 15."""
    value, mean = node.inputs[0], node.inputs[3]
    assert value is not None
    assert mean is not None
    wide = mean.dtype
    if all(given is not None and given.dtype == value.dtype for given in node.inputs):
        return None
    inputs = [e.Cast(given, to=wide) for given in node.inputs]
    kept = {"epsilon": node.attributes.get_float("epsilon", 1e-5)}
    return [e.Cast(e.op("BatchNormalization", inputs, kept), to=value.dtype)]


def _quantize(e: Emitter, node: ir.Node) -> Sequence[ir.Value] | None:
    """Quantization per channel -> other operators, since a scale is one number before opset 13."""
    return None if _is_whole(node) else quantize(e, node)


def _dequantize(e: Emitter, node: ir.Node) -> Sequence[ir.Value] | None:
    return None if _is_whole(node) else dequantize(e, node)


def _is_whole(node: ir.Node) -> bool:
    """True if a scale is one number; then the axis is dropped."""
    scale = node.inputs[1]
    if scale is None or scale.shape is None or len(scale.shape):
        return False
    node.attributes.pop("axis", None)
    return True


ROWS = (
    Row("LayerNormalization", 17, _layer_normalization),
    Row("Softmax", 13, _softmax),
    Row("LogSoftmax", 13, _softmax),
    Row("BatchNormalization", 15, _batch_normalization),
    Row("QuantizeLinear", 13, _quantize),
    Row("DequantizeLinear", 13, _dequantize),
)
