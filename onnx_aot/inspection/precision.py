"""Determines the precision to expect of a value from the types that it is computed from."""

from __future__ import annotations

from typing import Any

import torch
import torch.fx

from onnx_aot.dtypes import TOLERANCES, Tolerance, is_floating, to_torch
from onnx_aot.inspection.value_mapping import Slice

__all__ = ["is_near", "least_precise", "precision_inside"]


def least_precise(graph: torch.fx.Graph) -> dict[torch.fx.Node, torch.dtype]:
    """Maps each node to the least precise floating point type of it and the nodes it depends on.

    A float32 value that is computed from bfloat16 values may differ by as much as these. Inputs and
    weights do not count: they are the same on both sides.
    """
    found: dict[torch.fx.Node, torch.dtype] = {}
    for node in graph.nodes:
        if node.op != "call_function":
            continue
        candidates = [found[source] for source in node.all_input_nodes if source in found]
        candidates += [
            dtype for dtype in _recorded_dtypes(node.meta.get("val")) if dtype in TOLERANCES
        ]
        if candidates:
            found[node] = max(candidates, key=lambda dtype: TOLERANCES[dtype].relative)
    return found


def precision_inside(piece: Slice) -> torch.dtype | None:
    """The least precise floating point type that the nodes of a slice round to."""
    types = {value.dtype for node in piece.nodes for value in node.outputs}
    floating = [to_torch(dtype) for dtype in types if is_floating(dtype) and dtype is not None]
    known = [dtype for dtype in floating if dtype in TOLERANCES]
    return max(known, key=lambda dtype: TOLERANCES[dtype].relative, default=None)


def _recorded_dtypes(recorded: Any) -> list[torch.dtype]:
    values = recorded if isinstance(recorded, (list, tuple)) else [recorded]
    return [value.dtype for value in values if isinstance(value, torch.Tensor)]


def is_near(expected: torch.Tensor, actual: torch.Tensor, tolerance: Tolerance) -> bool:
    """True if every element is within a tolerance; the tensors have the same type and shape."""
    wide = torch.complex128 if expected.is_complex() else torch.float64
    a, b = (tensor.detach().cpu().to(wide) for tensor in (actual, expected))
    return torch.allclose(a, b, tolerance.relative, tolerance.absolute, equal_nan=True)
