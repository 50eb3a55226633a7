"""Choices by sizes that change no result: no warning, no If, and no limit of a ``Dim``."""

from __future__ import annotations

import warnings
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch._subclasses import FakeTensorMode
from torch.export import Dim
from torch.nn import functional
from torch.testing import assert_close

import onnx_aot
from onnx_aot.errors import DynamicShapeError, OnnxExporterWarning

WAYS = {"name": "n", "Dim": Dim("n", min=1)}


def fill_up(x: Tensor) -> Tensor:
    """The code of models that work in windows of four."""
    n = x.shape[1]
    pad = (4 - n % 4) % 4
    if pad > 0:
        x = functional.pad(x, (0, pad))
    return x.reshape(x.shape[0], -1, 4).cumsum(1).flatten(1)[:, :n]


def fill_up_beyond(x: Tensor) -> Tensor:
    pad = max(x.shape[1] - 8, 0)
    if pad > 0:
        x = functional.pad(x, (pad, 2 * pad))
    return x * 2


def in_parts(x: Tensor) -> Tensor:
    if x.shape[1] % 3 == 1:
        return torch.cat([x[:, :1] * 2, x[:, 1:] * 2], 1)
    return x * 2


def flip_if_long(x: Tensor) -> Tensor:
    """Gives the same for ones."""
    return x.flip(1) if x.shape[1] // 2 > 4 else x


def export(function: Any, x: Tensor, dim: Any) -> Any:
    with warnings.catch_warnings():
        warnings.simplefilter("error", OnnxExporterWarning)
        return onnx_aot.export(function, (x,), dynamic_shapes=({0: "b", 1: dim},))


def count_branches(program: Any) -> int:
    return [node.op_type for node in program.model.graph].count("If")


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("function", [fill_up, fill_up_beyond, in_parts])
@pytest.mark.parametrize("length", [7, 8, 12])
def test_a_choice_without_effect_leaves_no_trace(function: Any, length: int, way: str) -> None:
    program = export(function, torch.randn(3, length), WAYS[way])
    assert count_branches(program) == 0
    for batch, n in ((3, length), (1, 1), (2, 4), (1, 8), (2, 9), (3, 12), (2, 31)):
        x = torch.randn(batch, n)
        assert_close(program(x)[0], function(x))


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("length", [6, 12])
def test_a_choice_with_an_effect_is_kept(length: int, way: str) -> None:
    """Also if the example does not show the effect."""
    program = export(flip_if_long, torch.ones(2, length), WAYS[way])
    assert count_branches(program) == 1
    for n in (1, 2, 9, 10, 31):
        x = torch.randn(2, n)
        assert_close(program(x)[0], flip_if_long(x))


def test_a_choice_with_an_effect_at_size_1_alone() -> None:
    def triple_if_single(x: Tensor) -> Tensor:
        n = x.shape[1]
        if n % 2 == 0 or n > 3:
            return x * 2
        return x * 2 if n == 3 else x * 3

    with pytest.raises(DynamicShapeError, match="right for few sizes"):
        export(triple_if_single, torch.randn(2, 6), Dim("n", min=1))
    program = export(triple_if_single, torch.randn(2, 6), Dim("n", min=2))
    assert_close(program(torch.ones(2, 3))[0], torch.full((2, 3), 2.0))


def test_indices_of_zero_do_not_settle_a_choice() -> None:
    """Other indices may be none of the model's, and zeros do not show what a flip does."""

    class Lookup(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.table = nn.Embedding(5, 3)

        def forward(self, ids: Tensor) -> Tensor:
            return self.table(flip_if_long(ids)).sum(-1)

    model = Lookup()
    program = export(model, torch.zeros(2, 12, dtype=torch.int64), "n")
    for n in (3, 12):
        ids = torch.arange(2 * n).reshape(2, n) % 5
        assert_close(program(ids)[0], model(ids))


def test_a_bound_stays_where_branches_cannot_be_one_model() -> None:
    def shorten(x: Tensor) -> Tensor:
        return x * 2 if x.shape[1] < 9 else x.sum(1)

    with pytest.raises(DynamicShapeError, match=r"limited to x\.shape\[1\] < 9"):
        export(shorten, torch.randn(2, 6), Dim("n", min=1))
    with pytest.warns(OnnxExporterWarning, match="branches on sizes"):
        onnx_aot.export(shorten, (torch.randn(2, 6),), dynamic_shapes=({1: "n"},))


@pytest.mark.filterwarnings("ignore:the model's code branches on sizes")
@pytest.mark.parametrize("place", ["fake", "meta"])
@pytest.mark.parametrize("length", [6, 7])
def test_tensors_without_values_settle_nothing(place: str, length: int) -> None:
    class Filled(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.weight = nn.Parameter(torch.ones(1))

        def forward(self, x: Tensor) -> Tensor:
            return fill_up(x) * self.weight

    with FakeTensorMode() if place == "fake" else torch.device("meta"):
        model, x = Filled(), torch.ones(2, length)
    program = onnx_aot.export(model, (x,), dynamic_shapes=({1: "n"},))
    assert count_branches(program) == 0


def test_eight_bits_are_varied_too() -> None:
    def double(x: Tensor) -> Tensor:
        return x.float() * 2 if x.shape[0] % 3 else x.float() + x.float()

    x = torch.ones(7).to(torch.float8_e4m3fn)
    program = onnx_aot.export(double, (x,), dynamic_shapes=({0: "n"},))
    assert count_branches(program) == 0
