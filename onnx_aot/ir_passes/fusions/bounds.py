"""Derives bounds on the elements of a value from the nodes that compute it."""

from __future__ import annotations

import onnx_ir as ir
import torch

from onnx_aot.ir_passes.lazy_tensor import FoldedTensor, contents_of, sources_of
from onnx_aot.ir_passes.rewriter import Rewriter
from onnx_aot.ir_passes.tensors import in_memory, is_weight
from onnx_aot.metadata.keys import INPUT_KIND

__all__ = ["always_true", "bound_magnitude", "counts_up"]

DEPTH = 12
LARGEST_TABLE = 1 << 20
"""Number of elements."""
MOVES = {"Expand", "Gather", "Identity", "Reshape", "Slice", "Squeeze", "Transpose", "Unsqueeze"}
"""Operators whose result consists only of elements of the first input."""


def bound_magnitude(rewriter: Rewriter, value: ir.Value | None, depth: int = DEPTH) -> float | None:
    """An upper bound on the magnitude of all elements, none of which is NaN; None if unknown."""
    if value is None or depth == 0 or value.dtype is None:
        return None
    if value.dtype == ir.DataType.BOOL:
        return 1.0
    tensor = _read_table(rewriter, value)
    if tensor is not None:
        if tensor.numel() == 0 or tensor.is_complex() or not bool(torch.isfinite(tensor).all()):
            return None
        return float(tensor.double().abs().max().item())
    node = value.producer()
    if node is None or node.domain:
        return None
    if node.op_type in MOVES or node.op_type in ("Neg", "Abs"):
        return bound_magnitude(rewriter, node.inputs[0], depth - 1)
    if node.op_type == "Cast":
        source = node.inputs[0]
        boolean = source is not None and source.dtype == ir.DataType.BOOL
        return 1.0 if boolean else None
    if node.op_type == "Where":
        chosen = [bound_magnitude(rewriter, operand, depth - 1) for operand in node.inputs[1:]]
        known = [bound for bound in chosen if bound is not None]
        return max(known) if len(known) == len(chosen) else None
    return None


def _read_table(rewriter: Rewriter, value: ir.Value) -> torch.Tensor | None:
    """Contents of a constant or a parameter; None for a buffer, which may be a mask.

    Weights that replace a parameter later are assumed to be finite too.
    """
    if value.metadata_props.get(INPUT_KIND) != "PARAMETER" or value.is_graph_input():
        return rewriter.constant(value, LARGEST_TABLE)
    tensor = value.const_value
    return in_memory(tensor) if tensor is not None and tensor.size <= LARGEST_TABLE else None


def _read_folded(value: ir.Value) -> torch.Tensor | None:
    """Contents of a value that is computed from constants alone; None if a weight is among them."""
    tensor = value.const_value
    if not isinstance(tensor, FoldedTensor) or tensor.size > LARGEST_TABLE:
        return None
    return None if any(map(is_weight, sources_of([value]))) else contents_of(value)


def always_true(rewriter: Rewriter, value: ir.Value | None, depth: int = DEPTH) -> bool:
    """Returns True if every element of a boolean value is known to be true."""
    if value is None or depth == 0:
        return False
    tensor = rewriter.constant(value)
    if tensor is None:
        tensor = _read_folded(value)
    if tensor is not None:
        return tensor.dtype == torch.bool and bool(tensor.all())
    node = value.producer()
    if node is None or node.domain:
        return False
    if node.op_type in MOVES:
        return always_true(rewriter, node.inputs[0], depth - 1)
    if node.op_type == "And":
        return all(always_true(rewriter, operand, depth - 1) for operand in node.inputs)
    if node.op_type == "Or":
        return any(always_true(rewriter, operand, depth - 1) for operand in node.inputs)
    if node.op_type == "GreaterOrEqual":
        limit = rewriter.constant(node.inputs[1])
        low = None if limit is None else _lower_bound(rewriter, node.inputs[0], depth - 1)
        return low is not None and limit is not None and bool((limit <= low).all())
    return False


def _lower_bound(rewriter: Rewriter, value: ir.Value | None, depth: int) -> float | None:
    """A lower bound on the elements of constants and of values that ``counts_up``, moved or not."""
    for _ in range(depth):
        tensor = rewriter.constant(value)
        if tensor is not None:
            return float(tensor.min().item()) if tensor.numel() else None
        if value is None:
            return None
        if counts_up(rewriter, value):
            return 0.0
        node = value.producer()
        if node is None or node.domain or node.op_type not in MOVES:
            return None
        value = node.inputs[0]
    return None


def counts_up(rewriter: Rewriter, value: ir.Value | None) -> bool:
    """Returns True if a vector is 0, 1, 2, ..."""
    tensor = rewriter.constant(value)
    if tensor is not None:
        return tensor.ndim == 1 and torch.equal(tensor, torch.arange(tensor.numel()))
    node = rewriter.producer(value, "Range")
    if node is None:
        return False
    start, step = rewriter.constant(node.inputs[0]), rewriter.constant(node.inputs[2])
    return start is not None and step is not None and start.item() == 0 and step.item() == 1
