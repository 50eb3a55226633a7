"""Sorting and selecting by order."""

from __future__ import annotations

import onnx_ir as ir
import torch

from onnx_aot.ops.builder import Builder, Size
from onnx_aot.ops.registry import register

__all__: list[str] = []

aten = torch.ops.aten
Value = ir.Value
BOOL = ir.DataType.BOOL
INT32 = ir.DataType.INT32
INT64 = ir.DataType.INT64


@register(aten.topk.default)
def aten_topk(
    op: Builder, self: Value, k: Size, dim: int = -1, largest: bool = True, sorted: bool = True
) -> list[Value]:
    return _ordered(op, self, k, dim, largest)


@register(aten.sort.default)
def aten_sort(op: Builder, self: Value, dim: int = -1, descending: bool = False) -> list[Value]:
    """TopK of all elements, which keeps equal ones in their order."""
    return _ordered(op, self, None, dim, descending)


@register(aten.sort.stable)
def aten_sort_stable(
    op: Builder, self: Value, stable: bool | None, dim: int = -1, descending: bool = False
) -> list[Value]:
    return _ordered(op, self, None, dim, descending)


@register(aten.argsort.default)
def aten_argsort(op: Builder, self: Value, dim: int = -1, descending: bool = False) -> Value:
    return _ordered(op, self, None, dim, descending)[1]


@register(aten.argsort.stable)
def aten_argsort_stable(
    op: Builder, self: Value, stable: bool, dim: int = -1, descending: bool = False
) -> Value:
    return _ordered(op, self, None, dim, descending)[1]


def _ordered(op: Builder, value: Value, count: Size | None, dim: int, largest: bool) -> list[Value]:
    """The first elements in order, all when ``count`` is None, and their positions."""
    if op.rank(value) == 0:
        return [value, op.constant(0, INT64)]
    wanted = op.sizes([op.size(value, dim) if count is None else count])
    numbers = op.cast(value, INT32) if value.dtype == BOOL else value
    values, positions = op.TopK(
        numbers, wanted, axis=dim, largest=int(largest), sorted=1, _outputs=2
    )
    return [op.cast(values, BOOL) if value.dtype == BOOL else values, positions]
