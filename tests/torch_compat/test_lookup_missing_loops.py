"""Python loops over a dynamic size on releases of torch that lack a part."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor

import onnx_aot
from onnx_aot.errors import DynamicShapeError
from tests.torch_compat.without import absent, shows

X = torch.rand(2, 5, 3)


def over_numbers(x: Tensor) -> Tensor:
    y = torch.zeros_like(x[:, 0])
    for index, row in enumerate(x.unbind(1)):
        y = y * index + row
    return y


def over_two(x: Tensor) -> Tensor:
    x = x.transpose(0, 1)
    y = torch.zeros_like(x[0])
    for one, two in zip(x, x * 2, strict=True):
        y = y * one + two
    return y


def unbound(x: Tensor) -> Tensor:
    y = torch.zeros_like(x[:, 0])
    for row in torch.unbind(x, 1):
        y = y * 0.5 + row
    return y


def over_slices(x: Tensor) -> Tensor:
    y = torch.zeros_like(x[:, 0])
    for row in x.unbind(1):
        y = y * 0.5 + row
    return y


def stacked(x: Tensor) -> Tensor:
    return torch.stack([x[:, t].exp() for t in range(x.shape[1])], 1)


def joined(x: Tensor) -> Tensor:
    return torch.cat([x[:, t].exp() for t in range(x.shape[1])], -1)


def joined_by_concat(x: Tensor) -> Tensor:
    return torch.concat([x[:, t].exp() for t in range(x.shape[1])], -1)


def joined_by_concatenate(x: Tensor) -> Tensor:
    return torch.concatenate([x[:, t].exp() for t in range(x.shape[1])], -1)


def taken_by_number(x: Tensor) -> Tensor:
    states = [torch.zeros_like(x[:, 0])]
    for t in range(x.shape[1]):
        states.append(states[t] * 0.5 + x[:, t])
    return torch.stack(states, 1)


def backwards(x: Tensor) -> Tensor:
    total = torch.zeros_like(x[:, 0])
    for row in reversed([x[:, t].exp() for t in range(x.shape[1])]):
        total = total * 0.5 + row
    return total


def of_pieces(split: Callable[[Tensor], Any]) -> Callable[[Tensor], Tensor]:
    def join(x: Tensor) -> Tensor:
        return torch.cat([piece.exp() for piece in split(x)], 1)

    return join


def numbered(x: Tensor) -> Tensor:
    return x[:, torch.tensor([2 * t // 2 for t in range(x.shape[1])])]


LOOPS: dict[str, Callable[[Tensor], Tensor]] = {
    "enumerate in the packages of the model": over_numbers,
    "zip in the packages of the model": over_two,
    "reversed in the packages of the model": backwards,
    "torch:unbind": unbound,
    "torch:Tensor.unbind": over_slices,
    "torch:SymInt.__index__": taken_by_number,
    "torch:Tensor.split": of_pieces(lambda x: x.split(2, 1)),
    "torch:chunk": of_pieces(lambda x: torch.chunk(x, 3, 1)),
    "torch:Tensor.chunk": of_pieces(lambda x: x.chunk(3, 1)),
    "torch:tensor": numbered,
    "torch:stack": stacked,
    "torch:cat": joined,
    "torch:concat": joined_by_concat,
    "torch:concatenate": joined_by_concatenate,
}


REFUSED = "fixed at 5|cut into 3 pieces|right for"


@shows(*LOOPS)
@pytest.mark.parametrize("name", LOOPS)
def test_loop_is_unrolled(name: str) -> None:
    model = LOOPS[name]
    with absent(name), pytest.raises(DynamicShapeError, match=REFUSED):
        onnx_aot.export(model, (X,), dynamic_shapes=({1: "steps"},))
    program = onnx_aot.export(model, (X,), dynamic_shapes=({1: "steps"},))
    for steps in (5, 1, 8):
        x = torch.rand(2, steps, 3)
        torch.testing.assert_close(program(x)[0], model(x), rtol=1e-4, atol=1e-5)
