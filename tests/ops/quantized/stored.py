"""Arguments of rows: zero points, and integers of a storage type."""

from __future__ import annotations

import torch

from tests.ops.rows import T, given, ints

HALF = torch.float16
WIDE = torch.float64


def stored(*sizes: int | str, dtype: torch.dtype) -> T:
    info = torch.iinfo(dtype)
    return ints(*sizes, low=max(info.min, -1000), high=min(info.max, 1000), dtype=dtype)


def zero_points(*values: int, dtype: torch.dtype = torch.int64) -> T:
    return given(*values, dtype=dtype)
