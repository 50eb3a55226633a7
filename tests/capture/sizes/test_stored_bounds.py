"""Bounds that a model keeps with a table of an earlier call limit no capture."""

from __future__ import annotations

import warnings
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import onnx_aot
from onnx_aot.errors import OnnxExporterWarning

SIZES = (0, 1, 7, 30, 31, 47, 100)


def angles(length: int) -> Tensor:
    return torch.outer(torch.arange(length).float(), 0.5 ** torch.arange(8)).cos()


class Rotary(nn.Module):
    """Keeps the longest table so far, and its length."""

    def __init__(self) -> None:
        super().__init__()
        self.length = 0
        self.table: Tensor | None = None

    def forward(self, x: Tensor) -> Tensor:
        if self.table is None or x.shape[1] > self.length:
            self.length = x.shape[1]
            self.table = angles(x.shape[1])
        return x * self.table[: x.shape[1]]


class Positions(nn.Module):
    """Begins with a table, and extends it."""

    def __init__(self, length: int = 30) -> None:
        super().__init__()
        self.table = angles(length)

    def forward(self, x: Tensor) -> Tensor:
        if self.table.shape[0] < x.shape[1]:
            self.table = angles(x.shape[1])
        return x + self.table[: x.shape[1]]


class Table(nn.Module):
    """Fills a buffer of constant size."""

    def __init__(self) -> None:
        super().__init__()
        self.filled = 0
        self.table = nn.Buffer(torch.zeros(64, 8), persistent=False)

    def forward(self, x: Tensor) -> Tensor:
        length = x.shape[1]
        if length <= self.filled:
            return x + self.table[:length]
        computed = angles(length)
        if length <= 64:
            self.table[:length] = computed
            self.filled = length
        return x + computed


class Crop(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.longest = 40

    def forward(self, x: Tensor) -> Tensor:
        return x[:, : self.longest] * 2 if x.shape[1] > self.longest else x * 2


class ForOne(Positions):
    """Has a shortcut for batch 1 too, which fixes the batch."""

    def forward(self, x: Tensor) -> Tensor:
        y = super().forward(x)
        return y[0][None] * 1.0 if y.shape[0] == 1 else y


class Interpolated(nn.Module):
    """Treats sizes above the bound differently."""

    def __init__(self) -> None:
        super().__init__()
        self.table = nn.Buffer(torch.randn(1, 8, 30))

    def forward(self, x: Tensor) -> Tensor:
        length = x.shape[1]
        if length <= self.table.shape[2]:
            return x + self.table[:, :, :length].mT
        return x + nn.functional.interpolate(self.table, size=length, mode="linear").mT


class Halved(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.longest = 30

    def forward(self, x: Tensor) -> Tensor:
        return x * 2 if x.shape[1] <= self.longest else x / 2


def export(model: nn.Module, example: Tensor) -> Any:
    shapes = ({0: "batch", 1: "length"},)
    return onnx_aot.export(model, (example,), dynamic_shapes=shapes, verify=True)


@pytest.mark.filterwarnings("ignore:The tensor attribute")
@pytest.mark.parametrize("make", [Rotary, Positions, Crop, ForOne])
@pytest.mark.parametrize("batch", [1, 2])
def test_a_bound_from_an_earlier_call_is_no_limit(make: Any, batch: int) -> None:
    model, x = make(), torch.randn(batch, 30, 8)
    model(x)
    with warnings.catch_warnings():
        warnings.simplefilter("error", OnnxExporterWarning)
        program = export(model, x)
    for size in SIZES:
        y = torch.randn(3, size, 8)
        torch.testing.assert_close(program(y)[0], make()(y))


@pytest.mark.filterwarnings("ignore::onnx_aot.errors.OnnxExporterWarning")
def test_a_buffer_that_an_earlier_call_filled() -> None:
    model, x = Table(), torch.randn(2, 30, 8)
    model(x)
    program = export(model, x)
    for size in (1, 7, 30, 47, 64):
        y = torch.randn(3, size, 8)
        torch.testing.assert_close(program(y)[0], Table()(y))


@pytest.mark.filterwarnings("ignore:The tensor attribute")
def test_the_module_keeps_its_table() -> None:
    model = Positions()
    table = model.table
    export(model, torch.randn(2, 30, 8))
    assert model.table is table
    assert table.shape == (30, 8)


@pytest.mark.parametrize("make", [Interpolated, Halved])
def test_a_bound_with_other_results_beyond_becomes_a_branch(make: Any) -> None:
    model = make()
    program = export(model, torch.randn(2, 30, 8))
    assert [node.op_type for node in program.model.graph].count("If") == 1
    for size in (0, 1, 7, 30, 31, 64):
        y = torch.randn(3, size, 8)
        torch.testing.assert_close(program(y)[0], model(y))


def test_a_far_bound_takes_no_second_capture() -> None:
    with pytest.warns(OnnxExporterWarning, match="branches on sizes"):
        program = export(Positions(5000), torch.randn(2, 30, 8))
    assert "instead of" not in program.report.to_markdown()
