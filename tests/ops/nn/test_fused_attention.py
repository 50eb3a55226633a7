"""Attention operators that torch fuses: ``onnx_aot/ops/nn/fused_attention.py``."""

from __future__ import annotations

import torch

from onnx_aot.torch_compat import aten
from tests.ops.rows import Row, T, check, floats, parametrize

QUERY = floats("n", 2, "m", 4)
KEY = floats("n", 2, "k", 4)

FLASH = [
    Row(
        aten._scaled_dot_product_flash_attention_for_cpu.default,
        (query, key, key),
        kwargs,
        name=name,
    )
    for name, query, key, kwargs in (
        ("", QUERY, KEY, {}),
        ("causal", QUERY, QUERY, {"is_causal": True}),
        ("mask", QUERY, KEY, {"attn_mask": floats("m", "k"), "scale": 0.3}),
    )
]


def above_diagonal(*sizes: int | str) -> T:
    """A mask that is true above the diagonal."""
    return T(sizes, torch.bool, lambda *s: torch.ones(s).triu(1) > 0)


def last(*sizes: int | str) -> T:
    """A mask that is true in the last column."""
    return T(sizes, torch.bool, lambda *s: torch.arange(s[-1]).expand(s) == s[-1] - 1)


PROJECTIONS = (floats(24, 8), floats(24), floats(8, 8), floats(8))

HEADS = [
    Row(
        aten._native_multi_head_attention.default,
        (source, source, source, 8, 2, *PROJECTIONS, mask, need, average, kind),
        call=(lambda *a: aten._native_multi_head_attention(*a)[: 2 if a[10] else 1]),
        name=name,
    )
    for name, source, mask, need, average, kind in (
        ("average", floats("n", "m", 8, high=1), None, True, True, None),
        ("each", floats("n", "m", 8, high=1), None, True, False, None),
        ("rows", floats("n", "m", 8, high=1), above_diagonal("m", "m"), False, True, 0),
        ("padding", floats("n", "m", 8, high=1), last("n", "m"), False, True, 1),
    )
]

LAYER = [
    Row(
        aten._transformer_encoder_layer_fwd.default,
        (
            floats("n", "m", 8),
            8,
            2,
            *PROJECTIONS,
            gelu,
            first,
            1e-5,
            *[floats(8)] * 4,
            floats(6, 8),
            floats(6),
            floats(8, 6),
            floats(8),
        ),
        name=f"{gelu}, {first}",
    )
    for gelu in (False, True)
    for first in (False, True)
]


@parametrize([*FLASH, *HEADS, *LAYER])
def test_row(row: Row) -> None:
    check(row)
