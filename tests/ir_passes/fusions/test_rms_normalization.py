"""Decomposed RMSNormalization."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor

from tests.ir_passes.fusions.fusion_cases import (
    FusionCase,
    check,
    parametrize,
    same_with_and_without,
)
from tests.ir_passes.fusions.norms import WIDTH, Norm, states


def halves(batch: int, length: int) -> tuple[Tensor, ...]:
    return (torch.randn(batch, length, WIDTH).half(),)


def rms(x: Tensor, eps: float = 1e-6, dim: int = -1) -> Tensor:
    return x * torch.rsqrt(x.pow(2).mean(dim, keepdim=True) + eps)


def llama(x: Tensor, weight: Tensor, _: Tensor) -> Tensor:
    return weight * rms(x.to(torch.float32)).to(x.dtype)


def gemma(x: Tensor, weight: Tensor, _: Tensor) -> Tensor:
    return rms(x) * (1.0 + weight)


def by_division(x: Tensor, weight: Tensor, _: Tensor) -> Tensor:
    return x / torch.sqrt((x * x).mean(-1, keepdim=True) + 1e-5) * weight


def read_elsewhere(x: Tensor, weight: Tensor, _: Tensor) -> Any:
    mean = x.pow(2).mean(-1, keepdim=True)
    return x * torch.rsqrt(mean + 1e-6) * weight, mean


def rms_23(
    name: str, function: Callable[..., Any], *, fires: int = 1, half: bool = False
) -> FusionCase:
    expected = {"rms_normalization": fires} if fires else {}
    return FusionCase(
        name,
        Norm(function, half=half),
        halves if half else states,
        expected,
        {"RMSNormalization": fires},
        opset=23,
    )


FIVE = {"Pow": 1, "ReduceMean": 1, "Sqrt": 1, "Div": 1, "Reciprocal": 0}

RMS = [
    rms_23("llama", llama),
    rms_23("gemma", gemma),
    rms_23("without weight", lambda x, w, b: rms(x)),
    rms_23("in half precision", llama, half=True),
    rms_23("mean read elsewhere", read_elsewhere, fires=0),
    FusionCase(
        "another axis",
        Norm(lambda x, w, b: rms(x, dim=1) * w),
        states,
        {},
        {"RMSNormalization": 0},
        opset=23,
    ),
    FusionCase("llama, 20", Norm(llama), states, {"root_mean_square": 1}, {**FIVE, "Mul": 1}),
    FusionCase("gemma, 20", Norm(gemma), states, {"root_mean_square": 1}, {**FIVE, "Mul": 1}),
    FusionCase("by division, 20", Norm(by_division), states, {}, {"Div": 1}),
    FusionCase(
        "a cube, 20",
        Norm(lambda x, w, b: x * torch.rsqrt(x.pow(3).mean(-1, keepdim=True) + 9)),
        states,
        {},
        {"Reciprocal": 1},
    ),
    FusionCase(
        "of something else, 20",
        Norm(lambda x, w, b: (x + 1) * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + 1e-6)),
        states,
        {},
        {"Reciprocal": 1},
    ),
]


@parametrize(RMS)
def test_rms_normalization(case: FusionCase) -> None:
    check(case)


def test_a_scale_that_is_no_number_stays() -> None:
    def function(x: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
        return x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + bias.abs()) * weight

    check(
        FusionCase("learned epsilon", Norm(function), states, {}, {"RMSNormalization": 0}, opset=23)
    )


@pytest.mark.parametrize("opset", [20, 23])
def test_doubles_are_not_computed_in_single_precision(opset: int) -> None:
    module = Norm(llama_of_doubles).double()
    case = FusionCase(
        "double", module, lambda b, n: (torch.randn(b, n, WIDTH).double(),), {}, opset=opset
    )
    same_with_and_without(case)


def llama_of_doubles(x: Tensor, weight: Tensor, _: Tensor) -> Tensor:
    return weight * rms(x)
