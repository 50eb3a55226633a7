"""Sums of sizes with remainders: ``onnx_aot/torch_compat/rounded_sizes.py``."""

from __future__ import annotations

import math
import random
from collections.abc import Callable
from typing import Any

import pytest
import sympy
import torch
import torch.nn.functional as F  # noqa: N812
from torch import Tensor, nn
from torch.utils._sympy.functions import (
    CeilToInt,
    FloatTrueDiv,
    FloorDiv,
    FloorToInt,
    IntTrueDiv,
    Mod,
    PythonMod,
    ToFloat,
    TruncToInt,
)

import onnx_aot
from onnx_aot.torch_compat.rounded_sizes import round_sum, write_rounding
from tests.tolerances import assert_close
from tests.torch_compat.without import absent, shows

N, M = sympy.symbols("n m", integer=True, positive=True)
ADDITION = "torch.fx.experimental.sym_node:SymNode._add"
SUBTRACTION = "torch.fx.experimental.sym_node:SymNode._sub"
SIZES = (13, 5, 6, 8, 15, 16, 17, 64)


@pytest.mark.parametrize(
    ("size", "written"),
    [
        (N - Mod(N, 8), 8 * FloorDiv(N, 8)),
        (N + 8 - Mod(N, 8), 8 * FloorDiv(N, 8) + 8),
        (N + Mod(8 - Mod(N, 8), 8), 8 * FloorDiv(N + 7, 8)),
        (N + PythonMod(-N, 8), 8 * FloorDiv(N + 7, 8)),
        (N + M + PythonMod(-N, 8), M + 8 * FloorDiv(N + 7, 8)),
        (2 * N + PythonMod(-2 * N, 8), 8 * FloorDiv(N + 3, 4)),
        (FloorDiv(N, 3) + PythonMod(-FloorDiv(N, 3), 4), 4 * FloorDiv(FloorDiv(N, 3) + 3, 4)),
    ],
)
def test_sum_becomes_a_multiple(size: Any, written: Any) -> None:
    assert round_sum(size) == written


@pytest.mark.parametrize(
    "size", [N, N + M, 8 - Mod(N, 8), M - Mod(N, 8), N + PythonMod(-N, M), Mod(N, 8)]
)
def test_other_sizes_stay(size: Any) -> None:
    assert round_sum(size) is size


def test_values_stay() -> None:
    draw, changed = random.Random(0), 0
    for _ in range(300):
        divisor, base = draw.choice((2, 3, 8)), draw.choice((1, -1, 3)) * N + draw.randint(-4, 4)
        inner = draw.choice((base, divisor - PythonMod(base, divisor)))
        sign = draw.choice((1, -1))
        size = (
            draw.choice((0, N, M)) + draw.choice((base, -base)) + sign * PythonMod(inner, divisor)
        )
        written = round_sum(size)
        changed += written != size
        for n in range(1, 30):
            values = {N: sympy.Integer(n), M: sympy.Integer(5)}
            assert size.xreplace(values) == written.xreplace(values), (size, written, n)
    assert changed > 50


class Padded(nn.Module):
    """Pads to a multiple of the window."""

    def forward(self, x: Tensor) -> Tensor:
        return F.pad(x, (0, (8 - x.shape[0] % 8) % 8)) * 2


class Whole(nn.Module):
    """Leaves out what does not fill a window."""

    def forward(self, x: Tensor) -> Tensor:
        return x[: x.shape[0] - x.shape[0] % 4] * 2


class Windows(nn.Module):
    """Pads if that is necessary, computes in windows, and crops, as image models do."""

    def forward(self, x: Tensor) -> Tensor:
        n = x.shape[0]
        pad = (8 - n % 8) % 8
        y = F.pad(x, (0, pad)) if pad else x
        for _ in range(2):
            size = y.shape[0]
            windows = y.view(size // 8, 2, 4).transpose(0, 1).softmax(-1)
            y = y + windows.transpose(0, 1).reshape(size)
        return y[:n]


def shape_of_result(model: nn.Module, size: int = 13) -> str:
    """The shape of the result, which is right at several lengths."""
    program = onnx_aot.export(model, (torch.rand(size),), dynamic_shapes=({0: "n"},))
    for n in SIZES:
        x = torch.rand(n)
        assert_close(program(x)[0], model(x))
    return str(program.model.graph.outputs[0].shape)


@shows(ADDITION)
def test_a_padded_size_is_a_multiple() -> None:
    assert shape_of_result(Padded()) == "[8*((n + 7)//8)]"
    with absent(ADDITION):
        assert "%" in shape_of_result(Padded())


@shows(SUBTRACTION)
def test_a_size_without_its_rest_is_a_multiple() -> None:
    assert shape_of_result(Whole()) == "[4*(n//4)]"
    with absent(SUBTRACTION):
        assert shape_of_result(Whole()) != "[4*(n//4)]"


def test_windows_of_a_padded_size() -> None:
    assert shape_of_result(Windows(), size=16) == "[n]"


class PaddedIfNecessary(nn.Module):
    """Asks if there is something to pad, and is wrong if it pads for nothing."""

    def __init__(self, ask: Callable[[Any], Any]) -> None:
        super().__init__()
        self.ask = ask

    def forward(self, x: Tensor) -> Tensor:
        n = x.shape[0]
        if self.ask(n % 8):
            x = F.pad(x, (0, 8 - n % 8), value=1.0)
        return x.reshape(-(-n // 8), 8).softmax(0)


@shows("torch.fx.experimental.symbolic_shapes:ShapeEnv.guards")
@pytest.mark.parametrize("ask", [bool, lambda rest: rest > 0, lambda rest: rest != 0])
def test_padding_for_one_side_is_right_for_both(ask: Callable[[Any], Any]) -> None:
    model = PaddedIfNecessary(ask)
    options: Any = {"dynamic_shapes": ({0: "n"},)}
    program = onnx_aot.export(model, (torch.rand(16),), **options)
    assert "If" not in {node.op_type for node in program.model.graph}
    for n in SIZES:
        x = torch.rand(n)
        assert_close(program(x)[0], model(x))
    with absent("torch.fx.experimental.symbolic_shapes:ShapeEnv.guards"):
        program = onnx_aot.export(model, (torch.rand(16),), **options)
    assert "If" in {node.op_type for node in program.model.graph}


@pytest.mark.parametrize(
    ("rounded", "written"),
    [
        (FloorToInt(IntTrueDiv(N, 3)), FloorDiv(N, 3)),
        (CeilToInt(IntTrueDiv(N - 1, 4)), FloorDiv(N + 2, 4)),
        (CeilToInt(0.5 * ToFloat(N)), FloorDiv(N + 1, 2)),
        (FloorToInt(FloatTrueDiv(ToFloat(N), 3.0)), FloorDiv(N, 3)),
        (FloorToInt(IntTrueDiv(N - 1, 3) + 1.0), FloorDiv(N + 2, 3)),
        (FloorToInt(0.5 * IntTrueDiv(N, 3) + 0.25), FloorDiv(2 * N + 3, 12)),
        (TruncToInt(ToFloat(N) - 2.0), N - 2),
        (TruncToInt(IntTrueDiv(N, 2)), FloorDiv(N, 2)),
    ],
)
def test_rounding_becomes_a_quotient(rounded: Any, written: Any) -> None:
    assert write_rounding(rounded) == written


@pytest.mark.parametrize(
    "rounded",
    [
        FloorToInt(0.1 * ToFloat(N)),  # no power of two
        FloorToInt(1.5 * IntTrueDiv(N, 3)),  # 2 / 3 * 1.5 may be below 1
        FloorToInt(IntTrueDiv(N, 3) + IntTrueDiv(M, 3)),  # so may 1 / 3 + 2 / 3
        FloorToInt(IntTrueDiv(N, M)),
        FloorToInt(IntTrueDiv(N, 2**17 + 1)),
        FloorToInt(sympy.Symbol("f", real=True)),
        TruncToInt(Mod(ToFloat(N), sympy.Float(2.5))),  # a float, though torch says otherwise
        TruncToInt(IntTrueDiv(N - 1, 2)),  # 0 rows give -1 / 2, which becomes 0
        N,
    ],
)
def test_other_roundings_stay(rounded: Any) -> None:
    assert write_rounding(rounded) is rounded


def test_quotients_have_the_values_of_floats() -> None:
    draw, changed = random.Random(0), 0
    roundings = {FloorToInt: math.floor, CeilToInt: math.ceil, TruncToInt: math.trunc}
    for _ in range(300):
        divisor, scale = draw.choice((1, 2, 3, 7, 12, 100)), draw.choice((1.0, -1.0, 0.5, 4.0, 1.5))
        offset, added = draw.randint(-3, 3), draw.choice((0.0, 1.0, -0.5, 0.375))
        function = draw.choice(tuple(roundings))
        rounded = function(scale * IntTrueDiv(N + offset, divisor) + added)
        written = write_rounding(rounded)
        changed += written is not rounded
        for n in (*range(0 if written is not rounded else 1, 40), 2**30 + 1, 2**31 - 1):
            value = roundings[function](scale * ((n + offset) / divisor) + added)
            if written is not rounded:
                assert written.xreplace({N: sympy.Integer(n)}) == value, (rounded, written, n)
    assert changed > 150


class Cropped(nn.Module):
    """Leaves out what does not fill a window, by floats."""

    def __init__(self, size: Callable[[Any], Any]) -> None:
        super().__init__()
        self.size = size

    def forward(self, x: Tensor) -> Tensor:
        return x[: self.size(x.shape[0])] * 2


@shows("torch.fx.experimental.sym_node:SymNode._floor")
def test_a_size_rounded_down() -> None:
    model = Cropped(lambda n: math.floor(n / 4) * 4)
    assert shape_of_result(model) == "[4*(n//4)]"
    with absent("torch.fx.experimental.sym_node:SymNode._floor"):
        assert "floor(" in shape_of_result(model)


@shows("torch.fx.experimental.sym_node:SymNode._ceil")
def test_a_size_rounded_up() -> None:
    model = Cropped(lambda n: math.ceil(n / 2))
    assert shape_of_result(model) == "[(n + 1)//2]"
    with absent("torch.fx.experimental.sym_node:SymNode._ceil"):
        assert "ceil(" in shape_of_result(model)


@shows("torch.fx.experimental.sym_node:SymNode._trunc")
def test_a_size_truncated() -> None:
    model = Cropped(lambda n: torch.sym_int(n / 2))  # type: ignore[no-untyped-call]
    assert shape_of_result(model) == "[n//2]"
    with absent("torch.fx.experimental.sym_node:SymNode._trunc"):
        assert shape_of_result(model) != "[n//2]"
