"""Sorting and selecting by order."""

from __future__ import annotations

import onnx_ir as ir
import torch

from onnx_aot.ops.builder import Builder, Size
from onnx_aot.ops.registry import register

__all__: list[str] = []

aten = torch.ops.aten
Value = ir.Value


@register(aten.topk.default)
def aten_topk(
    op: Builder, self: Value, k: Size, dim: int = -1, largest: bool = True, sorted: bool = True
) -> list[Value]:
    if op.rank(self) == 0:
        return [self, op.constant(0, ir.DataType.INT64)]
    count = op.sizes([k])
    values = op.TopK(self, count, axis=dim, largest=int(largest), sorted=1, _outputs=2)
    return list(values)


@register(aten.sort.default)
def aten_sort(op: Builder, self: Value, dim: int = -1, descending: bool = False) -> list[Value]:
    if op.rank(self) == 0:
        return [self, op.constant(0, ir.DataType.INT64)]
    count = op.sizes([op.size(self, dim)])
    return list(op.TopK(self, count, axis=dim, largest=int(descending), sorted=1, _outputs=2))
