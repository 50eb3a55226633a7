"""Decomposed Gelu."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from tests.ir_passes.fusions.activation_models import ROOT, activation
from tests.ir_passes.fusions.fusion_cases import FusionCase, check, parametrize


def with_inner(x: Tensor) -> tuple[Tensor, Tensor]:
    inner = torch.erf(x / math.sqrt(2.0)) + 1.0
    return 0.5 * x * inner, inner


GELU = [
    activation(
        "erf", lambda x: x * 0.5 * (1.0 + torch.erf(x / math.sqrt(2.0))), "gelu", Gelu=1, Mul=0
    ),
    activation(
        "erf, halved last",
        lambda x: (torch.erf(x * 0.7071067811865476) + 1) * x / 2,
        "gelu",
        Gelu=1,
        Erf=0,
    ),
    activation(
        "tanh",
        lambda x: 0.5 * x * (1 + torch.tanh(ROOT * (x + 0.044715 * torch.pow(x, 3)))),
        "gelu",
        Gelu=1,
        Tanh=0,
        Mul=0,
    ),
    activation(
        "tanh, factored",
        lambda x: 0.5 * x * (1 + torch.tanh(x * 0.7978845608 * (1 + 0.044715 * x * x))),
        "gelu",
        Gelu=1,
        Tanh=0,
    ),
    activation(
        "before Gelu", lambda x: x * 0.5 * (1.0 + torch.erf(x / math.sqrt(2.0))), opset=19, Gelu=0
    ),
    activation("another constant", lambda x: 0.5 * x * (1.0 + torch.erf(x / 1.5)), Gelu=0),
    activation(
        "another cubic", lambda x: 0.5 * x * (1 + torch.tanh(ROOT * (x + 0.05 * x**3))), Gelu=0
    ),
    activation(
        "another power", lambda x: 0.5 * x * (1 + torch.tanh(ROOT * (x + 0.044715 * x * x))), Gelu=0
    ),
    activation(
        "of something else", lambda x: 0.5 * (x + 1) * (1.0 + torch.erf(x / math.sqrt(2.0))), Gelu=0
    ),
    activation("read elsewhere", with_inner, Gelu=0),
]


@parametrize(GELU)
def test_gelu(case: FusionCase) -> None:
    check(case)
