"""Gelu, HardSwish and Mish that are written out."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F  # noqa: N812
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from tests.ir_passes.fusions.rows import Row, check, parametrize, same_with_and_without

ROOT = math.sqrt(2.0 / math.pi)


def inputs(batch: int, length: int) -> tuple[Tensor, ...]:
    return (3.0 * torch.randn(batch, length, 4),)


def row(
    name: str, function: Callable[..., Any], fires: str = "", opset: int = 20, **operators: int
) -> Row:
    return Row(name, function, inputs, {fires: 1} if fires else {}, operators, opset)


def with_inner(x: Tensor) -> tuple[Tensor, Tensor]:
    inner = torch.erf(x / math.sqrt(2.0)) + 1.0
    return 0.5 * x * inner, inner


ROWS = [
    row("erf", lambda x: x * 0.5 * (1.0 + torch.erf(x / math.sqrt(2.0))), "gelu", Gelu=1, Mul=0),
    row("erf, halved last", lambda x: (torch.erf(x * 0.7071067811865476) + 1) * x / 2, "gelu",
        Gelu=1, Erf=0),
    row("tanh", lambda x: 0.5 * x * (1 + torch.tanh(ROOT * (x + 0.044715 * torch.pow(x, 3)))),
        "gelu", Gelu=1, Tanh=0, Mul=0),
    row("tanh, factored",
        lambda x: 0.5 * x * (1 + torch.tanh(x * 0.7978845608 * (1 + 0.044715 * x * x))),
        "gelu", Gelu=1, Tanh=0),
    row("before Gelu", lambda x: x * 0.5 * (1.0 + torch.erf(x / math.sqrt(2.0))), opset=19, Gelu=0),
    row("another constant", lambda x: 0.5 * x * (1.0 + torch.erf(x / 1.5)), Gelu=0),
    row("another cubic", lambda x: 0.5 * x * (1 + torch.tanh(ROOT * (x + 0.05 * x**3))), Gelu=0),
    row("another power", lambda x: 0.5 * x * (1 + torch.tanh(ROOT * (x + 0.044715 * x * x))),
        Gelu=0),
    row("of something else", lambda x: 0.5 * (x + 1) * (1.0 + torch.erf(x / math.sqrt(2.0))),
        Gelu=0),
    row("read elsewhere", with_inner, Gelu=0),
    row("hard swish", lambda x: x * F.relu6(x + 3) / 6, "hard_swish", HardSwish=1, Mul=0),
    row("hard swish, clamped", lambda x: x * ((x + 3.0).clamp(0, 6) / 6.0), "hard_swish",
        HardSwish=1),
    row("harder swish", lambda x: x * (x + 3.0).clamp(0, 5) / 6.0, HardSwish=0),
    row("mish", lambda x: x * torch.tanh(F.softplus(x)), "mish", Mish=1, Mul=0),
    row("mish of something else", lambda x: x * torch.tanh(F.softplus(-x)), Mish=0),
]  # fmt: skip


@parametrize(ROWS)
def test_activations(row: Row) -> None:
    check(row)


@settings(max_examples=8)
@given(data=st.data())
def test_with_and_without(data: st.DataObject) -> None:
    number = data.draw(st.sampled_from([0.5, 1.0, 1.0 / 6.0]))
    inner = data.draw(st.sampled_from([math.sqrt(0.5), ROOT, 1.0]))
    cubic = data.draw(st.sampled_from([0.044715, 0.0, 0.1]))
    function = data.draw(st.sampled_from([torch.erf, torch.tanh, F.relu6]))
    first = data.draw(st.booleans())

    def forward(x: Tensor) -> Tensor:
        y = function((x + cubic * x**3) * inner) + 1.0
        return (x * y) * number if first else x * (number * y)

    same_with_and_without(row("drawn", forward))
