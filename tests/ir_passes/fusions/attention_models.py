"""Attention as in transformers' models: shared keys, rotations, masks."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F  # noqa: N812
from torch import Tensor

from tests.ir_passes.fusions.fusion_cases import FusionCase

HEADS, GROUPS, WIDTH = 4, 2, 8
FREQUENCIES = 1.0 / 10.0 ** (torch.arange(0, WIDTH, 2) / WIDTH)


def projected(batch: int, length: int) -> tuple[Tensor, ...]:
    """Queries, keys and values as computed by projections, and a mask of keys."""
    keep = torch.ones(batch, length, dtype=torch.bool)
    keep[0, length // 2 :] = False  # no key remains for a length of 1
    wide, narrow = HEADS * WIDTH, GROUPS * WIDTH
    return (*(torch.randn(batch, length, n) for n in (wide, narrow, narrow)), keep)


def rotations(length: int) -> tuple[Tensor, Tensor]:
    angles = torch.arange(length)[None, :, None].float() * FREQUENCIES
    angles = torch.cat([angles, angles], dim=-1)
    return angles.cos().unsqueeze(1), angles.sin().unsqueeze(1)


def rotate_half(x: Tensor) -> Tensor:
    return torch.cat([-x[..., WIDTH // 2 :], x[..., : WIDTH // 2]], dim=-1)


def rotated(x: Tensor, turn: Callable[[Tensor], Tensor] = rotate_half) -> Tensor:
    cos, sin = rotations(x.shape[2])
    return x * cos + turn(x) * sin


def by_chunks(x: Tensor) -> Tensor:
    low, high = x.chunk(2, dim=-1)
    return torch.cat([-high, low], dim=-1)


def heads(x: Tensor) -> Tensor:
    return x.view(*x.shape[:2], -1, WIDTH).transpose(1, 2)


def repeated(x: Tensor, times: int = HEADS // GROUPS) -> Tensor:
    batch, groups, length, width = x.shape
    x = x[:, :, None].expand(batch, groups, times, length, width)
    return x.reshape(batch, groups * times, length, width)


def together(x: Tensor) -> Tensor:
    return x.transpose(1, 2).reshape(x.shape[0], x.shape[2], HEADS * WIDTH)


# --- attention -----------------------------------------------------------------------------------


def attention(
    name: str,
    *,
    rotate: bool = False,
    times: tuple[int, int] = (2, 2),
    fires: dict[str, int],
    operators: dict[str, int],
    opset: int = 20,
    flat: bool = True,
    contrib_ops: bool = False,
    mask: Callable[[Tensor], Tensor | None] = lambda keep: keep[:, None, None],
    **options: Any,
) -> FusionCase:
    def forward(q: Tensor, k: Tensor, v: Tensor, keep: Tensor) -> Any:
        q, k, v = heads(q), heads(k), heads(v)
        if rotate:
            q, k = rotated(q), rotated(k)
        if times[0] != 2:
            q = q[:, : GROUPS * times[0]]
        k, v = repeated(k, times[0]), repeated(v, times[1])
        y = F.scaled_dot_product_attention(q, k, v, attn_mask=mask(keep), **options)
        return together(y) if flat else y

    return FusionCase(name, forward, projected, fires, operators, opset, contrib_ops=contrib_ops)


def rows_and_keys(keep: Tensor) -> Tensor:
    """Causal mask with padding; with padding at the start, the first query has no key."""
    length = keep.shape[1]
    causal = torch.arange(length)[:, None] >= torch.arange(length)
    return causal & keep[:, None, None]


def nothing(keep: Tensor) -> None:
    return None
