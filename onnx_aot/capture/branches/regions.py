"""Carries out the autocast regions of a model that branches on its data."""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Sequence
from typing import Any

import torch

from onnx_aot.torch_compat import AUTOCAST_BEGINS, AUTOCAST_ENDS

__all__ = ["Region", "is_region_begin", "is_region_end"]


@dataclasses.dataclass(frozen=True)
class Region:
    """An autocast region that has begun.

    Attributes:
        device: Kind of device.
        before: Type and switch of autocast before the region.
        entered: Ends the region; None on a way of a branch that the region began before.
    """

    device: str
    before: tuple[torch.dtype, bool]
    entered: contextlib.ExitStack | None = None

    @classmethod
    def begin(cls, args: Sequence[Any], regions: contextlib.ExitStack) -> Region:
        """Begins a region.

        Args:
            args: Arguments of ``torch.autocast``.
            regions: Ends the region if nothing else does.
        """
        device: str = args[0]
        before = torch.get_autocast_dtype(device), torch.is_autocast_enabled(device)
        entered = regions.enter_context(contextlib.ExitStack())
        entered.enter_context(torch.autocast(*args))
        return cls(device, before, entered)

    def end(self, regions: contextlib.ExitStack) -> None:
        """Ends the region; on a way of a branch, another one without it lasts as ``regions``."""
        if self.entered is not None:
            self.entered.close()
        else:
            regions.enter_context(torch.autocast(self.device, *self.before))


def is_region_begin(step: Any) -> bool:
    """True if a step begins an autocast region."""
    return _name_of(step) == AUTOCAST_BEGINS


def is_region_end(step: Any) -> bool:
    """True if a step ends an autocast region; its only argument is the step that began it."""
    return _name_of(step) == AUTOCAST_ENDS


def _name_of(step: Any) -> str:
    return str(getattr(getattr(step, "target", None), "__name__", ""))
