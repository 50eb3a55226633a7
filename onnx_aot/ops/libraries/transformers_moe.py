"""Operator that Hugging Face's transformers uses to multiply the experts of a mixture.

It exists once transformers has created such a model; this family is imported when a graph has it.
"""

from __future__ import annotations

import onnx_ir as ir
import torch

from onnx_aot.builder.builder import Builder
from onnx_aot.ops.nn.grouped_products import multiply_groups
from onnx_aot.ops.registry import register

__all__: list[str] = []


@register(torch.ops.transformers.grouped_mm_fallback.default)
def grouped_mm_fallback(op: Builder, input: ir.Value, weight: ir.Value, offs: ir.Value) -> ir.Value:
    """Schema ``grouped_mm_fallback(input[S, K], weight[groups, K, N], offs[groups])``: a Loop."""
    return multiply_groups(op, input, weight, offs)
