"""Products of row groups: ``onnx_aot/ops/nn/grouped_products.py`` and ``transformers_moe.py``."""

from __future__ import annotations

import importlib
from typing import Any

import torch

from onnx_aot.torch_compat import aten
from tests.ops.rows import Row, T, check, floats, parametrize

importlib.import_module("transformers.integrations.moe")  # registers the operator


def operands(*ends: int, dtype: torch.dtype = torch.float32) -> tuple[T, T, T]:
    """Rows, matrices, and ends of groups, which ``within`` limits to the number of rows."""
    where = T((len(ends),), torch.int32, lambda *_: torch.tensor(ends, dtype=torch.int32))
    return floats("n", 8, dtype=dtype), floats(len(ends), 8, 16, dtype=dtype), where


def within(target: Any) -> Any:
    """Calls the operator with groups of which none ends after the last row."""
    return lambda rows, weight, ends: target(rows, weight, ends.clamp(max=rows.shape[0]))


BF16 = torch.bfloat16
GROUPED = aten._grouped_mm.default
FALLBACK = torch.ops.transformers.grouped_mm_fallback.default
ROWS = [
    Row(GROUPED, operands(1, 99, dtype=BF16), call=within(GROUPED), since=16),
    Row(
        GROUPED,
        operands(0, 1, 1, 99, dtype=BF16),
        call=within(GROUPED),
        name="of no rows",
        since=16,
    ),
    Row(GROUPED, (floats(2, "n", 8, dtype=BF16), floats(2, 8, 16, dtype=BF16)), name="batches"),
    Row(FALLBACK, operands(0, 1, 2, 2, 99), call=within(FALLBACK), sizes=({"n": 0},)),
    Row(FALLBACK, operands(0, 1), call=within(FALLBACK), name="rows of no group"),
]


@parametrize(ROWS)
def test_row(row: Row) -> None:
    check(row)
