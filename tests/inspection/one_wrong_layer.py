"""A tower of equal layers, one of which is translated incorrectly."""

from __future__ import annotations

import functools
from typing import Any

import torch
from torch import Tensor, nn

import onnx_aot
from onnx_aot.inspection.compared_values import ComparedValue
from onnx_aot.inspection.comparison import Comparison

GELU = torch.ops.aten.gelu.default
X = torch.tensor([[1.0, -2.0, 3.0], [4.0, 5.0, -6.0]])


class Block(nn.Module):
    def __init__(self, size: int) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(size)
        self.linear = nn.Linear(size, size)
        self.act = nn.GELU()

    def forward(self, x: Tensor) -> Tensor:
        return x + self.act(self.linear(self.norm(x)))


class Tower(nn.Module):
    def __init__(self, depth: int, size: int = 3) -> None:
        super().__init__()
        self.layers = nn.ModuleList(Block(size) for _ in range(depth))

    def forward(self, x: Tensor) -> Tensor:
        for layer in self.layers:
            x = layer(x)
        return x


def wrong_in_one(number: int, of: int) -> Any:
    """A translation of ``gelu`` whose result is 1% too large in one of ``of`` calls."""
    calls = iter(range(10**6))

    def gelu(op: Any, self: Any, approximate: Any = "none") -> Any:
        result = op.Gelu(self)
        return op.Mul(result, op.constant(1.01)) if next(calls) % of == number else result

    return gelu


def row_of(comparison: Comparison, name: str) -> ComparedValue:
    (row,) = [row for row in comparison.rows if row.fx_node == name]
    return row


def blamed(comparison: Comparison) -> ComparedValue:
    assert comparison.first is not None
    return comparison.first


@functools.cache
def in_one_of_64() -> Comparison:
    torch.manual_seed(0)
    table = {GELU: wrong_in_one(37, 64)}
    return onnx_aot.export(Tower(64), (X,), custom_translation_table=table).compare()
