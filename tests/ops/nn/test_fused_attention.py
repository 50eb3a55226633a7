"""Attention operators that torch fuses: ``onnx_aot/ops/nn/fused_attention.py``."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor

import onnx_aot
from onnx_aot.torch_compat import aten
from tests.ops.rows import Row, T, check, floats, parametrize
from tests.tolerances import assert_close

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


BACKWARD = [
    Row(
        aten._scaled_dot_product_flash_attention_for_cpu_backward.default,
        (QUERY, QUERY, key, key, QUERY, floats("n", 2, "m"), 0.0, causal),
        kwargs,
        name=name,
    )
    for name, key, causal, kwargs in (
        ("", KEY, False, {}),
        ("causal", QUERY, True, {}),
        ("mask", KEY, False, {"attn_mask": floats("m", "k"), "scale": 0.3}),
    )
]


class Attention(torch.nn.Module):
    """Gradients of attention by queries, keys and values."""

    def __init__(self, **options: Any) -> None:
        super().__init__()
        self.options = options

    def forward(
        self, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor
    ) -> tuple[torch.Tensor, ...]:
        def attend(*inputs: Tensor) -> Tensor:
            attended = torch.nn.functional.scaled_dot_product_attention(*inputs, **self.options)
            return attended.sin().sum()

        return torch.func.grad(attend, (0, 1, 2))(q, k, v)


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"is_causal": True},
        {"scale": 0.3},
        {"attn_mask": torch.tensor([[0.0, 1, 2, 3, -1]])},
        {"attn_mask": torch.tensor([[True, False, True, True, False]])},
    ],
    ids=str,
)
def test_gradients(options: dict[str, Any]) -> None:
    def draw(queries: int) -> tuple[Tensor, ...]:
        return tuple(torch.randn(2, 3, n, 4) for n in (queries, 5, 5))

    model = Attention(**options)
    program = onnx_aot.export(model, draw(5), dynamic_shapes=({2: "n"}, None, None))
    for queries in (5, 7):
        given = draw(queries)
        for found, wanted in zip(program(*given), model(*given), strict=True):
            assert_close(found, wanted)


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


@parametrize([*FLASH, *BACKWARD, *HEADS, *LAYER])
def test_row(row: Row) -> None:
    check(row)


# They have no kernels on the CPU, so the operator that torch takes apart into them is compared.
ON_CUDA = [
    Row(aten._scaled_dot_product_flash_attention.default, (0.0, True), name="flash"),
    Row(
        aten._scaled_dot_product_efficient_attention.default,
        (None, True, 0.0, True),
        {"scale": 0.3},
        name="efficient",
    ),
    Row(
        aten._scaled_dot_product_cudnn_attention.default,
        (None, False),
        {"scale": 0.3},
        name="cudnn",
    ),
]
CAUSAL = ("flash", "efficient")


@pytest.mark.parametrize("row", ON_CUDA, ids=lambda row: row.name)
def test_kernels_of_cuda_in_a_captured_program(row: Row) -> None:
    """Programs that were decomposed on a device have them; this one is captured without one."""

    class Decomposed(torch.nn.Module):
        def forward(self, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
            return row.target(q, k, v, *row.args, **row.kwargs)[0]

    def inputs(batch: int, length: int) -> tuple[Tensor, ...]:
        return tuple(torch.randn(batch, 2, length, 8) for _ in range(3))

    dims = {0: "batch", 2: "length"}
    program = onnx_aot.export(Decomposed(), inputs(2, 6), dynamic_shapes=(dims, dims, dims))
    for sizes in ((2, 6), (1, 1), (3, 40)):
        given = inputs(*sizes)
        causal = row.name in CAUSAL
        expected = torch.nn.functional.scaled_dot_product_attention(
            *given, is_causal=causal, **row.kwargs
        )
        assert_close(program(*given)[0], expected)
