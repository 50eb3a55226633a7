"""Decomposed LayerNormalization."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from tests.ir_passes.fusions.fusion_cases import (
    FusionCase,
    check,
    parametrize,
    same_with_and_without,
)
from tests.ir_passes.fusions.norms import Norm, states


def centred(x: Tensor, eps: float = 1e-5, dim: int = -1) -> Tensor:
    d = x - x.mean(dim, keepdim=True)
    return d / torch.sqrt(d.pow(2).mean(dim, keepdim=True) + eps)


def by_product(x: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
    d = x - x.mean(-1, keepdim=True)
    return bias + weight * (d * torch.rsqrt((d * d).mean(-1, keepdim=True) + 1e-5))


def other_mean(x: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
    d = x - x.abs().mean(-1, keepdim=True)
    return d / torch.sqrt(d.pow(2).mean(-1, keepdim=True) + 1e-5)


def layer(
    name: str, function: Callable[..., Any], *, fires: int = 1, first: str = "", **others: int
) -> FusionCase:
    expected = {"layer_normalization": fires} if fires else {}
    if first:
        expected[first] = 1
    return FusionCase(
        name, Norm(function), states, expected, {"LayerNormalization": fires, **others}
    )


LAYER = [
    layer("affine", lambda x, w, b: centred(x) * w + b, Add=0, Mul=0),
    layer("by product", by_product, first="root_mean_square", Add=0, Mul=0, Reciprocal=0),
    layer("weight only", lambda x, w, b: w * centred(x), Mul=0),
    layer("bias only", lambda x, w, b: centred(x) + b, Add=0),
    layer("plain", lambda x, w, b: centred(x), Div=0),
    layer("two at once", lambda x, w, b: centred(centred(x) * w) + b, fires=2, Add=0),
    layer("residual", lambda x, w, b: centred(x) * w + x, Add=1, Mul=0),
    layer("another axis", lambda x, w, b: centred(x, dim=1), fires=0),
    layer("another mean", other_mean, fires=0),
]


@parametrize(LAYER)
def test_layer_normalization(case: FusionCase) -> None:
    check(case)


@settings(max_examples=8)
@given(data=st.data(), opset=st.sampled_from([18, 20, 23]))
def test_with_and_without(data: st.DataObject, opset: int) -> None:
    eps = data.draw(st.sampled_from([1e-12, 1e-6, 1e-2, 1.0]))
    power = data.draw(st.sampled_from([2, 2, 2, 4]))
    subtract, weight, bias = (data.draw(st.booleans()) for _ in range(3))
    dim = data.draw(st.sampled_from([-1, -1, 1, (-2, -1)]))

    def function(x: Tensor, w: Tensor, b: Tensor) -> Tensor:
        d = x - x.mean(dim, keepdim=True) if subtract else x
        y = d * torch.rsqrt(d.pow(power).mean(dim, keepdim=True) + eps)
        y = y * w if weight else y
        return y + b if bias else y

    same_with_and_without(FusionCase("drawn", Norm(function), states, {}, opset=opset))
