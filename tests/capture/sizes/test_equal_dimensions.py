"""Branches for equal dimensions and products of sizes, as ``if h * w == 64 and h == w:``."""

from __future__ import annotations

import warnings
from typing import Any

import pytest
import torch
import torch.nn.functional as F  # noqa: N812
from torch import Tensor, nn
from torch.export import Dim

import onnx_aot
from onnx_aot.errors import OnnxExporterWarning
from tests.tolerances import assert_close

NAMES = {0: "batch", 2: "height", 3: "width"}
DIMS = {0: Dim("batch"), 2: Dim("height", min=2), 3: Dim("width", min=2)}
PAIRS = ((8, 8), (9, 9), (9, 8), (8, 9), (4, 16), (16, 4), (6, 10), (10, 6), (5, 5), (13, 22))


class Positions(nn.Module):
    """Adds learned positions, which it interpolates for all but 4 x 4 pieces, as DINO does."""

    def __init__(self, assures: bool = False) -> None:
        super().__init__()
        self.positions = nn.Parameter(torch.randn(1, 3, 4, 4))
        self.assures = assures

    def forward(self, x: Tensor) -> Tensor:
        if self.assures and (x.shape[2] % 2 or x.shape[3] % 2):
            raise ValueError("height and width have to be even")
        height, width = x.shape[2] // 2, x.shape[3] // 2
        x = F.avg_pool2d(x, 2)
        return x + self._resize(x.shape[2] * x.shape[3], height, width)

    def _resize(self, pieces: int, height: int, width: int) -> Tensor:
        if pieces == 16 and height == width:
            return self.positions
        factors = ((height + 0.1) / 4, (width + 0.1) / 4)
        return F.interpolate(self.positions, scale_factor=factors, mode="bicubic")


class Square(nn.Module):
    """Turns wide images, and what is square otherwise."""

    def forward(self, x: Tensor) -> Tensor:
        if x.shape[2] == x.shape[3]:
            return x.flip(2).flatten(2)
        return x.transpose(2, 3).flatten(2)


def export(model: nn.Module, height: int, width: int, shapes: Any) -> Any:
    with warnings.catch_warnings():
        warnings.simplefilter("error", OnnxExporterWarning)
        x = torch.randn(1, 3, height, width)
        return onnx_aot.export(model, (x,), dynamic_shapes=(shapes,))


def check(model: nn.Module, program: Any, step: int = 1) -> None:
    for height, width in PAIRS:
        x = torch.randn(2, 3, height * step, width * step)
        assert_close(program(x)[0], model(x))


@pytest.mark.parametrize("shapes", [NAMES, DIMS], ids=["names", "dims"])
@pytest.mark.parametrize("model", [Positions(), Square()], ids=["positions", "square"])
def test_an_example_of_equal_dimensions(model: nn.Module, shapes: Any) -> None:
    """Its capture has one size for both, and is joined with one of other sizes."""
    program = export(model, 8, 8, shapes)
    names = [str(size) for size in program.model.graph.inputs[0].shape]
    assert names == ["batch", "3", "height", "width"]
    check(model, program)


@pytest.mark.parametrize("size", [(8, 8), (6, 10)])
def test_sizes_that_the_model_refuses_are_no_case(size: tuple[int, int]) -> None:
    model = Positions(assures=True)
    check(model, export(model, *size, NAMES), step=2)


def test_another_example_learns_of_the_size_that_is_special() -> None:
    model = Positions()
    check(model, export(model, 6, 10, NAMES))


@pytest.mark.parametrize(
    "shapes",
    [{2: Dim.AUTO, 3: Dim.AUTO}, {2: 2 * Dim("h", min=1), 3: 2 * Dim("w", min=1)}],
    ids=["auto", "derived"],
)
def test_a_special_size_that_is_not_joined_is_a_warning(shapes: Any) -> None:
    model, x = Positions(assures=True), torch.randn(1, 3, 6, 10)
    said = r"`if pieces == 16 and height == width:`.*for x\.shape\[\d\] and x\.shape\[\d\] of 8"
    with pytest.warns(OnnxExporterWarning, match=said):
        onnx_aot.export(model, (x,), dynamic_shapes=(shapes,))


def test_a_special_size_with_the_same_result_is_no_warning() -> None:
    class Scaled(Positions):
        """Interpolates to sizes, which changes nothing for 4 x 4."""

        def _resize(self, pieces: int, height: int, width: int) -> Tensor:
            if pieces == 16 and height == width:
                return self.positions
            return F.interpolate(self.positions, size=(height, width), mode="bicubic")

    model = Scaled()
    for size in ((6, 10), (8, 8)):
        check(model, export(model, *size, NAMES))
    ops = {node.op_type for node in export(model, 6, 10, NAMES).model.graph}
    assert "If" not in ops


def test_products_of_which_no_size_is_special() -> None:
    """Seven is no square, so no size of both takes the other branch."""

    def model(x: Tensor) -> Tensor:
        return x + 1 if x.shape[2] * x.shape[3] == 7 else x * 2

    program = export(model, 6, 10, NAMES)  # type: ignore[arg-type]
    x = torch.randn(2, 3, 8, 8)
    assert_close(program(x)[0], model(x))
