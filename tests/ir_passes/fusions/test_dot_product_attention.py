"""Rotary embeddings, and attention with shared keys."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F  # noqa: N812
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

import onnx_aot
from onnx_aot.ir_passes import run_passes
from tests.ir_passes.fusions.attention_models import (
    GROUPS,
    HEADS,
    WIDTH,
    attention,
    by_chunks,
    heads,
    nothing,
    projected,
    repeated,
    rotate_half,
    rotated,
    rows_and_keys,
    together,
)
from tests.ir_passes.fusions.fusion_cases import (
    FusionCase,
    check,
    export,
    parametrize,
    same_with_and_without,
)
from tests.tolerances import assert_close

# --- rotations -----------------------------------------------------------------------------------


# --- attention -----------------------------------------------------------------------------------


def as_biases(keep: Tensor) -> Tensor:
    zeros = torch.zeros(keep.shape)
    return zeros.masked_fill(~keep, float("-inf"))[:, None, None].expand(-1, 1, keep.shape[1], -1)


BROADCAST = {"Expand": 0, "MatMul": 2}
ONE = {"Attention": 1, "MatMul": 0, "Softmax": 0}
ATTENTION = [
    attention("shared keys", fires={"grouped_attention": 1}, operators=BROADCAST),
    attention("rotated", rotate=True, fires={"rotated_halves": 2, "grouped_attention": 1},
              operators={"Split": 2, "MatMul": 2}),
    attention("rows", mask=rows_and_keys, fires={"grouped_attention": 1}, operators=BROADCAST),
    attention("no mask", mask=nothing, fires={"grouped_attention": 1}, operators=BROADCAST),
    attention("causal", mask=nothing, is_causal=True, fires={"grouped_attention": 1},
              operators=BROADCAST),
    attention("scaled", scale=0.3, fires={"grouped_attention": 1}, operators=BROADCAST),
    attention("heads stay apart", flat=False, fires={}, operators={"Expand": 2}),
    attention("23", fires={"attention": 1}, operators=ONE, opset=23),
    attention("24", fires={"attention": 1}, operators=ONE, opset=24),
    attention("25", fires={"grouped_attention": 1}, operators={**BROADCAST, "Attention": 0},
              opset=25),
    attention("heads stay apart, 25", mask=nothing, flat=False, fires={},
              operators={"Attention": 0, "Softmax": 1}, opset=25),
    attention("rows, 23", mask=rows_and_keys, fires={"attention": 1}, operators=ONE, opset=23),
    attention("rotated, 23", rotate=True, fires={"rotary_embedding": 2, "attention": 1},
              operators={**ONE, "Transpose": 0}, opset=23),
    attention("no mask, 23", mask=nothing, fires={"attention": 1}, operators=ONE, opset=23),
    attention("causal, 23", mask=nothing, is_causal=True, fires={"attention": 1},
              operators=ONE, opset=23),
    attention("scaled, 23", scale=0.3, fires={"attention": 1}, operators=ONE, opset=23),
    attention("heads stay apart, 23", flat=False, fires={"attention_of_heads": 1},
              operators=ONE, opset=23),
    attention("biases", mask=as_biases, fires={"grouped_attention": 1}, operators={"MatMul": 2}),
    attention("biases, 23", mask=as_biases, fires={"attention": 1}, operators=ONE, opset=23),
]  # fmt: skip


def cached(q: Tensor, k: Tensor, v: Tensor, keep: Tensor) -> Any:
    """Rotated keys are also read elsewhere, so that they are not computed twice."""
    q, k, v = rotated(heads(q)), rotated(heads(k)), heads(v)
    return together(F.scaled_dot_product_attention(q, repeated(k), repeated(v))), k, v


def appended(q: Tensor, k: Tensor, v: Tensor, keep: Tensor) -> Any:
    """Past keys and values, followed by new ones."""
    keys = torch.cat([heads(k), heads(k) + 1], 2)
    values = torch.cat([heads(v), heads(v) * 2], dim=-2)
    mask = torch.cat([keep, keep.logical_not()], 1)[:, None, None]
    y = F.scaled_dot_product_attention(heads(q), repeated(keys), repeated(values), attn_mask=mask)
    return y, keys, values


def appended_without_mask(q: Tensor, k: Tensor, v: Tensor, keep: Tensor) -> Any:
    keys = torch.cat([heads(k), heads(k) + 1], 2)
    values = torch.cat([heads(v), heads(v) * 2], dim=-2)
    return F.scaled_dot_product_attention(heads(q), repeated(keys), repeated(values))


def keys_read(q: Tensor, k: Tensor, v: Tensor, keep: Tensor) -> Any:
    keys = torch.cat([heads(k), heads(k) + 1], 2)
    values = torch.cat([heads(v), heads(v) * 2], dim=-2)
    y = F.scaled_dot_product_attention(heads(q), repeated(keys), repeated(values))
    return y, keys * 2


def weights_read(q: Tensor, k: Tensor, v: Tensor, keep: Tensor) -> Any:
    q, k, v = heads(q), repeated(heads(k)), repeated(heads(v))
    weights = (q @ k.transpose(-1, -2)).softmax(-1)
    return together(weights @ v), weights


def over_rows(q: Tensor, k: Tensor, v: Tensor, keep: Tensor) -> Any:
    q, k, v = heads(q), repeated(heads(k)), repeated(heads(v))
    return together((q @ k.transpose(-1, -2)).softmax(-2) @ v)


def one_batch_of_keys(q: Tensor, k: Tensor, v: Tensor, keep: Tensor) -> Any:
    q, k, v = heads(q[..., : GROUPS * WIDTH]), heads(k.sum(0, True)), heads(v.sum(0, True))
    return F.scaled_dot_product_attention(q, k, v).transpose(1, 2).flatten(2)


def by_hand(q: Tensor, k: Tensor, v: Tensor, keep: Tensor) -> Any:
    q, k, v = heads(q), repeated(heads(k)), repeated(heads(v))
    return together((q @ k.transpose(-1, -2) / WIDTH**0.5).softmax(-1) @ v)


SPECIAL = [
    FusionCase(
        "cached", cached, projected, {"rotated_halves": 2, "grouped_attention": 1}, {"Split": 2}
    ),
    FusionCase(
        "cached, 23",
        cached,
        projected,
        {"rotary_embedding": 2, "attention_of_heads": 1},
        {"RotaryEmbedding": 2, "Attention": 1},
        opset=23,
    ),
    FusionCase("appended", appended, projected, {}, {"Softmax": 1}),
    FusionCase(
        "appended, 23",
        appended,
        projected,
        {"attention_of_heads": 1, "attention_cache": 1},
        {"Attention": 1},
        opset=23,
    ),
    FusionCase(
        "appended without mask, 23",
        appended_without_mask,
        projected,
        {"attention_of_heads": 1, "attention_cache": 1},
        {"Attention": 1, "Concat": 0},
        opset=23,
    ),
    FusionCase(
        "keys read, 23", keys_read, projected, {"attention_of_heads": 1}, {"Attention": 1}, opset=23
    ),
    FusionCase("weights read", weights_read, projected, {}, {"Softmax": 1}),
    FusionCase("weights read, 23", weights_read, projected, {}, {"Softmax": 1}, opset=23),
    FusionCase("over rows, 23", over_rows, projected, {}, {"Softmax": 1}, opset=23),
    FusionCase("one batch of keys, 23", one_batch_of_keys, projected, {}, {"Softmax": 1}, opset=23),
    FusionCase(
        "one batch of keys", one_batch_of_keys, projected, {}, {"Softmax": 1}, contrib_ops=True
    ),
    FusionCase("by hand", by_hand, projected, {"grouped_attention": 1}, BROADCAST),
    FusionCase("by hand, 23", by_hand, projected, {"attention": 1}, ONE, opset=23),
]

# --- operators of ONNX Runtime -------------------------------------------------------------------


@pytest.mark.parametrize(
    ("target", "opset", "count"),
    [("onnxruntime", 24, 1), ("onnxruntime", 25, 0), ("onnxruntime==1.24", 24, 1), (None, 25, 1)],
)
def test_one_node_where_the_target_has_a_kernel(target: str | None, opset: int, count: int) -> None:
    def forward(q: Tensor) -> Tensor:
        return F.scaled_dot_product_attention(q, q + 1, q * 2)

    x = torch.randn(2, HEADS, 5, WIDTH)
    program = onnx_aot.export(forward, (x,), opset_version=opset, target=target)
    assert [node.op_type for node in program.model.graph].count("Attention") == count
    (actual,) = program(x)
    assert_close(actual, forward(x))
    program = onnx_aot.export(forward, (x,), opset_version=opset, target=target, optimize=False)
    program.optimize()  # knows the target of the export
    assert [node.op_type for node in program.model.graph].count("Attention") == count


@parametrize([*ATTENTION, *SPECIAL])
def test_attention(case: FusionCase) -> None:
    check(case)


@pytest.mark.parametrize("opset", [20, 23])
def test_visits_grow_with_the_layers(opset: int) -> None:
    """All layers share the rotations and one mask, which has many readers."""

    def layers(count: int) -> Callable[..., Any]:
        def forward(q: Tensor, k: Tensor, v: Tensor, keep: Tensor) -> Any:
            mask = rows_and_keys(keep)
            for _ in range(count):
                keys, values = repeated(rotated(heads(k))), repeated(heads(v))
                y = F.scaled_dot_product_attention(rotated(heads(q)), keys, values, mask)
                q = q + together(y)
                k, v = k + q[..., : GROUPS * WIDTH], v + q[..., GROUPS * WIDTH :]
            return q

        return forward

    visits = []
    for count in (2, 8):
        program = export(FusionCase("", layers(count), projected, {}, opset=opset))
        nodes = len(program.model.graph)
        outcome = run_passes(program.model)
        assert outcome.counts["attention" if opset == 23 else "grouped_attention"] == count
        visits.append(outcome.visits / nodes)
    assert visits[1] <= 1.1 * visits[0] <= 6


@settings(max_examples=10)
@given(data=st.data(), opset=st.sampled_from([18, 20, 23]))
def test_with_and_without(data: st.DataObject, opset: int) -> None:
    rotate, flat = data.draw(st.booleans()), data.draw(st.booleans())
    mask = data.draw(st.sampled_from([rows_and_keys, as_biases, nothing]))
    turn = data.draw(st.sampled_from([rotate_half, by_chunks, torch.neg]))
    repeat = data.draw(st.booleans())

    def forward(q: Tensor, k: Tensor, v: Tensor, keep: Tensor) -> Any:
        if not repeat:
            q = q[..., : GROUPS * WIDTH]
        q, k, v = heads(q), heads(k), heads(v)
        if rotate:
            q, k = rotated(q, turn), rotated(k, turn)
        if repeat:
            k, v = repeated(k), repeated(v)
        y = F.scaled_dot_product_attention(q, k, v, attn_mask=mask(keep))
        return y.transpose(1, 2).flatten(2) if flat else y

    contrib_ops = data.draw(st.booleans())
    same_with_and_without(
        FusionCase("drawn", forward, projected, {}, opset=opset, contrib_ops=contrib_ops)
    )
