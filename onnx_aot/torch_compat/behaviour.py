"""Tests at run time for behaviour of public functions that differs between releases of torch."""

from __future__ import annotations

import functools

import torch

__all__ = ["int64_ranges_truncate_their_bounds"]


@functools.cache
def int64_ranges_truncate_their_bounds() -> bool:
    """True if ``torch.arange`` with dtype int64 truncates float bounds before it counts.

    Up to torch 2.13 ``torch.arange(4.5, dtype=torch.int64)`` has 4 elements; from 2.14 on it has 5,
    as with the other integer types.
    """
    return torch.arange(4.5, dtype=torch.int64).numel() == 4
