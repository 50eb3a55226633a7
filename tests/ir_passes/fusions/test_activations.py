"""Decomposed Gelu, HardSwish and Mish."""

from __future__ import annotations

import math

import torch
import torch.nn.functional as F  # noqa: N812
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from tests.ir_passes.fusions.activation_models import ROOT, activation
from tests.ir_passes.fusions.fusion_cases import (
    FusionCase,
    check,
    parametrize,
    same_with_and_without,
)

CASES = [
    activation("hard swish", lambda x: x * F.relu6(x + 3) / 6, "hard_swish", HardSwish=1, Mul=0),
    activation("hard swish, clamped", lambda x: x * ((x + 3.0).clamp(0, 6) / 6.0), "hard_swish",
        HardSwish=1),
    activation("harder swish", lambda x: x * (x + 3.0).clamp(0, 5) / 6.0, HardSwish=0),
    activation("mish", lambda x: x * torch.tanh(F.softplus(x)), "mish", Mish=1, Mul=0),
    activation("mish of something else", lambda x: x * torch.tanh(F.softplus(-x)), Mish=0),
]  # fmt: skip


@parametrize(CASES)
def test_activations(case: FusionCase) -> None:
    check(case)


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

    same_with_and_without(activation("drawn", forward))
