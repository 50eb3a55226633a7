"""``range`` with symbolic steps, ``divmod`` of sizes and their types, as models ask for them."""

from __future__ import annotations

import builtins
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.export import Dim

import onnx_aot
from tests.tolerances import assert_close

T = {1: "t"}

# --- range ---------------------------------------------------------------------------------------


class Chunks(nn.Module):
    """A single chunk, as in codecs whose chunk length is not set."""

    def forward(self, x: Tensor) -> Tensor:
        n, y = x.shape[1], x * 0
        for start in range(0, n, n):
            y = y + x[:, start : start + n]
        for i in range(n + 1, n - 2, -1):
            y = y + i
        for i in range(n - (n - 2)):
            y = y * (i + 1)
        assert isinstance(range(2), range)
        assert not isinstance([0, 1], range)
        return y


def test_a_known_number_of_symbolic_steps() -> None:
    program = onnx_aot.export(Chunks(), (torch.randn(2, 5),), dynamic_shapes=(T,))
    for length in (5, 9):
        x = torch.randn(2, length)
        assert_close(program(x)[0], Chunks()(x))


class EachColumn(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return sum(x[:, i] for i in range(x.shape[1]))  # type: ignore[return-value]


def test_a_number_of_steps_that_follows_the_size_is_one_loop() -> None:
    program = onnx_aot.export(EachColumn(), (torch.randn(2, 5),), dynamic_shapes=(T,))
    for length in (5, 1, 9):
        x = torch.randn(2, length)
        assert_close(program(x)[0], EachColumn()(x))


# --- divmod --------------------------------------------------------------------------------------


class Windows(nn.Module):
    """Pads to whole windows of four."""

    def forward(self, x: Tensor) -> Tensor:
        whole, rest = divmod(x.shape[1], 4)
        assert divmod(7, 2) == (3, 1)
        return nn.functional.pad(x, (0, -rest % 4)) * whole + rest


def test_divmod_of_a_size() -> None:
    program = onnx_aot.export(Windows(), (torch.randn(2, 6),), dynamic_shapes=(T,))
    for length in (6, 8, 11, 3):
        x = torch.randn(2, length)
        assert_close(program(x)[0], Windows()(x))


# --- isinstance ----------------------------------------------------------------------------------


class Meta(type):
    def __new__(cls, *args: Any) -> Any:
        return type.__new__(cls, *args)


class ByType(nn.Module):
    """Takes sizes, numbers computed from them, and tensors."""

    def scale(self, value: Any) -> Any:
        if isinstance(value, bool):
            return 2.0
        if isinstance(value, (int, float)) and not isinstance(value, str):
            return value
        return value.sum() if isinstance(value, Tensor) else None

    def forward(self, x: Tensor) -> Tensor:
        n = x.shape[1]
        scales = [self.scale(value) for value in (n, n / 2, n > 2, x, int(2 * n - 1), 3, 0.5, True)]
        assert isinstance(n, int)
        assert not isinstance(n, float)
        assert isinstance(n / 2, float)
        named = [type(value).__name__ for value in (n, n / 2, n > 2, 3, "a")]
        assert named == ["int", "float", "bool", "int", "str"]
        assert isinstance(int, type)
        assert type("Made", (), {"a": 1}).a == 1
        assert type[int] == builtins.type[int]
        assert builtins.type(Meta("Made", (), {})) is Meta
        return x * sum(scales)


class Pose(Tensor):
    """A subclass that the model makes."""


class Kinds(nn.Module):
    """Branches on the classes of tensors, which are others while they are traced."""

    def __init__(self) -> None:
        super().__init__()
        self.weight, self.table = nn.Parameter(torch.ones(3)), nn.Buffer(torch.ones(3))

    def forward(self, x: Tensor) -> Tensor:
        given = (x, x + 1, torch.zeros(3), self.weight, self.table, self.weight * 2)
        kinds = [type(value) for value in given]
        assert kinds == [Tensor, Tensor, Tensor, nn.Parameter, Tensor, Tensor]
        assert type(x.as_subclass(Pose)) is Pose
        return x * 2 if type(x) is torch.Tensor else x * 3


@pytest.mark.parametrize("shapes", [None, ({0: "batch"},)], ids=["static", "dynamic"])
def test_classes_of_tensors(shapes: Any) -> None:
    x = torch.rand(2, 3)
    program = onnx_aot.export(Kinds(), (x,), dynamic_shapes=shapes, strategies=("non-strict",))
    assert_close(program(x)[0], Kinds()(x))


@pytest.mark.parametrize("dimension", ["t", Dim.AUTO])
def test_sizes_are_integers(dimension: Any) -> None:
    program = onnx_aot.export(ByType(), (torch.randn(2, 6),), dynamic_shapes=({1: dimension},))
    assert not isinstance(program.inputs[0].shape[1], int)
    for length in (6, 4, 9):
        x = torch.randn(2, length)
        assert_close(program(x)[0], ByType()(x))
