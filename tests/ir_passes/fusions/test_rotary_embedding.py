"""Decomposed rotary embeddings."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from tests.ir_passes.fusions.attention_models import (
    by_chunks,
    heads,
    projected,
    rotate_half,
    rotated,
)
from tests.ir_passes.fusions.fusion_cases import FusionCase, check, parametrize


def turned(name: str, turn: Callable[[Tensor], Tensor], fires: bool, opset: int = 20) -> FusionCase:
    def forward(q: Tensor, k: Tensor, v: Tensor, keep: Tensor) -> Any:
        return rotated(heads(q), turn), rotated(heads(k), turn)

    rule, operator = "rotated_halves", "Split"
    if opset >= 23:
        rule = operator = "rotary_embedding"
        operator = "RotaryEmbedding"
    n = 2 if fires else 0
    return FusionCase(name, forward, projected, {rule: n} if fires else {}, {operator: n}, opset)


ROTATIONS = [
    turned("halves", rotate_half, True),
    turned("halves, 18", rotate_half, True, 18),
    turned("halves, 17", rotate_half, False, 17),
    turned("halves, 23", rotate_half, True, 23),
    turned("chunks, 23", by_chunks, True, 23),
    turned("not negated", lambda x: torch.cat([x[..., 4:], x[..., :4]], -1), False, 23),
    turned("other halves", lambda x: torch.cat([-x[..., :4], x[..., 4:]], -1), False, 23),
    turned("other sizes", lambda x: torch.cat([-x[..., 3:], x[..., :3]], -1), False, 23),
    turned("other axis", lambda x: torch.cat([-x[:, 1:], x[:, :1]], 1), False, 23),
]


@parametrize(ROTATIONS)
def test_rotary_embedding(case: FusionCase) -> None:
    check(case)
