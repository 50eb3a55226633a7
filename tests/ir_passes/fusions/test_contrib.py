"""Operators of ONNX Runtime's own domain, which the user requests."""

from __future__ import annotations

from typing import Any

import pytest
import torch
import torch.nn.functional as F  # noqa: N812
from torch import Tensor, nn

import onnx_aot
from onnx_aot.errors import InvalidOptionError
from tests.ir_passes.fusions.attention_models import (
    GROUPS,
    WIDTH,
    attention,
    heads,
    nothing,
    projected,
    rows_and_keys,
)
from tests.ir_passes.fusions.fusion_cases import FusionCase, check, parametrize

# --- attention -----------------------------------------------------------------------------------


def heads_of_their_own(q: Tensor, k: Tensor, v: Tensor, keep: Tensor) -> Tensor:
    mask = keep[:, None, None].expand(-1, 1, keep.shape[1], -1)
    q, k, v = (heads(x[..., : GROUPS * WIDTH]) for x in (q, k, v))
    y = F.scaled_dot_product_attention(q, k, v, attn_mask=mask)
    return y.transpose(1, 2).flatten(2)


def above_diagonal(keep: Tensor) -> Tensor:
    """Not causal: every query attends to one more key."""
    index = torch.arange(keep.shape[1])
    return (index <= index[:, None] + 1) & keep[:, None, None]


# --- operators of ONNX Runtime -------------------------------------------------------------------

GQA = {"GroupQueryAttention": 1, "MatMul": 0, "Softmax": 0}
CONTRIB = [
    attention("causal", mask=nothing, is_causal=True, fires={"group_query_attention": 1},
              operators={**GQA, "Where": 0}, contrib_ops=True),
    attention("causal and padding", mask=rows_and_keys, rotate=True, operators=GQA,
              fires={"microsoft_rotary_embedding": 2, "group_query_attention": 1},
              contrib_ops=True),
    attention("causal, 23", mask=rows_and_keys, rotate=True, operators=GQA, opset=23,
              fires={"rotary_embedding": 2, "group_query_attention": 1}, contrib_ops=True),
    attention("padding", fires={"grouped_attention": 1}, operators={"Softmax": 1},
              contrib_ops=True),
    attention("above the diagonal", mask=above_diagonal, fires={"grouped_attention": 1},
              operators={"Softmax": 1}, contrib_ops=True),
    FusionCase("heads of their own", heads_of_their_own, projected, {"multi_head_attention": 1},
        {"MultiHeadAttention": 1, "Softmax": 0}, contrib_ops=True),
    FusionCase("heads of their own, 23", heads_of_their_own, projected, {"attention": 1},
        {"Attention": 1}, opset=23, contrib_ops=True),
]  # fmt: skip


@parametrize(CONTRIB)
def test_contrib_ops(case: FusionCase) -> None:
    check(case)


@pytest.mark.parametrize("given", [{"contrib_ops": True, "target": None}, {"contrib_ops": 2}])
def test_contrib_ops_are_for_onnxruntime(given: dict[str, Any]) -> None:
    with pytest.raises(InvalidOptionError, match="contrib_ops is"):
        onnx_aot.export(nn.Linear(2, 3), (torch.ones(1, 2),), **given)
