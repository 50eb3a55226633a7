"""Names constants and places them in graphs and functions."""

from __future__ import annotations

import onnx_ir as ir
import torch
from onnx_ir import tensor_adapters

from onnx_aot import dtypes

__all__ = ["constant_name", "constant_node", "constant_value", "place_constant"]

_SPELLED_OUT = 8
"""Longest vector whose elements are shown in the name."""


def constant_name(tensor: torch.Tensor) -> str:
    """``const_f32_0.5``, ``const_i64[0, -1, 64]``, or with the shape of a larger tensor."""
    short = dtypes.to_onnx(tensor.dtype).short_name()
    if tensor.ndim == 0:
        return f"const_{short}_{tensor.item()}"
    if tensor.ndim == 1 and tensor.numel() <= _SPELLED_OUT:
        return f"const_{short}{tensor.tolist()}"
    return f"const_{short}_{'x'.join(map(str, tensor.shape))}"


def constant_value(tensor: torch.Tensor, name: str | None = None) -> ir.Value:
    """Returns a value that holds a tensor, without a copy if the tensor is contiguous.

    Args:
        tensor: Contents of the value.
        name: Name of the value; by default ``constant_name``.
    """
    data = tensor_adapters.TorchTensor(tensor.contiguous())
    value = ir.Value(
        name=constant_name(tensor) if name is None else name,
        type=ir.TensorType(data.dtype),
        shape=ir.Shape(tuple(tensor.shape)),
        const_value=data,
    )
    data.name = value.name
    return value


def constant_node(value: ir.Value, contents: ir.TensorProtocol) -> ir.Node:
    """Returns a Constant node for a value, for functions, which have no initializers."""
    attribute = ir.AttrTensor("value", contents)
    return ir.Node("", "Constant", [], [attribute], outputs=[value], name=f"node_{value.name}")


def place_constant(
    value: ir.Value, model: ir.Model, function: ir.Graph | ir.Function | None
) -> None:
    """Adds a constant to a function, or to the model's main graph if ``function`` is None."""
    if function is None:
        model.graph.register_initializer(value)
        return
    contents, value.const_value = value.const_value, None
    assert contents is not None
    function.insert_before(function[0], constant_node(value, contents))
