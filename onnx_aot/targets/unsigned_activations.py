"""Quantizes activations to unsigned 8-bit integers, which ONNX Runtime (1.31) computes with.

On x86 it converts signed activations to unsigned ones itself, if they are dequantized once. If they
are dequantized twice, as before a residual connection, they stay signed, and nodes that read one of
each kind are computed in floating point.
"""

from __future__ import annotations

import onnx_ir as ir
import torch

from onnx_aot.metadata.keys import INPUT_KIND
from onnx_aot.targets.emitter import Emitter

__all__ = ["unsigned_activations"]

OFFSET = 128
ZERO_POINT = 2
"""The position among the inputs of QuantizeLinear and DequantizeLinear."""


def unsigned_activations(e: Emitter, node: ir.Node) -> None:
    """Shifts integers that are dequantized again by 128, together with their zero point.

    ``DequantizeLinear(QuantizeLinear(x, s, int8 z), s, z)`` -> with ``uint8 z + 128``. The
    dequantized numbers are the same, bit by bit.
    """
    zero = _read_zero_point(node)
    result = node.outputs[0]
    if zero is None or result.is_graph_output() or node.graph is None:
        return
    users = [user for user, _ in result.uses()]
    for user in users:
        if user.op_type != "DequantizeLinear" or user.domain or _read_zero_point(user) != zero:
            return
    moved = e.constant(zero + OFFSET, ir.DataType.UINT8)
    for each in (node, *users):
        each.replace_input_with(ZERO_POINT, moved)
    result.type = ir.TensorType(ir.DataType.UINT8)
    result.name = e.make_unique_name(f"{result.name}_unsigned")  # differs from PyTorch's value


def _read_zero_point(node: ir.Node) -> int | None:
    """The zero point of a node, if it is a constant with one INT8 number; else None."""
    value = node.inputs[ZERO_POINT] if len(node.inputs) > ZERO_POINT else None
    if value is None or value.dtype != ir.DataType.INT8 or not value.is_initializer():
        return None
    held = value.const_value
    if held is None or held.size != 1 or len(held.shape) != 0 or INPUT_KIND in value.metadata_props:
        return None
    raw = getattr(held, "raw", None)
    return int(raw) if isinstance(raw, torch.Tensor) else int(held.numpy())
