"""Attention masks."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F  # noqa: N812
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn

import onnx_aot
from tests.ir_passes.fusions.fusion_cases import (
    FusionCase,
    check,
    parametrize,
    same_with_and_without,
)
from tests.tolerances import assert_close

WIDTH = 4


def inputs(batch: int, length: int) -> tuple[Tensor, ...]:
    keep = torch.ones(batch, length, dtype=torch.int64)
    keep[0, length // 2 :] = 0
    return torch.randn(batch, length, WIDTH), keep


def indexed(keep: Tensor, rows: int = 0) -> Tensor:
    """Indexes the mask by all batches and all keys, as transformers does."""
    batch, length = keep.shape
    return keep.bool()[torch.arange(batch)[:, None, None], torch.arange(rows, length)[None, None]]


def attended(x: Tensor, mask: Tensor) -> Tensor:
    return F.scaled_dot_product_attention(x, x, x, attn_mask=mask)


def padding(x: Tensor, keep: Tensor) -> Tensor:
    every = torch.arange(x.shape[1])[None, :, None] >= 0
    return attended(x, every & indexed(keep))


def causal(x: Tensor, keep: Tensor) -> Tensor:
    position = torch.arange(x.shape[1])
    return attended(x, (position[None, :, None] >= position) & indexed(keep))


def above_first(x: Tensor, keep: Tensor) -> Tensor:
    some = torch.arange(x.shape[1])[None, :, None] >= 1
    return attended(x, some & indexed(keep))


def everywhere(x: Tensor, keep: Tensor) -> Tensor:
    return attended(x, torch.ones(1, 1, dtype=torch.bool).expand(x.shape[0], x.shape[1], -1))


def part_of_index(x: Tensor, keep: Tensor) -> Tensor:
    return x[torch.arange(x.shape[0])[:, None], torch.arange(1, x.shape[1])]


def moved_index(x: Tensor, keep: Tensor) -> Tensor:
    """Reads every element, but with transposed axes."""
    return keep[torch.arange(x.shape[0])[None], torch.arange(x.shape[1])[:, None]]


class Positions(nn.Module):
    """A table of biases, indexed by distance."""

    def __init__(self, low: float, *, buffer: bool = False) -> None:
        super().__init__()
        self.low = low
        table = torch.randn(16)
        if buffer:
            self.register_buffer("table", table)
        else:
            self.table = nn.Parameter(table)

    def forward(self, x: Tensor, keep: Tensor) -> Any:
        position = torch.arange(x.shape[1])
        bias = self.table[(position[:, None] - position).abs()][None]
        return attended(x, torch.where(keep.bool()[:, None], bias, self.low))


class Bias(nn.Module):
    """A constant bias for one length, neither a parameter nor a buffer."""

    def __init__(self, length: int, *, closed_row: bool = False) -> None:
        super().__init__()
        self.bias = torch.randn(length, length)
        if closed_row:
            self.bias[1] = -float("inf")

    def forward(self, x: Tensor) -> Tensor:
        return attended(x, self.bias)


def rows(length: int) -> Callable[[int, int], tuple[Tensor, ...]]:
    return lambda batch, _: (torch.randn(batch, length, WIDTH),)


def shifted(dim: int, by: int) -> Callable[..., Tensor]:
    """Softmax of what is left when the largest along an axis is subtracted."""

    def forward(x: Tensor, keep: Tensor) -> Tensor:
        x = torch.where(keep[..., None] > 0, x, -1e30)
        return torch.softmax(x - x.amax(by, keepdim=True), dim)

    return forward


def shifted_by_max(x: Tensor, keep: Tensor) -> Tensor:
    return torch.softmax(x - x.max(-1, keepdim=True).values, -1)


def shifted_or_not(x: Tensor, keep: Tensor) -> Tensor:
    return torch.softmax(x - torch.where(keep[..., None] > 0, 0.0, x.amax(-1, keepdim=True)), -1)


def shifted_by_mean(x: Tensor, keep: Tensor) -> Tensor:
    return torch.softmax(x - x.mean(-1, keepdim=True), -1)


BATCH = ({0: "batch"},)
LOW = torch.finfo(torch.float32).min
SHIFTED = {"shifted_softmax": 1}
CASES = [
    FusionCase(
        "padding", padding, inputs, {"whole_index": 1, "true_mask": 2}, {"And": 0, "GatherND": 0}
    ),
    FusionCase(
        "padding, 23", padding, inputs, {"whole_index": 1}, {"And": 1, "GatherND": 0}, opset=23
    ),
    FusionCase("causal", causal, inputs, {"whole_index": 1}, {"And": 1, "GatherND": 0}),
    FusionCase("above the first", above_first, inputs, {"whole_index": 1}, {"And": 1}),
    FusionCase("everywhere", everywhere, inputs, {"true_mask": 2}, {"Where": 0, "ReduceSum": 0}),
    FusionCase("part of an index", part_of_index, inputs, {}, {"GatherND": 1}),
    FusionCase("moved index", moved_index, inputs, {}, {"GatherND": 1}),
    FusionCase("finite", Positions(LOW), inputs, {"admitted_rows": 1}, {"Where": 1, "Greater": 0}),
    FusionCase("infinite", Positions(-float("inf")), inputs, {}, {"Where": 3, "Greater": 1}),
    FusionCase(
        "a known bias",
        Bias(80),
        rows(80),
        {"chosen_everywhere": 1},
        {"Where": 0, "ReduceSum": 0},
        dynamic=BATCH,
    ),
    FusionCase(
        "a large bias",
        Bias(300),
        rows(300),
        {"admitted_rows": 1},
        {"Where": 0, "ReduceSum": 0},
        dynamic=BATCH,
    ),
    FusionCase(
        "a known bias without keys",
        Bias(80, closed_row=True),
        rows(80),
        {},
        {"Where": 1},
        dynamic=BATCH,
    ),
    FusionCase("shifted by the maximum", shifted_by_max, inputs, SHIFTED, {"Sub": 0, "IsNaN": 0}),
    FusionCase("shifted rows", shifted(1, 1), inputs, SHIFTED, {"Sub": 0, "ReduceMax": 0}),
    FusionCase("shifted by other maxima", shifted(1, 2), inputs, {}, {"Sub": 1}),
    FusionCase("shifted in some rows", shifted_or_not, inputs, {}, {"Sub": 1}),
    FusionCase("shifted by the mean", shifted_by_mean, inputs, {}, {"Sub": 1}),
    FusionCase("a buffer", Positions(LOW, buffer=True), inputs, {}, {"Where": 3, "Greater": 1}),
]


@parametrize(CASES)
def test_masks(case: FusionCase) -> None:
    check(case)


def test_shifted_softmax_of_special_values() -> None:
    nan, inf = float("nan"), float("inf")
    x = torch.tensor([[1.0, nan, 2.0], [1.0, inf, 2.0], [-inf] * 3, [1.0, -inf, 2.0]])[None]
    keep = torch.ones(1, 4, dtype=torch.int64)
    program = onnx_aot.export(shifted_by_max, (x, keep), optimize=False)
    assert program.optimize()["shifted_softmax"] == 1
    assert_close(program(x, keep)[0], shifted_by_max(x, keep))


@settings(max_examples=8)
@given(data=st.data(), opset=st.sampled_from([20, 23]))
def test_with_and_without(data: st.DataObject, opset: int) -> None:
    first = data.draw(st.integers(-1, 2))
    conjunction = data.draw(st.booleans())
    index = data.draw(st.booleans())

    def forward(x: Tensor, keep: Tensor) -> Tensor:
        some = torch.arange(x.shape[1])[None, :, None] >= first
        mask = indexed(keep) if index else keep.bool()[:, None]
        return attended(x, some & mask if conjunction else some | mask)

    same_with_and_without(FusionCase("drawn", forward, inputs, {}, opset=opset))
