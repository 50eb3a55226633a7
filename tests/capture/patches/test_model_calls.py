"""Writes to slices between numbers of data, which torch slices again: ``model_calls.py``."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor, nn

import onnx_aot

X = torch.randn(1, 6, 4, generator=torch.Generator().manual_seed(0))
OTHERS = (
    (X, [2, 5]),
    (torch.randn(2, 9, 4), [0, 9]),
    (torch.randn(3, 4, 4), [1, 2]),
    (torch.randn(2, 5, 4), [3, 3]),
    (torch.randn(2, 5, 4), [-3, -1]),
)


class Part(nn.Module):
    """Has a layer with weights, whose results need gradients while a model is captured."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.layer = nn.Linear(4, 4)

    def forward(self, x: Tensor, bounds: Tensor) -> Any:
        start, end = bounds.tolist()
        return self.compute(x * 1, start, end)

    def compute(self, x: Tensor, start: int, end: int) -> Any:
        raise NotImplementedError


class Writes(Part):
    def compute(self, x: Tensor, start: int, end: int) -> Any:
        out = torch.zeros_like(x)
        out[:, start:end] = self.layer(x[:, start:end])
        return out


class WritesPart(Part):
    def compute(self, x: Tensor, start: int, end: int) -> Any:
        x[:, start:end, 1:] = self.layer(x[:, start:end])[..., 1:]
        return x


class Adds(Part):
    """Slices twice, once to add and once to assign."""

    def compute(self, x: Tensor, start: int, end: int) -> Any:
        x[:, start:end] += x.flip(1)[:, start:end]
        return x


class AddsFrom(Part):
    def compute(self, x: Tensor, start: int, end: int) -> Any:
        x[:, start:] += self.layer.bias
        x[:, :end] *= 2
        return x


class ReadsLater(Part):
    """Reads a view whose memory was written to."""

    def compute(self, x: Tensor, start: int, end: int) -> Any:
        out = torch.zeros_like(x)
        view = out[:, start:end]
        view.copy_(self.layer(x[:, start:end]))
        out.mul_(2)
        y = view @ self.layer.weight
        out[:, start:end] += y
        return out, view.sum(1), y


class OfSizes(Part):
    """Writes the middle, whose start torch cannot compare with 0."""

    def compute(self, x: Tensor, start: int, end: int) -> Any:
        middle, half = x.shape[1] // 2, min(x.shape[1], 8) // 2
        out = torch.zeros_like(x)
        out[:, middle - half : middle + half] = self.layer(x[:, middle - half : middle + half])
        return out


class OnOneSide(Part):
    """Each side of the branch has slices of its own."""

    def compute(self, x: Tensor, start: int, end: int) -> Any:
        if x.sum() > 0:
            x[:, start:end] += 1
        else:
            x[:, start:end] = self.layer(x[:, start:end])
        return x[:, start:end]


@pytest.mark.parametrize(
    "kind", [Writes, WritesPart, Adds, AddsFrom, ReadsLater, OfSizes, OnOneSide]
)
def test_writes_to_slices_between_numbers_of_data(kind: type[Part]) -> None:
    model = kind().eval()
    example = (X, torch.tensor([2, 5]))
    program = onnx_aot.export(model, example, dynamic_shapes=({0: "batch", 1: "n"}, None))
    for x, bounds in OTHERS:
        for given in (x, -x):
            with torch.no_grad():
                expected = model(given, torch.tensor(bounds))
            found = program(given, torch.tensor(bounds))
            torch.testing.assert_close(
                tuple(found), expected if isinstance(expected, tuple) else (expected,)
            )
