"""Recognizes quantized values that differ only because two ways of rounding are both right."""

from __future__ import annotations

from typing import Any

import torch

from onnx_aot.inspection.value_mapping import Slice

__all__ = ["NEIGHBOURS", "rounded_to_neighbours"]

NEIGHBOURS = (
    "right from PyTorch's inputs but for a few elements in the next step of their grid, where a "
    "quotient is as near to the one as to the other"
)

FEW = 1e-3
"""Largest share of elements that may be rounded to the other step."""

ROUNDED = 1e-3
"""Slack, in steps, by which a difference may exceed one step."""


def rounded_to_neighbours(piece: Slice, expected: Any, actual: torch.Tensor) -> bool:
    """True if nodes quantize with one scale and few results are one step away from PyTorch's.

    QuantizeLinear divides by the scale, and PyTorch multiplies by its reciprocal.
    """
    scales = [
        node.inputs[1].const_value
        for node in piece.nodes
        if node.op_type == "QuantizeLinear" and node.inputs[1] is not None
    ]
    if len(scales) != 1 or scales[0] is None or scales[0].size != 1:
        return False
    if not isinstance(expected, torch.Tensor) or expected.shape != actual.shape:
        return False
    step = float(scales[0].numpy().item()) if actual.is_floating_point() else 1.0
    distance = (actual.double() - expected.double()).abs()
    other = distance > step / 2
    return bool((distance <= step * (1 + ROUNDED)).all()) and float(other.double().mean()) <= FEW
