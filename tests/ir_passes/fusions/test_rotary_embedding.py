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
    rotations,
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


Halves = Callable[[Tensor, Tensor, Tensor, Tensor], Tensor]
"""Rotates the halves of a value by a cosine and a sine."""


def in_halves(low: Tensor, high: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    return torch.cat([low * cos - high * sin, high * cos + low * sin], -1)


def in_halves_otherwise(low: Tensor, high: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    return torch.cat([cos * low - sin * high, sin * low + cos * high], -1)


def other_way(low: Tensor, high: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    return torch.cat([low * cos - high * sin, low * cos + high * sin], -1)


def halves_of(name: str, rotate: Halves, fires: bool, opset: int = 23, axis: int = 1) -> FusionCase:
    def forward(q: Tensor, k: Tensor, v: Tensor, keep: Tensor) -> Any:
        angles = rotations(q.shape[1])
        cos, sin = (angle[:, 0, :, : angle.shape[-1] // 2].unsqueeze(axis) for angle in angles)
        return tuple(rotate(*heads(x).chunk(2, -1), cos, sin) for x in (q, k))

    n = 2 if fires else 0
    counts = {"rotary_embedding_of_halves": n} if fires else {}
    return FusionCase(name, forward, projected, counts, {"RotaryEmbedding": n}, opset)


IN_HALVES = [
    halves_of("in halves", in_halves, True),
    halves_of("in halves, factors swapped", in_halves_otherwise, True),
    halves_of("in halves, 22", in_halves, False, 22),
    halves_of("wrong products", other_way, False),
    halves_of("halves swapped", lambda low, high, *angles: in_halves(high, low, *angles), False),
]


@parametrize([*ROTATIONS, *IN_HALVES])
def test_rotary_embedding(case: FusionCase) -> None:
    check(case)
