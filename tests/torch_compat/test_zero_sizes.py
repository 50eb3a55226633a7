"""Slices that torch considers as long as others: a capture is correct for its own example."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn

import onnx_aot
from tests.tolerances import assert_close

T = {1: "t"}


def last_taken_off(x: Tensor) -> Tensor:
    n = x.shape[1]
    return torch.relu(x - x[:, n - 1 : n]) * 2


def counted(x: Tensor) -> Tensor:
    n = x.shape[1]
    z = x[:, n - 2 : n - 1]
    return (x + z) / z.shape[1]


def added_up(x: Tensor) -> Tensor:
    n = x.shape[1]
    for i in range(n - 2, n):
        x = x * 2 + x[:, i : i + 1]
    return x


class Called(nn.Module):
    def __init__(self, function: Callable[[Tensor], Tensor]) -> None:
        super().__init__()
        self.function = function

    def forward(self, x: Tensor) -> Tensor:
        return self.function(x)


@pytest.mark.parametrize("checks", [False, True])
@pytest.mark.parametrize("function", [last_taken_off, counted, added_up])
def test_a_slice_of_one_beside_the_whole(
    function: Callable[[Tensor], Tensor], checks: bool
) -> None:
    x, model = torch.randn(2, 5), Called(function)
    program = onnx_aot.export(model, (x,), dynamic_shapes=(T,), runtime_checks=checks)
    for length in (5, 9, 2):
        x = torch.randn(2, length)
        assert_close(program(x)[0], model(x))
    slices = [node for node in program.model.graph if node.op_type == "Slice"]
    assert slices
    assert all(node.outputs[0].shape is not None for node in slices)
    assert {str(node.outputs[0].shape) for node in slices} == {"[2,1]"}


def tail(x: Tensor) -> Tensor:
    n = x.shape[1]
    return torch.relu(x[:, n - 2 : n - 1])


@pytest.mark.parametrize("checks", [False, True])
def test_a_slice_alone_is_right_for_every_size(checks: bool) -> None:
    """The checks do not depend on its offset in memory."""
    model = Called(tail)
    program = onnx_aot.export(
        model, (torch.randn(2, 5),), dynamic_shapes=(T,), runtime_checks=checks
    )
    for length in (5, 2, 1):
        x = torch.randn(2, length)
        assert_close(program(x)[0], model(x))
