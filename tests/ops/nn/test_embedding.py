"""Embeddings: ``onnx_aot/ops/nn/embedding.py``."""

from __future__ import annotations

from typing import Any

import pytest
import torch

import onnx_aot
from onnx_aot.errors import OpsetError
from onnx_aot.torch_compat import aten
from tests.ops.rows import Row, T, check, floats, given, ints, parametrize, positive

EMPTY = ({"n": 0},)

EMBEDDING = [
    Row(aten.embedding.default, args, kwargs, name=name, sizes=EMPTY)
    for name, args, kwargs in (
        ("", (floats(7, 3), ints("n", "m", low=0, high=7)), {}),
        ("int32", (floats(7, 3), ints("n", low=0, high=7, dtype=torch.int32)), {}),
        ("rank 0", (floats(7, 3), ints(low=0, high=7)), {}),
        ("padding", (floats(7, 3), ints("n", low=0, high=7)), {"padding_idx": 0}),
        ("dynamic table", (floats("k", 3), ints("n", 2, low=0, high=2)), {}),
    )
]

RENORM = [
    Row(
        aten.embedding_renorm.default,
        (floats("h", 3), ints("n", "m", low=0, high=7), 1.5, p),
        name=f"{p}",
        sizes=EMPTY,
    )
    for p in (2.0, 1.0, 0.5, 3.0, float("inf"))
] + [
    Row(aten.renorm.default, (tensor, p, dim, 1.5), name=f"{tensor.sizes}, {tensor.dtype}, {p}")
    for tensor, p, dim in (
        (floats("n", "m", 3), 2.0, 1),
        (floats("n", "m", 3), 1.5, -1),
        (floats("n", "m", 3, dtype=torch.float16), float("inf"), 0),
        (floats("n", "m", 3, dtype=torch.bfloat16), 2.0, 0),
    )
]


def starts(*sizes: int | str) -> T:
    """Offsets that start at 0 and include empty bags."""
    return T(
        sizes, torch.int64, lambda n: torch.cat([torch.zeros(1), torch.arange(n - 1) // 2 * 2])
    )


def bags(mode: int, last: bool, padding: int | None, weights: bool) -> Row:
    """Makes a row of embedding_bag; with ``last``, the last offset is the number of indices.

    The other results then have sizes that torch's shape function does not compute.
    """
    count: int | str = 6 if last else "h"
    offsets = given(0, 0, 2, 2, 6, dtype=torch.int64) if last else starts("n")
    each = positive(count) if weights else None
    index = ints(count, low=0, high=7)
    return Row(
        aten.embedding_bag.padding_idx,
        (floats(7, 3), index, offsets, False, mode, False, each, last, padding),
        name=f"{mode}, {last}, {padding}, {weights}",
        call=(lambda *args: aten.embedding_bag.padding_idx(*args)[0]) if last else None,
        since=18 if mode == 2 else 17,
    )


BAGS = [
    bags(mode, last, padding, weights)
    for mode, last, padding, weights in (
        (0, False, None, False),
        (0, True, None, True),
        (0, False, 2, True),
        (0, False, -1, False),
        (1, False, None, False),
        (1, True, 3, False),
        (2, False, None, False),
        (2, True, 3, False),
    )
] + [
    Row(
        aten.embedding_bag.default,
        (floats(7, 3), ints("h", low=0, high=7), starts("n")),
        name="plain",
    ),
    Row(
        aten.embedding_bag.padding_idx,
        (floats(7, 3), ints("n", "m", low=0, high=7, dtype=torch.int32)),
        call=lambda table, index: torch.nn.functional.embedding_bag(index, table),
        name="matrix",
        sizes=EMPTY,
    ),
    Row(
        aten._embedding_bag.default,
        (floats(7, 3), ints("h", low=0, high=7), starts("n"), False, 1),
    ),
    Row(
        aten._embedding_bag.default,
        (floats(7, 3, dtype=torch.float16), ints("h", low=0, high=7), starts("n"), False, 2),
        name="largest",
        since=18,
    ),
    Row(
        aten._embedding_bag_forward_only.default,
        (floats(7, 3, dtype=torch.bfloat16), ints("h", low=0, high=7), starts("n")),
        call=lambda *args: aten._embedding_bag_forward_only.default(*args)[0],
    ),
]

ROWS = [*EMBEDDING, *RENORM, *BAGS]


@parametrize(ROWS)
def test_row(row: Row) -> None:
    check(row)


@pytest.mark.parametrize("mode", [0, 1, 2])
def test_sizes_with_a_last_offset_are_what_the_capture_recorded(mode: int) -> None:
    class Bags(torch.nn.Module):
        def forward(self, x: torch.Tensor, index: torch.Tensor, offsets: torch.Tensor) -> Any:
            more = (False, mode, False, None, True)
            return aten.embedding_bag.default(x, index, offsets, *more)

    inputs = (torch.ones(4, 2), torch.tensor([1, 2, 3]), torch.tensor([0, 2, 3]))
    program = onnx_aot.export(Bags(), inputs)
    recorded = [list(value.shape) for value in program.model.graph.outputs]
    assert [list(output.shape) for output in program(*inputs)] == recorded


def test_largest_needs_opset_18() -> None:
    class Bag(torch.nn.Module):
        def forward(self, x: torch.Tensor, index: torch.Tensor) -> torch.Tensor:
            return torch.nn.functional.embedding_bag(index, x, mode="max")

    inputs = (torch.ones(4, 2), torch.tensor([[1, 2]]))
    with pytest.raises(OpsetError, match="since opset 18"):
        onnx_aot.export(Bag(), inputs, opset_version=17)
