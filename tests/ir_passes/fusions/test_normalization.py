"""RMSNormalization and LayerNormalization that are written out."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn

from tests.ir_passes.fusions.rows import Row, check, parametrize, same_with_and_without

WIDTH = 6


def states(batch: int, length: int) -> tuple[Tensor, ...]:
    return (torch.randn(batch, length, WIDTH),)


def halves(batch: int, length: int) -> tuple[Tensor, ...]:
    return (torch.randn(batch, length, WIDTH).half(),)


class Norm(nn.Module):
    """Of a function of the input and a weight."""

    def __init__(self, function: Callable[..., Any], *, half: bool = False) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.randn(WIDTH))
        self.bias = nn.Parameter(torch.randn(WIDTH))
        self.function = function
        if half:
            self.half()

    def forward(self, x: Tensor) -> Any:
        return self.function(x, self.weight, self.bias)


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


def rms_23(name: str, function: Callable[..., Any], *, fires: int = 1, half: bool = False) -> Row:
    expected = {"rms_normalization": fires} if fires else {}
    return Row(
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
    Row("another axis", Norm(lambda x, w, b: rms(x, dim=1) * w), states,
        {}, {"RMSNormalization": 0}, opset=23),
    Row("llama, 20", Norm(llama), states, {"root_mean_square": 1}, {**FIVE, "Mul": 1}),
    Row("gemma, 20", Norm(gemma), states, {"root_mean_square": 1}, {**FIVE, "Mul": 1}),
    Row("by division, 20", Norm(by_division), states, {}, {"Div": 1}),
    Row("a cube, 20", Norm(lambda x, w, b: x * torch.rsqrt(x.pow(3).mean(-1, keepdim=True) + 9)),
        states, {}, {"Reciprocal": 1}),
    Row("of something else, 20",
        Norm(lambda x, w, b: (x + 1) * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + 1e-6)),
        states, {}, {"Reciprocal": 1}),
]  # fmt: skip


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
) -> Row:
    expected = {"layer_normalization": fires} if fires else {}
    if first:
        expected[first] = 1
    return Row(name, Norm(function), states, expected, {"LayerNormalization": fires, **others})


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


@parametrize([*RMS, *LAYER])
def test_normalization(row: Row) -> None:
    check(row)


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

    same_with_and_without(Row("drawn", Norm(function), states, {}, opset=opset))


def test_a_scale_that_is_no_number_stays() -> None:
    def function(x: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
        return x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + bias.abs()) * weight

    check(Row("learned epsilon", Norm(function), states, {}, {"RMSNormalization": 0}, opset=23))


@pytest.mark.parametrize("opset", [20, 23])
def test_doubles_are_not_computed_in_single_precision(opset: int) -> None:
    module = Norm(llama_of_doubles).double()
    row = Row("double", module, lambda b, n: (torch.randn(b, n, WIDTH).double(),), {}, opset=opset)
    same_with_and_without(row)


def llama_of_doubles(x: Tensor, weight: Tensor, _: Tensor) -> Tensor:
    return weight * rms(x)
