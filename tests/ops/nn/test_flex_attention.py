"""flex_attention compared with eager mode, which materializes the scores."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any
from unittest import mock

import onnx
import pytest
import torch
from torch.nn.attention.flex_attention import create_block_mask, flex_attention

import onnx_aot
from onnx_aot.capture.patches import capture_conditions
from onnx_aot.inspection.differences import compare_outputs

Tensor = torch.Tensor

# Eager mode would otherwise compile its kernel, which takes most of the time here.
AS_IT_IS = "torch.nn.attention.flex_attention._FLEX_ATTENTION_DISABLE_COMPILE_DEBUG"

# Eager mode warns that it is slow and that an argument was renamed.
pytestmark = [
    pytest.mark.filterwarnings("ignore:flex_attention called without torch.compile"),
    pytest.mark.filterwarnings("ignore:return_lse is deprecated"),
]


def heads(batch: int, length: int, count: int = 4, **options: Any) -> Tensor:
    return torch.randn(batch, count, length, 8, **options)


def causal(b: Tensor, h: Tensor, query: Tensor, key: Tensor) -> Tensor:
    return query >= key


def block_mask(function: Callable[..., Tensor], query: Tensor, key: Tensor) -> Any:
    sizes = (query.shape[2], key.shape[2])
    return create_block_mask(function, None, None, *sizes, device="cpu")


def plain(q: Tensor, k: Tensor, v: Tensor) -> Any:
    return flex_attention(q, k, v, scale=0.3)


def masked(q: Tensor, k: Tensor, v: Tensor) -> Any:
    return flex_attention(q, k, v, block_mask=block_mask(causal, q, k))


def window(q: Tensor, k: Tensor, v: Tensor) -> Any:
    def near(b: Tensor, h: Tensor, query: Tensor, key: Tensor) -> Tensor:
        return (query >= key) & (query - key <= 2)

    return flex_attention(q, k, v, block_mask=block_mask(near, q, k))


MADE_BEFORE = create_block_mask(causal, None, None, 8, 8, device="cpu")


def mask_made_before(q: Tensor, k: Tensor, v: Tensor) -> Any:
    return flex_attention(q, k, v, block_mask=MADE_BEFORE)


SLOPES = torch.tensor([0.5, 0.25, 0.125, 0.0625])


def slopes(q: Tensor, k: Tensor, v: Tensor) -> Any:
    def biased(score: Tensor, b: Tensor, h: Tensor, query: Tensor, key: Tensor) -> Tensor:
        return score - SLOPES[h] * (query - key).abs()

    return flex_attention(q, k, v, score_mod=biased)


def bias_of_inputs(q: Tensor, k: Tensor, v: Tensor) -> Any:
    bias = k.mean(-1)

    def biased(score: Tensor, b: Tensor, h: Tensor, query: Tensor, key: Tensor) -> Tensor:
        return torch.tanh(score + bias[b, h, key]) * 3

    return flex_attention(q, k, v, score_mod=biased, block_mask=block_mask(causal, q, k))


def grouped(q: Tensor, k: Tensor, v: Tensor) -> Any:
    return flex_attention(q, k, v, enable_gqa=True, block_mask=block_mask(causal, q, k))


def documents(q: Tensor, k: Tensor, v: Tensor, ids: Tensor) -> Any:
    def same(b: Tensor, h: Tensor, query: Tensor, key: Tensor) -> Tensor:
        return (ids[query] == ids[key]) & (query >= key)

    return flex_attention(q, k, v, block_mask=block_mask(same, q, k))


def rows_without_keys(q: Tensor, k: Tensor, v: Tensor) -> Any:
    def late(score: Tensor, b: Tensor, h: Tensor, query: Tensor, key: Tensor) -> Tensor:
        return torch.where(query < 3, -float("inf"), score)

    return flex_attention(q, k, v, score_mod=late, return_lse=True)


@dataclasses.dataclass(frozen=True)
class Case:
    """A function of queries, keys and values; ``sizes`` are other batches and lengths."""

    function: Callable[..., Any]
    kv_heads: int = 4
    dtype: torch.dtype = torch.float32
    sizes: tuple[tuple[int, int], ...] = ()
    others: tuple[Tensor, ...] = ()

    def inputs(self, batch: int, length: int) -> tuple[Tensor, ...]:
        torch.manual_seed(0)
        kv = (batch, length, self.kv_heads)
        return (
            heads(batch, length, dtype=self.dtype),
            heads(*kv, dtype=self.dtype),
            heads(*kv, dtype=self.dtype),
            *self.others,
        )


DYNAMIC = ((1, 1), (2, 150))
CASES = [
    Case(plain, sizes=DYNAMIC),
    Case(masked, sizes=DYNAMIC),
    Case(masked, dtype=torch.float16),
    Case(masked, dtype=torch.float64),
    Case(window),
    Case(mask_made_before),
    Case(slopes, sizes=DYNAMIC),
    Case(bias_of_inputs, sizes=DYNAMIC),
    Case(grouped, kv_heads=2),
    Case(documents, others=(torch.tensor([0, 0, 0, 1, 1, 1, 2, 2]),)),
    Case(rows_without_keys),
]


class Attention(torch.nn.Module):
    def __init__(self, function: Callable[..., Any]) -> None:
        super().__init__()
        self._function = function

    def forward(self, q: Tensor, k: Tensor, v: Tensor, *others: Tensor) -> Any:
        return self._function(q, k, v, *others)


@pytest.mark.parametrize("case", CASES, ids=lambda c: f"{c.function.__name__}-{c.dtype}")
def test_flex_attention(case: Case) -> None:
    model, example = Attention(case.function), case.inputs(2, 8)
    each = {0: torch.export.Dim.DYNAMIC, 2: torch.export.Dim.DYNAMIC}
    shapes = (each, each, each, ())[: 3 + bool(case.others)] if case.sizes else None
    with capture_conditions():
        captured = torch.export.export(model, example, dynamic_shapes=shapes)
    examples = []
    for size in ((2, 8), *case.sizes):
        inputs = case.inputs(*size)
        with mock.patch(AS_IT_IS, True):
            results = model(*inputs)
        examples.append((size, inputs, list(results) if isinstance(results, tuple) else [results]))
    for opset in (17, 25):
        program = onnx_aot.export(captured, opset_version=opset)
        onnx.checker.check_model(program.model_proto, full_check=True)
        for size, inputs, expected in examples:
            differences = compare_outputs(
                [str(index) for index in range(len(expected))], expected, program(*inputs)
            )
            assert all(d.within for d in differences), (size, differences)


def test_what_only_the_block_mask_needs_is_left_out() -> None:
    q, k, v = Case(masked).inputs(2, 8)
    program = onnx_aot.export(Attention(masked), (q, k, v))
    assert {"MatMul", "Softmax"} <= {node.op_type for node in program.model.graph}
    assert len(program.model.graph) < 25
