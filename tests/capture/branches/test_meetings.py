"""Paths that meet: ``onnx_aot/capture/branches/meetings.py``."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import onnx_aot
from onnx_aot.capture.branches import states
from tests.capture.branches.test_paths import INPUTS, X

DYNAMIC = ({0: "n"},)
DRAWN = [torch.randn(3, 4, generator=torch.Generator().manual_seed(seed)) * 3 for seed in range(20)]


class Layer(nn.Module):
    def __init__(self, number: int) -> None:
        super().__init__()
        self.number = number

    def forward(self, x: Tensor) -> Tensor:
        if x[:, self.number % 4].sum() > self.number - 4:
            return x * 1.5
        return x - 1


class Layers(nn.Module):
    """Branches one after the other: 256 paths."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.ModuleList(Layer(number) for number in range(8))

    def forward(self, x: Tensor) -> Tensor:
        runs.append(1)
        for layer in self.layers:
            x = layer(x)
        return x


runs: list[int] = []


@pytest.mark.skipif(sys.version_info < (3, 11), reason="Python 3.10 has no columns of instructions")
def test_a_branch_more_is_a_run_more() -> None:
    runs.clear()
    model = Layers()
    program = onnx_aot.export(model, (X,), dynamic_shapes=DYNAMIC)
    assert len(runs) <= len(model.layers) + 8  # captures without branches, and runs that check
    for x in (*INPUTS, *DRAWN):
        torch.testing.assert_close(program(x)[0], model(x))


def chooses_number(x: Tensor) -> Tensor:
    factor = 2
    if x.sum() > 0:
        factor = 3
    y = x + 1
    if x.max() > 1:
        y = y * factor
    return y


def asks_again(x: Tensor) -> Tensor:
    positive = x.sum() > 0
    y = x * 2
    if positive:
        y = y + 1
    if x.max() > 1:
        return y * 3
    return y * 4 if positive else y * 5


def shares_memory(x: Tensor) -> Tensor:
    first = x * 1
    second = first
    if x.sum() > 0:
        second = first * 2
    if x.max() > 1:
        second.add_(1)
    return first + second


class Box:
    value: Any = None


def keeps_in_object(x: Tensor) -> Tensor:
    box = Box()
    box.value = x * 2
    if x.sum() > 0:
        box.value = x - 1
    if x.min() < -1:
        x = x + box.value
    return x if x.max() > 1 else box.value


def keeps_in_closure(x: Tensor) -> Tensor:
    scale = 2.0

    def change() -> None:
        nonlocal scale
        scale = 4.0

    if x.sum() > 0:
        change()

    def finish(y: Tensor) -> Tensor:
        return y * scale if y.max() > 1 else y

    return finish(x + 1)


def _number(x: Tensor) -> int:
    return 3 if x.sum() > 0 else 4


def _is_large(x: Tensor) -> bool:
    return bool(x.max() > 1)


def _scale(factor: int, is_large: bool, x: Tensor) -> Tensor:
    return x if is_large else x * factor


def holds_number(x: Tensor) -> Tensor:
    return _scale(_number(x), _is_large(x), x)


MODELS = (
    *(chooses_number, asks_again, shares_memory, keeps_in_object, keeps_in_closure),
    holds_number,
)


@pytest.mark.parametrize("model", MODELS)
def test_what_a_path_keeps_counts(model: Callable[[Tensor], Tensor]) -> None:
    program = onnx_aot.export(model, (X,), dynamic_shapes=DYNAMIC)
    for x in (*INPUTS, *DRAWN):
        torch.testing.assert_close(program(x)[0], model(x))


def test_a_wrong_meeting_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(states, "may_hold_values", lambda code, instruction: False)
    program = onnx_aot.export(holds_number, (X,), dynamic_shapes=DYNAMIC)
    for x in (*INPUTS, *DRAWN):
        torch.testing.assert_close(program(x)[0], holds_number(x))
