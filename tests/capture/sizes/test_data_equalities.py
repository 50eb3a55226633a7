"""Sizes that meet a number of the data, where PyTorch repeats the one of them that is 1."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor

import onnx_aot
from onnx_aot.errors import DynamicShapeError, OnnxExporterWarning
from tests.torch_compat.without import absent

AUTO = torch.export.Dim.AUTO


def mask(lengths: Tensor) -> Tensor:
    return torch.arange(lengths.max()) < lengths  # met


def share(lengths: Tensor) -> Tensor:
    found = torch.arange(lengths.max()) < lengths  # met
    return found.sum(1) / found.shape[1]


def shifted(x: Tensor, last: Tensor) -> tuple[Tensor, Tensor]:
    y = x + torch.arange(last.max().item())  # met
    return y.reshape(-1, 1) * y.shape[0], y.sum()


ONE_COLUMN = (torch.tensor([[3], [5]]),)
SEVERAL = (torch.tensor([[3, 1, 3], [2, 3, 3]]),)
NAMED = ({0: "b", 1: "v"},)
Model = Callable[..., Any]


def by_size(size: int, last: int) -> tuple[Tensor, Tensor]:
    return torch.ones(size), torch.tensor([last])


def check(program: onnx_aot.ONNXProgram, model: Model, *others: tuple[Tensor, ...]) -> None:
    for args in others:
        expected = model(*args)
        expected = expected if isinstance(expected, tuple) else (expected,)
        for actual, wanted in zip(program(*args), expected, strict=True):
            torch.testing.assert_close(actual, wanted)


@pytest.mark.parametrize(
    ("model", "args", "dynamic_shapes"),
    [
        (mask, ONE_COLUMN, NAMED),
        (share, ONE_COLUMN, NAMED),
        (shifted, by_size(1, 3), ({0: "v"}, None)),
        (shifted, by_size(5, 1), ({0: torch.export.Dim("v")}, None)),
    ],
)
def test_sizes_that_differ_in_the_example_are_refused(
    model: Model, args: tuple[Tensor, ...], dynamic_shapes: Any
) -> None:
    with pytest.raises(DynamicShapeError, match=r"repeats the one of them that is 1\n.*# met") as e:
        onnx_aot.export(model, args, dynamic_shapes=dynamic_shapes)
    assert "give an example in which neither is 1" in str(e.value)


@pytest.mark.parametrize(
    ("model", "args", "dynamic_shapes", "others"),
    [
        (share, ONE_COLUMN, ({0: AUTO, 1: AUTO},), (torch.tensor([[4], [2], [1]]),)),
        (shifted, by_size(1, 3), ({0: AUTO}, None), by_size(1, 7)),
        (shifted, by_size(5, 1), ({0: AUTO}, None), by_size(5, 5)),
    ],
)
def test_they_stay_static_if_the_model_may_decide(
    model: Model, args: tuple[Tensor, ...], dynamic_shapes: Any, others: tuple[Tensor, ...]
) -> None:
    check(onnx_aot.export(model, args, dynamic_shapes=dynamic_shapes), model, args, others)


def test_sizes_of_1_that_are_wrong_are_warned_of() -> None:
    with pytest.warns(OnnxExporterWarning, match=r"broadcast to a size of data at .*, for size 1"):
        program = onnx_aot.export(share, SEVERAL, dynamic_shapes=NAMED)
    check(program, share, SEVERAL, (torch.tensor([[2, 1], [1, 2], [2, 2]]),))


@pytest.mark.parametrize("dim", ["v", torch.export.Dim("v", min=2)])
def test_sizes_that_are_right_need_no_word(dim: Any) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        program = onnx_aot.export(mask, SEVERAL, dynamic_shapes=({0: "b", 1: dim},))
    check(program, mask, SEVERAL, (torch.tensor([[2, 1], [1, 2], [2, 2]]),))


def test_numbers_of_the_data_are_computed_from_it() -> None:
    """The model refuses data with another number, and so does the ONNX model."""

    def forward(x: Tensor, last: Tensor) -> Tensor:
        return x + torch.arange(last.max().item())

    program = onnx_aot.export(forward, by_size(5, 5), dynamic_shapes=({0: "v"}, None))
    check(program, forward, by_size(5, 1), by_size(1, 4), by_size(7, 7))
    with pytest.raises(Exception, match="Attempting to broadcast"):
        program(*by_size(5, 3))


def test_a_wrong_size_of_the_example_is_not_found_without_equalities() -> None:
    with absent("torch.fx.experimental.symbolic_shapes:ShapeEnv.replacements"):
        program = onnx_aot.export(mask, ONE_COLUMN, dynamic_shapes=NAMED)
    assert str(program.outputs[0].shape) == "('b', 'v')"
    assert mask(*ONE_COLUMN).shape[1] != ONE_COLUMN[0].shape[1]


def test_a_dimension_that_became_static() -> None:
    """``squeeze`` fixes the batch; ``Categorical`` asks about data."""

    def forward(x: Tensor, memory: Tensor) -> Tensor:
        y = (x[:, None] + memory.mean(1, keepdim=True)).squeeze()
        y = y[None] if y.dim() == 1 else y
        return y * torch.distributions.Categorical(logits=y).entropy()[:, None]

    inputs = (torch.randn(1, 4), torch.randn(1, 5, 4))
    program = onnx_aot.export(forward, inputs, dynamic_shapes=({0: AUTO}, {0: AUTO, 1: AUTO}))
    x, memory = torch.randn(1, 4), torch.randn(1, 9, 4)
    torch.testing.assert_close(program(x, memory)[0], forward(x, memory))
