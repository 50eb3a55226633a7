"""Defines the operator for logarithms of sizes, which a captured graph has no function for.

``torch.export`` accepts the roots of sizes in a graph, but not their logarithms.
"""

from __future__ import annotations

import math

import torch
from torch.types import Number

__all__ = ["LOG2", "take_log2"]


@torch.library.custom_op("onnx_aot::log2", mutates_args=())
def take_log2(number: Number) -> Number:
    """``math.log2`` of a number; its shape function is in ``torch_compat/size_logarithms.py``."""
    return math.log2(number)


LOG2 = torch.ops.onnx_aot.log2.default
