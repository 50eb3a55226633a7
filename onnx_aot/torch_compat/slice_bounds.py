"""Decides the bounds of slices, which may count from the end, as the example does."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import torch

from onnx_aot.torch_compat.patching import Patch, Settings
from onnx_aot.torch_compat.symbolic_sizes import creation_stack, is_data_symbol, symbolic_expression

__all__ = ["SLICE_BOUNDS", "is_size_of_slice"]


def is_size_of_slice(env: Any, symbol: str) -> bool:
    """True if torch made a symbol for a slice, because sizes do not decide its bounds."""
    return any(frame.name == "slice_forward" for frame in creation_stack(env, symbol))


def _decide_by_example(original: Callable[..., Any], settings: Settings) -> Callable[..., Any]:
    """Decides about ``x[n // 2 - 4 :]``, for which torch makes a symbol, by guards on ``n``."""

    @functools.wraps(original)
    def compute(size: Any, index: Any) -> Any:
        found = original(size, index)
        if found is not None or any(map(_is_of_data, (size, index))):
            return found
        if index < 0:
            return torch.sym_max(index + size, 0)  # type: ignore[no-untyped-call]
        return index if index <= size else size

    return compute


def _is_of_data(size: Any) -> bool:
    if not isinstance(size, torch.SymInt):
        return False
    return any(map(is_data_symbol, symbolic_expression(size).free_symbols))


SLICE_BOUNDS = Patch(
    "torch._subclasses.fake_impls:_compute_slice_index",
    _decide_by_example,
    "Models are refused that use the length of a slice, if sizes do not decide whether its bounds "
    "count from the end.",
    when=lambda settings: settings.decides_slices,
    parameters="size, index",
)
"""Row for bounds of slices."""
