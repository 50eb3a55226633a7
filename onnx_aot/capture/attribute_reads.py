"""Watches which attributes of modules code reads while a model is captured."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Callable, Collection, Iterator
from types import FrameType
from typing import Any

import torch

from onnx_aot.torch_compat import restored

__all__ = ["reads_seen"]


@contextlib.contextmanager
def reads_seen(
    names: Collection[str], see: Callable[[int, str], Callable[[Any], Any] | None]
) -> Iterator[None]:
    """Calls a function at each read of certain attributes of modules.

    Several may watch at once, and each sees all reads. Modules whose class has a
    ``__getattribute__`` of its own are not watched.

    Args:
        names: Names of the attributes. ``__dict__`` is among them in any case, unless torch's own
            code reads it.
        see: Takes the id of a module's ``__dict__`` and the name. A function that it returns makes
            what the reader gets from the value of the attribute.
    """
    module = torch.nn.Module
    outer = vars(module).get("__getattribute__")  # of another watcher
    read = module.__getattribute__

    def get(self: Any, name: str) -> Any:
        if name in names or (name == "__dict__" and not _is_of_torch(_find_reader(get.__code__))):
            change = see(id(object.__getattribute__(self, "__dict__")), name)
            return read(self, name) if change is None else change(read(self, name))
        return read(self, name)

    def undo() -> None:
        if vars(module).get("__getattribute__") is not get:
            return
        if outer is None:
            del module.__getattribute__
        else:
            module.__getattribute__ = outer  # type: ignore[method-assign]

    with restored(undo):
        module.__getattribute__ = get  # type: ignore[method-assign]
        yield


def _find_reader(watcher: Any) -> FrameType:
    """Returns the frame that reads, outside of all watchers."""
    frame = sys._getframe(2)
    while frame.f_code is watcher and frame.f_back is not None:
        frame = frame.f_back
    return frame


def _is_of_torch(frame: FrameType) -> bool:
    return str(frame.f_globals.get("__name__")).startswith("torch.")
