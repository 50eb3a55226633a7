"""Sizes that a check tries, and the contents of inputs of these sizes."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn
from torch.export import Dim

import onnx_aot
from onnx_aot.inspection.size_checks import other_sizes, sizes_of


class Sum(nn.Module):
    def forward(self, x: Tensor, y: Tensor) -> Tensor:
        return x.sum() + y.sum()


def tried(model: nn.Module, args: tuple[object, ...], shapes: object) -> list[dict[str, int]]:
    program = onnx_aot.export(model, args, dynamic_shapes=shapes)  # type: ignore[arg-type]
    found = other_sizes(program, args, {})
    for sample in found:
        assert sizes_of(program, sample.args, sample.kwargs) == sample.sizes
    return [sample.sizes for sample in found]


def test_minimum_one_odd_larger_and_mixed() -> None:
    args = (torch.rand(4, 6), torch.rand(6))
    assert tried(Sum(), args, ({0: "n", 1: "m"}, {0: "m"})) == [
        {"n": 0, "m": 0},
        {"n": 1, "m": 1},
        {"n": 3, "m": 5},
        {"n": 7, "m": 11},
        {"n": 1, "m": 11},
    ]


def test_ranges_and_derived_dimensions() -> None:
    n = Dim("n", min=2, max=5)
    args = (torch.rand(7, 6), torch.rand(3))
    assert tried(Sum(), args, ({0: 2 * n + 1}, {0: n})) == [{"n": 2}, {"n": 5}]


@pytest.mark.filterwarnings("ignore:the model's code branches on sizes")
def test_conditions_of_the_model() -> None:
    class Halves(nn.Module):
        def forward(self, x: Tensor, y: Tensor) -> Tensor:
            if y.shape[0] > 2:
                x = x.reshape(-1, 8)
            return x + 1

    args = (torch.rand(16), torch.rand(4))
    found = tried(Halves(), args, ({0: "n"}, {0: "m"}))
    assert found
    assert all(sizes["n"] % 8 == 0 and sizes["m"] > 2 for sizes in found)
    assert max(sizes["n"] for sizes in found) > 16


def test_numbers_among_the_inputs() -> None:
    class Plus(nn.Module):
        def forward(self, xs: dict[str, Tensor], k: int, flag: bool, dtype: torch.dtype) -> Tensor:
            return (xs["a"] + k).to(dtype)

    args = ({"a": torch.rand(3)}, 5, True, torch.float64)
    found = tried(Plus(), args, {"xs": {"a": {0: "n"}}, "k": Dim.DYNAMIC})
    assert {"n": 1, "k": 1} in found


class Alone(nn.Module):
    """Branches for a single row and for columns by threes."""

    def forward(self, x: Tensor, y: Tensor) -> Tensor:
        if x.shape[0] == 1:
            return x.sum(0) + y.sum()
        if x.shape[1] % 3 != 0:
            return x.sum(0) + y.sum()
        return x - y.sum()


@pytest.mark.filterwarnings("ignore:the model's code branches on sizes")
def test_shortcuts_for_one() -> None:
    args = (torch.rand(4, 7), torch.rand(7))
    found = tried(Alone(), args, ({0: "n", 1: "m"}, {0: "m"}))
    assert 1 in {sizes["n"] for sizes in found}
    assert all(sizes["m"] % 3 != 0 for sizes in found)


@pytest.mark.filterwarnings("ignore:the model's code branches on sizes")
def test_no_shortcuts_where_the_model_refuses_them() -> None:
    args = (torch.rand(4, 7), torch.rand(7))
    shapes = ({0: "n", 1: "m"}, {0: "m"})
    program = onnx_aot.export(Alone(), args, dynamic_shapes=shapes, runtime_checks=True)
    found = [sample.sizes for sample in other_sizes(program, args, {})]
    assert found
    assert all(sizes["n"] != 1 for sizes in found)


def test_values_are_the_examples() -> None:
    tokens = torch.tensor([[5, 9, 2]])
    mask = torch.tensor([[True, False, True]])
    edges = torch.tensor([0.5, 1.5, 2.5])
    scores = torch.tensor([[0.25, 0.75, 0.5]])

    def first(tokens: Tensor, mask: Tensor, edges: Tensor, scores: Tensor) -> Tensor:
        return tokens.sum() + mask.sum() + edges.sum() + scores.sum()

    args = (tokens, mask, edges, scores)
    shapes = ({1: "n"}, {1: "n"}, {0: "n"}, {1: "n"})
    program = onnx_aot.export(first, args, dynamic_shapes=shapes)
    (larger,) = (s for s in other_sizes(program, args, {}) if s.sizes["n"] == 5)
    assert torch.equal(larger.args[0], torch.tensor([[5, 9, 2, 5, 9]]))
    assert torch.equal(larger.args[1], torch.tensor([[True, False, True, True, False]]))
    assert torch.equal(larger.args[2], larger.args[2].sort().values)  # still sorted
    assert len(set(larger.args[3].flatten().tolist())) == 5  # no two are equal
    assert larger.args[3].min() > 0
    assert larger.args[3].max() <= 0.75


def test_an_empty_example() -> None:
    args = (torch.rand(0, 3), torch.rand(2))
    program = onnx_aot.export(Sum(), args, dynamic_shapes=({0: "n"}, None))
    (one,) = (s for s in other_sizes(program, args, {}) if s.sizes["n"] == 1)
    assert torch.equal(one.args[0], torch.zeros(1, 3))


def test_static_models_have_no_other_sizes() -> None:
    args = (torch.rand(2), torch.rand(2))
    program = onnx_aot.export(Sum(), args)
    assert other_sizes(program, args, {}) == ()
    assert sizes_of(program, args, {}) == {}
