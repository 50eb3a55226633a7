"""Lists of numbers that a loop over a dynamic size makes, as indices and tensors."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import Tensor

import onnx_aot

X = torch.randn(2, 9, 4)


def framed(x: Tensor) -> Tensor:
    """Joins the lists of several numbers that each step makes."""
    n, width, hop = x.shape[1], 3, 2
    places = sum([list(range(i, i + width)) for i in range(0, n - width + 1, hop)], [])  # noqa: RUF017
    return x[:, places].view(x.shape[0], -1, width, x.shape[2])


def every_other(x: Tensor) -> Tensor:
    return x[:, [t for t in range(0, x.shape[1], 2)]]  # noqa: C416


def backwards(x: Tensor) -> Tensor:
    return x[:, torch.tensor([x.shape[1] - 1 - t for t in range(x.shape[1])])]


def weighted(x: Tensor) -> Tensor:
    weights = torch.as_tensor([2 * t + 1 for t in range(x.shape[1])], dtype=x.dtype)
    return x * weights[None, :, None]


def pairs(x: Tensor) -> Tensor:
    return x[:, torch.tensor([[t, 0] for t in range(x.shape[1])])]


def with_ends(x: Tensor) -> Tensor:
    return x[:, [0, *[t for t in range(x.shape[1])], x.shape[1] - 1, 0]]  # noqa: C416


def collected(x: Tensor) -> Tensor:
    """Other values of the steps stay in the loop."""
    places, states, y = [], [], torch.zeros_like(x[:, 0])
    for t in range(x.shape[1]):
        y = 0.5 * y + x[:, t]
        states.append(y)
        places += [0, t]
    return torch.stack(states, 1)[:, places]


def written(x: Tensor) -> Tensor:
    y = torch.zeros(x.shape[0], 2 * x.shape[1], x.shape[2])
    y[:, [2 * t for t in range(x.shape[1])]] = x
    return y


MODELS = (framed, every_other, backwards, weighted, pairs, with_ends, collected, written)


@pytest.mark.parametrize("model", MODELS, ids=lambda m: m.__name__)
def test_numbers_of_all_steps(model: Callable[[Tensor], Tensor]) -> None:
    program = onnx_aot.export(model, (X,), dynamic_shapes=({0: "batch", 1: "steps"},))
    for steps in (9, 3, 4, 5, 20):
        x = torch.randn(3, steps, 4)
        torch.testing.assert_close(program(x)[0], model(x))


def squares(x: Tensor) -> Tensor:
    return x[:, [t * t % 3 for t in range(x.shape[1])]]


def shrinking(x: Tensor) -> Tensor:
    return x[:, sum([list(range(t)) for t in range(x.shape[1])], [])]  # noqa: RUF017


def larger_first(x: Tensor) -> Tensor:
    return x[:, [t if t > 0 else x.shape[1] - 1 for t in range(x.shape[1])]]


@pytest.mark.parametrize("model", [squares, shrinking, larger_first], ids=lambda m: m.__name__)
def test_numbers_that_do_not_grow_evenly_are_refused(model: Callable[[Tensor], Tensor]) -> None:
    with pytest.raises(onnx_aot.errors.DynamicShapeError, match="is unrolled") as caught:
        onnx_aot.export(model, (X,), dynamic_shapes=({1: "steps"},))
    assert "for t in range(x.shape[1])" in str(caught.value)
