"""Carries out the autocast regions of a model that branches on its data."""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from typing import Any

import torch

from onnx_aot.torch_compat import AUTOCAST_BEGINS, AUTOCAST_ENDS

__all__ = ["Region", "is_region_begin", "is_region_end"]


class Region:
    """An autocast region that has begun.

    Args:
        args: Arguments of ``torch.autocast``; the first is the kind of device.
        regions: Ends the region if nothing else does.
    """

    def __init__(self, args: Sequence[Any], regions: contextlib.ExitStack) -> None:
        self._device: str = args[0]
        self._before = self._read()
        self._entered: contextlib.ExitStack | None = contextlib.ExitStack()
        self._entered.enter_context(torch.autocast(*args))
        regions.push(self._entered)

    def _read(self) -> tuple[torch.dtype, bool]:
        return torch.get_autocast_dtype(self._device), torch.is_autocast_enabled(self._device)

    def outside(self) -> Region:
        """The region as a way of a branch sees it, which began outside of that."""
        seen = Region.__new__(Region)
        seen._device, seen._before, seen._entered = self._device, self._before, None
        return seen

    def end(self, regions: contextlib.ExitStack) -> None:
        """Ends the region; on a way of a branch, another one without it lasts as ``regions``."""
        if self._entered is not None:
            self._entered.close()
        else:
            regions.enter_context(torch.autocast(self._device, *self._before))


def is_region_begin(step: Any) -> bool:
    """True if a step begins an autocast region."""
    return _name_of(step) == AUTOCAST_BEGINS


def is_region_end(step: Any) -> bool:
    """True if a step ends an autocast region; its only argument is the step that began it."""
    return _name_of(step) == AUTOCAST_ENDS


def _name_of(step: Any) -> str:
    return str(getattr(getattr(step, "target", None), "__name__", ""))
