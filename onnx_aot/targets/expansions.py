"""Expresses operators exactly by others, for types that a target has no kernel for.

Pointwise functions of DOUBLE are in ``expansions_pointwise``, recurrent layers in
``expansions_recurrent``; this file has operators that count, move, calculate, pool or normalize.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence

import onnx_ir as ir

from onnx_aot.dtypes import HALVES
from onnx_aot.targets import expansions_pointwise
from onnx_aot.targets.emitter import Emitter
from onnx_aot.targets.expansions_recurrent import RECURRENT
from onnx_aot.targets.quantization import dequantize, quantize

__all__ = ["EXPANSIONS", "reduce_log_sum_exp"]

Expansion = Callable[[Emitter, ir.Node], Sequence[ir.Value] | None]
_T = ir.DataType

EXPANSIONS: dict[tuple[str, ir.DataType], Expansion] = {}
"""Expansions by operator and type; one that returns None leaves the node to be cast instead."""

_INTEGERS = (_T.INT32, _T.INT64, _T.UINT32, _T.UINT64)
_STORED = (_T.INT32, _T.INT16, _T.UINT16, _T.INT8, _T.UINT8, _T.INT4, _T.UINT4)
_ANY = (
    *_INTEGERS,
    *(_T.BOOL, _T.INT8, _T.UINT8, _T.INT16, _T.UINT16),
    *(_T.FLOAT16, _T.BFLOAT16, _T.DOUBLE),
)


def _register_expansion(
    op_type: str, types: Iterable[ir.DataType]
) -> Callable[[Expansion], Expansion]:
    def enter(expansion: Expansion) -> Expansion:
        for dtype in types:
            EXPANSIONS[op_type, dtype] = expansion
        return expansion

    return enter


for _op_type, _formula in expansions_pointwise.FORMULAS.items():

    @_register_expansion(_op_type, [_T.DOUBLE, _T.FLOAT])
    def _pointwise(
        e: Emitter, node: ir.Node, formula: expansions_pointwise.Formula = _formula
    ) -> Sequence[ir.Value]:
        return [formula(e, node)]


for _op_type, _layer in RECURRENT.items():
    _register_expansion(_op_type, [_T.DOUBLE])(_layer)


@_register_expansion("Abs", (_T.INT64, _T.INT32, _T.INT16, _T.INT8))
def _abs(e: Emitter, node: ir.Node) -> Sequence[ir.Value]:
    """Compares with the negative, which keeps all bits of an integer."""
    return [e.Max(node.inputs[0], e.Neg(node.inputs[0]))]


# --- counting ------------------------------------------------------------------------------------


@_register_expansion("Size", _ANY)
def _size(e: Emitter, node: ir.Node) -> Sequence[ir.Value]:
    """Multiplies the sizes, without reading elements."""
    return [e.ReduceProd(e.Shape(node.inputs[0]), keepdims=0)]


@_register_expansion("NonZero", _ANY)
def _nonzero(e: Emitter, node: ir.Node) -> Sequence[ir.Value]:
    """Casts to BOOL, which keeps whether a number is nonzero, including NaN."""
    return [e.op("NonZero", [e.Cast(node.inputs[0], to=_T.BOOL)], dtype=_T.INT64)]


# --- moving --------------------------------------------------------------------------------------


@_register_expansion("DepthToSpace", _ANY)
def _depth_to_space(e: Emitter, node: ir.Node) -> Sequence[ir.Value]:
    value = node.inputs[0]
    block = node.attributes.get_int("blocksize", 1)
    columns_first = node.attributes.get_string("mode") == "CRD"
    batch, channels, height, width = (e.dimension(value, axis) for axis in range(4))
    depth = e.Div(channels, [block * block])
    side = e.ints([block])
    if columns_first:
        parts, perm = [batch, depth, side, side, height, width], [0, 1, 4, 2, 5, 3]
    else:
        parts, perm = [batch, side, side, depth, height, width], [0, 3, 4, 1, 5, 2]
    apart = e.Transpose(e.reshape_to(value, parts), perm=perm)
    wanted = [batch, depth, e.Mul(height, [block]), e.Mul(width, [block])]
    return [e.reshape_to(apart, wanted)]


@_register_expansion("SpaceToDepth", _ANY)
def _space_to_depth(e: Emitter, node: ir.Node) -> Sequence[ir.Value]:
    value = node.inputs[0]
    block = node.attributes.get_int("blocksize", 1)
    batch, channels, height, width = (e.dimension(value, axis) for axis in range(4))
    rows, columns = e.Div(height, [block]), e.Div(width, [block])
    side = e.ints([block])
    apart = e.reshape_to(value, [batch, channels, rows, side, columns, side])
    apart = e.Transpose(apart, perm=[0, 3, 5, 1, 2, 4])
    wanted = [batch, e.Mul(channels, [block * block]), rows, columns]
    return [e.reshape_to(apart, wanted)]


# --- arithmetic ----------------------------------------------------------------------------------


@_register_expansion("Relu", [_T.INT64, _T.INT32])
def _relu(e: Emitter, node: ir.Node) -> Sequence[ir.Value]:
    return [e.Max(node.inputs[0], 0)]


@_register_expansion("PRelu", _INTEGERS)
def _prelu(e: Emitter, node: ir.Node) -> Sequence[ir.Value]:
    value, slope = node.inputs
    return [e.Where(e.Less(value, 0), e.Mul(value, slope), value)]


@_register_expansion("Mean", [_T.DOUBLE])
def _mean(e: Emitter, node: ir.Node) -> Sequence[ir.Value]:
    return [e.Div(e.Sum(*node.inputs), float(len(node.inputs)))]


@_register_expansion("ReduceLogSumExp", [_T.FLOAT, _T.DOUBLE, *HALVES])
def reduce_log_sum_exp(e: Emitter, node: ir.Node) -> Sequence[ir.Value] | None:
    """``log(sum(exp(x - m))) + m``, m being the largest number; 0 if that is infinite or NaN."""
    value, *axes = node.inputs
    assert value is not None
    narrow = value.dtype
    assert narrow is not None
    if narrow not in (_T.FLOAT, _T.DOUBLE, *HALVES):
        return None
    if node.attributes.get_int("noop_with_empty_axes", 0):
        return None
    wide = _T.FLOAT if narrow in HALVES else narrow
    if narrow != wide:
        value = e.Cast(value, to=wide)
    given = node.attributes.get_ints("axes", None)  # before opset 18
    if given is None:
        largest = e.ReduceMax(value, *axes, keepdims=1)
    else:
        largest, axes = e.reduce_axes("ReduceMax", value, given), [e.ints(given)]
    shift = e.Where(e.Less(e.Abs(largest), math.inf), largest, e.constant(0, wide))
    total = e.ReduceSum(e.Exp(e.Sub(value, shift)), *axes, keepdims=1)
    result = e.Add(e.Log(total), shift)
    if not node.attributes.get_int("keepdims", 1):
        result = e.Squeeze(result, *axes)
    return [e.Cast(result, to=narrow) if narrow != wide else result]


@_register_expansion("QuantizeLinear", [_T.FLOAT, *HALVES, _T.INT32])
def _quantize_linear(e: Emitter, node: ir.Node) -> Sequence[ir.Value] | None:
    return quantize(e, node)


@_register_expansion("DequantizeLinear", _STORED)
def _dequantize_linear(e: Emitter, node: ir.Node) -> Sequence[ir.Value] | None:
    return dequantize(e, node)


@_register_expansion("Gemm", _INTEGERS)
def _gemm(e: Emitter, node: ir.Node) -> Sequence[ir.Value] | None:
    """Emits a product and a sum; None if there are factors, which may be fractions."""
    if (
        node.attributes.get_float("alpha", 1.0) != 1.0
        or node.attributes.get_float("beta", 1.0) != 1.0
    ):
        return None
    one, two = node.inputs[:2]
    one = e.Transpose(one, perm=[1, 0]) if node.attributes.get_int("transA", 0) else one
    two = e.Transpose(two, perm=[1, 0]) if node.attributes.get_int("transB", 0) else two
    product = e.MatMul(one, two)
    third = node.inputs[2] if len(node.inputs) > 2 else None
    return [product if third is None else e.Add(product, third)]


# --- pooling and normalization -------------------------------------------------------------------


def _spatial_axes(value: ir.Value | None) -> list[int] | None:
    if value is None or value.shape is None:
        return None
    return list(range(2, len(value.shape)))


@_register_expansion("GlobalAveragePool", [_T.DOUBLE])
def _global_average(e: Emitter, node: ir.Node) -> Sequence[ir.Value] | None:
    axes = _spatial_axes(node.inputs[0])
    return None if axes is None else [e.reduce_axes("ReduceMean", node.inputs[0], axes)]


@_register_expansion("GlobalMaxPool", [_T.DOUBLE])
def _global_largest(e: Emitter, node: ir.Node) -> Sequence[ir.Value] | None:
    axes = _spatial_axes(node.inputs[0])
    return None if axes is None else [e.reduce_axes("ReduceMax", node.inputs[0], axes)]


@_register_expansion("InstanceNormalization", [_T.DOUBLE])
def _instance_normalization(e: Emitter, node: ir.Node) -> Sequence[ir.Value] | None:
    """Emits ``(x - mean) / sqrt(variance + epsilon) * scale + bias`` over the spatial axes."""
    value, scale, bias = node.inputs
    axes = _spatial_axes(value)
    if axes is None:
        return None
    per_channel = e.ints([-1] + [1] * len(axes))
    centered = e.Sub(value, e.reduce_axes("ReduceMean", value, axes))
    variance = e.reduce_axes("ReduceMean", e.Mul(centered, centered), axes)
    deviation = e.Sqrt(e.Add(variance, node.attributes.get_float("epsilon", 1e-5)))
    scaled = e.Mul(e.Div(centered, deviation), e.Reshape(scale, per_channel))
    return [e.Add(scaled, e.Reshape(bias, per_channel))]
