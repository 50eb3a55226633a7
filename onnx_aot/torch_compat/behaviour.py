"""Tests at run time for behaviour of public functions that differs between releases of torch."""

from __future__ import annotations

import functools

import torch

__all__ = ["asserts_floats_of_data", "int64_ranges_truncate_their_bounds"]


@functools.cache
def int64_ranges_truncate_their_bounds() -> bool:
    """True if ``torch.arange`` with dtype int64 truncates float bounds before it counts.

    Up to torch 2.13 ``torch.arange(4.5, dtype=torch.int64)`` has 4 elements; from 2.14 on it has 5,
    as with the other integer types.
    """
    return torch.arange(4.5, dtype=torch.int64).numel() == 4


@functools.cache
def asserts_floats_of_data() -> bool:
    """True if a capture may have several assertions, one of them about a float of data.

    In torch 2.12 ``torch._check(x.max().item() < 1)`` after another such check ends a capture with
    ``Unknown symbol zuf0 created by constraints solver``.
    """
    return tuple(map(int, torch.__version__.split(".")[:2])) >= (2, 13)
