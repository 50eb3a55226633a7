"""``len(tensor)`` in the code of a model: the size of a dimension, which stays dynamic."""

from __future__ import annotations

import builtins
import contextlib
import inspect
import sys
from collections.abc import Iterator
from types import ModuleType
from typing import Any

import torch

__all__ = ["lengths_of_tensors"]

_NOT_THE_MODELS = ("torch", __name__.partition(".")[0])


def _len(value: Any) -> Any:
    """Python makes a number of what ``__len__`` returns, which fixes the size."""
    if isinstance(value, torch.Tensor) and value.dim():
        return value.shape[0]
    return builtins.len(value)


@contextlib.contextmanager
def lengths_of_tensors(model: torch.nn.Module) -> Iterator[None]:
    """Lets ``len`` return a symbolic size in the packages that the model's classes come from.

    A module that has a ``len`` of its own keeps it.
    """
    namespaces = {id(names): names for names in map(vars, _modules(model))}  # some have two names
    changed = [names for names in namespaces.values() if "len" not in names]
    for names in changed:
        names["len"] = _len
    try:
        yield
    finally:
        for names in changed:
            del names["len"]


def _modules(model: torch.nn.Module) -> list[ModuleType]:
    """The loaded modules of these packages, and the one that ``forward`` was written in."""
    written_in = {type(part).__module__ for part in model.modules()}
    forward = inspect.unwrap(model.forward)
    written_in.add(getattr(forward, "__module__", None) or "")
    packages = {name.partition(".")[0] for name in written_in}
    packages -= {*_NOT_THE_MODELS, *sys.stdlib_module_names, ""}
    return [
        module
        for name, module in list(sys.modules.items())
        if name.partition(".")[0] in packages and isinstance(module, ModuleType)
    ]
