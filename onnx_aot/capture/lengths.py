"""``len`` and ``range`` in the code of a model: sizes of dimensions stay dynamic."""

from __future__ import annotations

import builtins
import contextlib
import inspect
import sys
from collections.abc import Iterable, Iterator
from types import ModuleType
from typing import Any

import torch

from onnx_aot import torch_compat

__all__ = ["builtins_keep_sizes"]

_NOT_THE_MODELS = ("torch", __name__.partition(".")[0])


def _len(value: Any) -> Any:
    """Python makes a number of what ``__len__`` returns, which fixes the size."""
    if isinstance(value, torch.Tensor) and value.dim():
        return value.shape[0]
    return builtins.len(value)


class _IsRange(type):
    def __instancecheck__(cls, value: Any) -> bool:
        return isinstance(value, builtins.range)


class _Range(metaclass=_IsRange):
    """Python makes numbers of what ``range`` is given.

    ``range(0, n, n)`` gives 0 alone, whatever ``n`` is. Where the size decides how many there are,
    it is fixed all the same: the loop is unrolled.
    """

    def __new__(cls, *bounds: Any) -> Iterable[Any]:  # type: ignore[misc]
        if any(isinstance(bound, torch.SymInt) for bound in bounds):
            start, stop, step = (0, *bounds, 1) if len(bounds) == 1 else (*bounds, 1)[:3]
            count = torch_compat.known_number(-((start - stop) // step))
            if count is not None:
                return [start + step * index for index in builtins.range(count)]
        return builtins.range(*bounds)


_BUILTINS = {"len": _len, "range": _Range}


@contextlib.contextmanager
def builtins_keep_sizes(model: torch.nn.Module) -> Iterator[None]:
    """Lets these functions take and return symbolic sizes in the packages of the model's classes.

    A module that has a function of such a name keeps it.
    """
    namespaces = {id(names): names for names in map(vars, _modules(model))}  # some have two names
    changed = [
        (names, name) for names in namespaces.values() for name in _BUILTINS if name not in names
    ]
    for names, name in changed:
        names[name] = _BUILTINS[name]
    try:
        yield
    finally:
        for names, name in changed:
            del names[name]


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
