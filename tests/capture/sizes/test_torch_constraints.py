"""Dimensions that torch refuses: the message, and a ``Dim`` that can be pasted."""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.export import Dim

import onnx_aot
from onnx_aot.capture.sizes.dimension_requests import RequestedDim
from onnx_aot.capture.sizes.narrower_dims import suggest_narrower_dim
from onnx_aot.errors import DynamicShapeError

SUGGESTED = re.compile(r"fix: write (.+) for it, which is what the model accepts")


class Merging(nn.Module):
    """Merges the most similar of every two tokens, twice, unless there are too few."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.ModuleList(nn.Linear(4, 4) for _ in range(2))

    @staticmethod
    def find(x: Tensor, most: int) -> Callable[[Tensor], Tensor]:
        count = min(most, (x.shape[1] - 1) // 2)
        if count <= 0:  # too few
            return lambda y: y
        scores = x[:, ::2] @ x[:, 1::2].mT
        scores[:, 0] = -math.inf
        best, to = scores.max(-1)
        order = best.argsort(-1, descending=True)[..., None]
        kept, merged = order[:, count:].sort(1)[0], order[:, :count]
        to = to[..., None].gather(1, merged)

        def merge(y: Tensor) -> Tensor:
            first, second = y[:, ::2], y[:, 1::2]
            n, t, c = first.shape
            moved = first.gather(1, merged.expand(n, count, c))
            second = second.scatter_reduce(1, to.expand(n, count, c), moved, reduce="sum")
            return torch.cat([first.gather(1, kept.expand(n, t - count, c)), second], 1)

        return merge

    def forward(self, x: Tensor) -> Tensor:
        for layer in self.layers:
            x = x + (layer(x) @ x.mT).softmax(-1) @ x
            x = self.find(x, 3)(x)
        return x


class MergingOrRefusing(Merging):
    """Refuses too few tokens, in a function of its own."""

    @staticmethod
    def find(x: Tensor, most: int) -> Callable[[Tensor], Tensor]:
        count = min(most, (x.shape[1] - 1) // 2)
        if count <= 0:  # too few
            return refuse()
        return Merging.find(x, most)


def refuse() -> Any:
    raise ValueError("too few tokens")


def suggested(message: str) -> Any:
    """The ``Dim`` that a message suggests, made as it is written there."""
    found = list(dict.fromkeys(SUGGESTED.findall(message)))
    assert len(found) == 1, message
    return eval(found[0], {"torch": torch})


def test_what_torch_refuses_is_said_in_words_with_a_dim_that_works() -> None:
    model, x = MergingOrRefusing().eval(), torch.randn(2, 11, 4)
    with pytest.raises(DynamicShapeError, match=r"x, axis 1 \('t'\): limited to") as raised:
        onnx_aot.export(model, (x,), dynamic_shapes=({0: "n", 1: Dim("t")},))
    message = str(raised.value)
    assert "t is from 0 on\n      if count <= 0:  # too few\n" in message
    assert "generated guard" not in message
    dim = suggested(message)
    program = onnx_aot.export(model, (x,), dynamic_shapes=({0: "n", 1: dim},))
    for n, t in ((2, dim.min), (1, 12), (3, 25)):
        given = torch.randn(n, t, 4)
        torch.testing.assert_close(program(given)[0], model(given), rtol=1e-4, atol=1e-5)


@pytest.mark.filterwarnings("ignore:the model asks for the larger of two sizes")
def test_all_branches_of_what_torch_refuses_are_captured() -> None:
    model, x = Merging().eval(), torch.randn(2, 11, 4)
    shapes = ({0: "n", 1: Dim("t")},)
    without_limit = ("non-strict", "strict")  # of the time
    program = onnx_aot.export(model, (x,), dynamic_shapes=shapes, strategies=without_limit)
    for n, t in ((2, 1), (3, 2), (1, 3), (2, 4), (1, 5), (2, 11), (3, 25)):
        given = torch.randn(n, t, 4)
        torch.testing.assert_close(program(given)[0], model(given), rtol=1e-4, atol=1e-5)


def frames(x: Tensor) -> Tensor:
    return x.reshape(x.shape[0], -1, 40).unfold(1, 4, 2)


def all_but_first(x: Tensor) -> Tensor:
    return x[:, 1:].reshape(2, -1, 3).unfold(1, 7, 1)


def add_positions(x: Tensor) -> Tensor:
    return x + torch.arange(5000)[: x.shape[1]]


def sum_of_scales(x: Tensor) -> Tensor:
    """Adds every 32nd element, repeated, to every fourth, as networks of several resolutions do.

    29 to 32 elements, 61 to 64, and so on have as many of both.
    """
    return x[:, ::4] + x[:, ::32].repeat_interleave(8, 1)


@pytest.mark.parametrize(
    ("function", "size", "given", "dim"),
    [
        (sum_of_scales, 64, Dim("t"), "32*_t"),
        (add_positions, 6, Dim("t"), "t"),
        (add_positions, 6, Dim("t", max=7000), "t"),
        (frames, 400, Dim("t"), "40*_t"),
        (frames, 400, Dim("t", min=5, max=10_000), "40*_t"),
        (all_but_first, 31, Dim("t"), "3*_t + 1"),
        (lambda x: x.unfold(1, 40, 40).sum(-1), 400, Dim("t"), "t"),
        (lambda x: torch.nn.functional.glu(x, 1), 16, Dim("t", max=1001), "2*_t"),
    ],
)
def test_dims_that_are_suggested_can_be_pasted(
    function: Callable[[Tensor], Tensor], size: int, given: Any, dim: str
) -> None:
    x = torch.randn(2, size)
    with pytest.raises(DynamicShapeError) as raised:
        onnx_aot.export(function, (x,), dynamic_shapes=({1: given},))
    narrower = suggested(str(raised.value))
    assert narrower.__name__ == dim
    if function is add_positions:
        assert narrower.max == 5000
    program = onnx_aot.export(function, (x,), dynamic_shapes=({1: narrower},))
    smallest = torch.randn(2, int(narrower.min) or size)
    for each in (x, smallest):
        torch.testing.assert_close(program(each)[0], function(each))


def test_one_dim_is_suggested_for_the_dimensions_that_share_it() -> None:
    def function(x: Tensor) -> tuple[Tensor, Tensor]:
        return x.unfold(0, 20, 1).sum(-1), x.reshape(x.shape[0], -1, 8)

    given, x = Dim("s"), torch.randn(32, 32)
    with pytest.raises(DynamicShapeError) as raised:
        onnx_aot.export(function, (x,), dynamic_shapes=({0: given, 1: given},))
    narrower = suggested(str(raised.value))
    assert (narrower.__name__, narrower.root.min) == ("8*_s", 3)
    program = onnx_aot.export(function, (x,), dynamic_shapes=({0: narrower, 1: narrower},))
    for size in (24, 40):
        each = torch.randn(size, size)
        for actual, expected in zip(program(each), function(each), strict=True):
            torch.testing.assert_close(actual, expected)


def test_a_dim_that_excludes_nothing_is_not_suggested() -> None:
    dim = RequestedDim(0, "x", 0, "n", derived=False, may_be_static=False, given=Dim("n"))
    assert suggest_narrower_dim(dim, ["(3*n - 1) // n == 2"], 4) == ""
    assert suggest_narrower_dim(dim, ["33 <= n and n <= math.inf"], 64).startswith(
        "write torch.export.Dim('n', min=33) for it"
    )
