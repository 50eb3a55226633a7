"""Answers of public functions that differ between releases of torch, found by asking."""

from __future__ import annotations

import functools

import torch

__all__ = ["int64_ranges_truncate_their_bounds"]


@functools.cache
def int64_ranges_truncate_their_bounds() -> bool:
    """Whether ``torch.arange`` of floats to int64 counts from the bounds without their fractions.

    Until torch 2.13 ``torch.arange(4.5, dtype=torch.int64)`` has 4 elements; from 2.14 on it has 5,
    as it has in the other integer types.
    """
    return torch.arange(4.5, dtype=torch.int64).numel() == 4
