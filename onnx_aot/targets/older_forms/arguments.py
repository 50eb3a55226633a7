"""Older forms of operators that move elements: attributes in place of inputs, fewer attributes."""

from __future__ import annotations

from collections.abc import Sequence

import onnx_ir as ir
import torch

from onnx_aot import dtypes
from onnx_aot.dtypes import INT64_MAX
from onnx_aot.errors import MissingInOpset
from onnx_aot.targets.emitter import Emitter
from onnx_aot.targets.older_forms.rows import Form, NoOlderFormError, Row, read_integers

__all__ = ["ROWS"]

INPUTS_SINCE = 13
"""First opset with axes, and sizes of pieces, as inputs."""


def _input_as_attribute(name: str) -> Form:
    def write(e: Emitter, node: ir.Node) -> None:
        """``Squeeze(x, [0])`` -> ``Squeeze<axes=[0]>(x)``."""
        if len(node.inputs) < 2:
            return
        numbers = read_integers(node.inputs[1])
        if numbers is None:
            problem = (
                f"ONNX {node.op_type} has constant {name} before opset {INPUTS_SINCE}, and here "
                "they are computed"
            )
            raise NoOlderFormError(MissingInOpset(node.op_type, problem, INPUTS_SINCE))
        node.resize_inputs(1)
        node.attributes[name] = ir.AttrInt64s(name, numbers)

    return write


def _split(e: Emitter, node: ir.Node) -> Sequence[ir.Value] | None:
    """``Split(x, [2, 3])`` -> ``Split<split=[2, 3]>(x)``; computed sizes -> one Slice a piece."""
    if len(node.inputs) < 2 or read_integers(node.inputs[1]) is not None:
        return _input_as_attribute("split")(e, node)
    value, sizes = node.inputs
    axis = e.ints([node.attributes.get_int("axis", 0)])
    pieces, start = [], e.ints([0])
    for place, output in enumerate(node.outputs):
        size = e.Slice(sizes, e.ints([place]), e.ints([place + 1]), e.ints([0]))
        end = e.Add(start, size)
        pieces.append(e.op("Slice", [value, start, end, axis], shape=output.shape))
        start = end
    return pieces


def _shape(e: Emitter, node: ir.Node) -> Sequence[ir.Value] | None:
    """``Shape<start=1, end=2>(x)`` -> ``Slice(Shape(x), [1], [2], [0])``."""
    start = node.attributes.get_int("start", 0)
    end = node.attributes.get_int("end", INT64_MAX)
    if start == 0 and end == INT64_MAX:
        node.attributes.pop("start", None)
        return None
    return [e.Slice(e.Shape(node.inputs[0]), e.ints([start]), e.ints([end]), e.ints([0]))]


def _reshape(e: Emitter, node: ir.Node) -> Sequence[ir.Value] | None:
    """Leaves ``allowzero`` out; a result that is known to be empty -> an empty ConstantOfShape.

    If one of several sizes that are computed turns out to be 0, it is what the others leave, -1.
    If more do, they are copied from the input, at the same axes.
    """
    if not node.attributes.get_int("allowzero", 0):
        return None
    del node.attributes["allowzero"]
    sizes = read_integers(node.inputs[1])
    value, shape = node.inputs[0], node.outputs[0].shape
    is_empty = 0 in (sizes or ()) or (shape is not None and 0 in shape.dims)
    if is_empty and value is not None and value.dtype is not None:
        zero = torch.zeros(1, dtype=dtypes.to_torch(value.dtype))
        return [e.op("ConstantOfShape", [node.inputs[1]], {"value": zero}, dtype=value.dtype)]
    if sizes is not None or (shape is not None and all(isinstance(n, int) for n in shape.dims)):
        return None
    none = e.Equal(node.inputs[1], e.constant(0, ir.DataType.INT64))
    count = e.op("ReduceSum", [e.Cast(none, to=ir.DataType.INT64)], {"keepdims": 1})
    left = e.Cast(e.Equal(count, e.constant(1, ir.DataType.INT64)), to=ir.DataType.INT64)
    return [e.Reshape(value, e.Where(none, e.Neg(left), node.inputs[1]))]


def _resize(e: Emitter, node: ir.Node) -> None:
    """Gives empty regions and scales in place of absent ones."""
    for place in (1, 2):
        if len(node.inputs) > place and node.inputs[place] is None:
            node.replace_input_with(place, e.constant([], ir.DataType.FLOAT))


def _trilu(e: Emitter, node: ir.Node) -> Sequence[ir.Value]:
    """``Trilu(x, k)`` -> ``Where(column - row >= k, x, 0)``."""
    value = node.inputs[0]
    assert value is not None
    assert value.dtype is not None
    row, column = (_count_along(e, value, axis) for axis in (-2, -1))
    apart = e.Sub(column, e.Unsqueeze(row, [1]))
    shift = node.inputs[1] if len(node.inputs) > 1 else None
    shift = e.constant(0, ir.DataType.INT64) if shift is None else shift
    if node.attributes.get_int("upper", 1):
        outside = e.Less(apart, shift)
    else:
        outside = e.Greater(apart, shift)
    return [e.Where(outside, e.constant(0, value.dtype), value)]


def _count_along(e: Emitter, value: ir.Value, axis: int) -> ir.Value:
    """Returns the positions along an axis."""
    size = None if value.shape is None else value.shape[axis]
    if isinstance(size, int):
        return e.ints(range(size))
    end = e.Squeeze(e.Gather(e.Shape(value), e.ints([axis])), [0])
    zero, one = (e.constant(number, ir.DataType.INT64) for number in (0, 1))
    counted: ir.Value = e.Range(zero, end, one)
    return counted


ROWS = (
    Row("Squeeze", INPUTS_SINCE, _input_as_attribute("axes")),
    Row("Unsqueeze", INPUTS_SINCE, _input_as_attribute("axes")),
    Row("ReduceSum", INPUTS_SINCE, _input_as_attribute("axes")),
    Row("Split", INPUTS_SINCE, _split),
    Row("Shape", 15, _shape),
    Row("Reshape", 14, _reshape),
    Row("Resize", 13, _resize),
    Row("Trilu", 14, _trilu),
)
