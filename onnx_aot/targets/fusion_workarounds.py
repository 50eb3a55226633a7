"""Keeps runtimes from fusions that change the result.

ONNX Runtime fuses a transposed matrix times a vector into one operator that reads the matrix
without the transpose (1.31 and 1.32). It merges zero padding before max pooling into the pooling,
which pads with minus infinity (1.31). It turns a gather from a range into a slice, where the
range's end -1 means the last element (1.31 and 1.32). It moves a factor into a matrix product
although the scaled matrix, or one in between, is read elsewhere too, and refuses its own graph
(1.32). It skips a cast to a shorter floating-point type, which rounds, if a cast to a small integer
follows (1.31, 1.32). It merges Relu into a Clip behind it, and fails for types other than float32
and float16 (1.32). It takes any power of the differences from a mean for the square in a layer
normalization (1.32). Up to 1.18 its fusion of attention ends the process if a layer normalization
before it has no bias.

OpenCV takes a product with HardSigmoid for HardSwish, whatever the other factor is (5.0).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
import onnx_ir as ir

from onnx_aot.dtypes import is_floating
from onnx_aot.targets.emitter import Emitter
from onnx_aot.targets.expansions_pointwise import FORMULAS

__all__ = ["KEPT_APART", "KEPT_APART_BEFORE_1_19", "KEPT_APART_IN_OPENCV"]

HANDED_ON = frozenset({"Cast", "Identity"})
BIAS = 2  # the position among the inputs of LayerNormalization
AXES = 3  # the position among the inputs of Pad
PAD_TAKES_AXES = 18
MAX_TAKES_INTEGERS = 12


def _find_producer(value: ir.Value | None) -> ir.Node | None:
    """The node that computes a value, through Cast and Identity."""
    node = None if value is None else value.producer()
    while node is not None and node.op_type in HANDED_ON:
        source = node.inputs[0]
        node = None if source is None else source.producer()
    return node


def _matrix_product(e: Emitter, node: ir.Node) -> Sequence[ir.Value] | None:
    """Keeps factors apart, and replaces the product of a transposed matrix and a vector."""
    for place, value in enumerate(node.inputs):
        factor = _find_factor(value)
        inner = None if factor is None else _find_factor(factor.inputs[0])
        if value is not None and inner is not None and len(inner.outputs[0].uses()) > 1:
            node.replace_input_with(place, e.op("Max", [value], shape=value.shape))
    return _matrix_times_vector(e, node)


def _find_factor(value: ir.Value | None) -> ir.Node | None:
    """The node that computes a value, if it is a product or quotient with one number."""
    node = None if value is None else value.producer()
    if node is None or node.domain or node.op_type not in ("Mul", "Div"):
        return None
    factor = node.inputs[1]
    held = None if factor is None else factor.const_value
    return node if held is not None and held.size == 1 else None


def _matrix_times_vector(e: Emitter, node: ir.Node) -> Sequence[ir.Value] | None:
    """Turns the vector into a matrix with one column."""
    matrix, vector = node.inputs
    producer = _find_producer(matrix)
    if producer is None or producer.op_type != "Transpose":
        return None
    if vector is None or vector.shape is None or len(vector.shape) != 1:
        return None
    column = e.op("Unsqueeze", [vector, e.ints([1])], shape=ir.Shape([*vector.shape.dims, 1]))
    shape = None
    if matrix is not None and matrix.shape is not None:
        shape = ir.Shape([*matrix.shape.dims[:-1], 1])
    product = e.op("MatMul", [matrix, column], shape=shape)
    return [e.op("Squeeze", [product, e.ints([-1])])]


def _pooling_of_padded(e: Emitter, node: ir.Node) -> None:
    """Keeps a Pad separate by naming its axes, or by a node in between before opset 18.

    The node in between also serves if the shape is unknown.
    """
    pad = _find_producer(node.inputs[0])
    if pad is None or pad.op_type != "Pad" or len(pad.inputs) > AXES or not _pads_zeros(pad):
        return
    shape = pad.outputs[0].shape
    if e.opset < PAD_TAKES_AXES or shape is None:
        node.replace_input_with(0, e.op("Max", [node.inputs[0]], shape=shape))
        return
    pad.resize_inputs(AXES + 1)
    pad.replace_input_with(AXES, e.ints(range(len(shape))))


def _gather_of_range(e: Emitter, node: ir.Node) -> None:
    """Puts nodes between the range and the gather, unless the range counts up from 0 or later."""
    indices = node.inputs[1]
    numbers = _find_producer(indices)
    if indices is None or numbers is None or numbers.op_type != "Range":
        return
    start, _, step = map(_read_number, numbers.inputs)
    if start is not None and step is not None and start >= 0 and step >= 0:
        return
    if e.opset >= MAX_TAKES_INTEGERS:
        kept = e.op("Max", [indices], shape=indices.shape)
    else:
        kept = e.op("Neg", [e.op("Neg", [indices], shape=indices.shape)], shape=indices.shape)
    node.replace_input_with(1, kept)


def _read_number(value: ir.Value | None) -> float | None:
    """The value of a scalar, if it is a constant."""
    held = None if value is None else value.const_value
    return None if held is None else float(held.numpy().item())


def _pads_zeros(pad: ir.Node) -> bool:
    if pad.attributes.get_string("mode", "constant") != "constant":
        return False
    value = pad.inputs[2] if len(pad.inputs) > 2 else None
    held = None if value is None else value.const_value
    return value is None or (held is not None and not held.numpy().any())


_BYTES = frozenset({ir.DataType.INT8, ir.DataType.UINT8})
WIDER = {
    ir.DataType.FLOAT: (ir.DataType.DOUBLE, _BYTES | {ir.DataType.INT16, ir.DataType.UINT16}),
    ir.DataType.FLOAT16: (ir.DataType.FLOAT, _BYTES),
    ir.DataType.BFLOAT16: (ir.DataType.FLOAT, _BYTES),
}
"""By type that a cast rounds to, a wider type, and the next types for which it is skipped."""


def _cast_of_cast(e: Emitter, node: ir.Node) -> None:
    """Casts back to a wider type in between, which is not skipped."""
    value = node.inputs[0]
    before = None if value is None else value.producer()
    while before is not None and before.op_type == "Identity" and before.inputs[0] is not None:
        before = before.inputs[0].producer()
    if value is None or value.dtype not in WIDER or before is None or before.op_type != "Cast":
        return
    wider, skipped_for = WIDER[value.dtype]
    source = before.inputs[0]
    is_rounded = source is not None and source.dtype is not None and is_floating(source.dtype)
    if is_rounded and node.outputs[0].dtype in skipped_for:
        node.replace_input_with(0, e.op("Cast", [value], {"to": wider}, dtype=wider))


def _clip_after_relu(e: Emitter, node: ir.Node) -> None:
    """Puts a node in between, for types at which ONNX Runtime refuses to load the model."""
    value = node.inputs[0]
    before = _find_producer(value)
    if value is None or before is None or before.op_type != "Relu":
        return
    if value.dtype not in (ir.DataType.FLOAT, ir.DataType.FLOAT16):
        node.replace_input_with(0, e.op("Max", [value], shape=value.shape))


def _power_of_differences(e: Emitter, node: ir.Node) -> None:
    """Puts a node between the differences and the power, unless that is the square."""
    differences, exponent = node.inputs
    before = _find_producer(differences)
    if differences is None or before is None or before.op_type != "Sub":
        return
    held = None if exponent is None else exponent.const_value
    if held is None or held.size != 1 or held.numpy().item() != 2:
        node.replace_input_with(0, e.op("Max", [differences], shape=differences.shape))


def _normalization_without_bias(e: Emitter, node: ir.Node) -> None:
    """Gives it a bias of zeros. The fusion is tried where several nodes read the result."""
    if len(node.inputs) > BIAS or len(node.outputs[0].uses()) < 2:
        return
    scale = node.inputs[1]
    if scale is None or scale.shape is None or scale.dtype is None or not scale.shape.is_static():
        return
    zeros = e.constant(np.zeros(scale.shape.numpy()).tolist(), scale.dtype)
    node.resize_inputs(BIAS + 1)
    node.replace_input_with(BIAS, zeros)


def _hard_sigmoid(e: Emitter, node: ir.Node) -> Sequence[ir.Value]:
    """Writes it as a bounded line."""
    return [FORMULAS["HardSigmoid"](e, node)]


Workaround = Callable[[Emitter, ir.Node], Sequence[ir.Value] | None]

KEPT_APART: dict[str, Workaround] = {
    "Cast": _cast_of_cast,
    "Clip": _clip_after_relu,
    "Gather": _gather_of_range,
    "MatMul": _matrix_product,
    "MaxPool": _pooling_of_padded,
    "Pow": _power_of_differences,
}
"""Functions, by operator, that change a node's inputs or return replacements for its outputs."""

KEPT_APART_BEFORE_1_19: dict[str, Workaround] = {"LayerNormalization": _normalization_without_bias}
"""Further ones for releases of ONNX Runtime before 1.19."""

KEPT_APART_IN_OPENCV: dict[str, Workaround] = {"HardSigmoid": _hard_sigmoid}
