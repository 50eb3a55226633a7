"""Keeps sizes symbolic that a model passes through ``int`` or ``float``.

``int(x.shape[0])`` and ``[int(n) for n in x.shape]`` give Python numbers, which fix the dimension.
``int(lengths.max())`` asks for a number that only the data has.
The functions are replaced only in modules where that happened, when the model is captured again.
They are types too, and another thread may run the same code, so modules that write ``dtype=int``
keep them.
"""

from __future__ import annotations

import builtins
import sys
from collections.abc import Callable, Iterator
from typing import Any

import torch

from onnx_aot.capture.patches.python_builtins import StandsFor
from onnx_aot.capture.sizes.guards import ask_for_user
from onnx_aot.capture.sizes.replaceable_types import is_replaceable
from onnx_aot.torch_compat import Entry, Patch, Place, Settings, is_traced, shorten_size

__all__ = ["CONVERSIONS"]

SYMBOLIC = (torch.SymInt, torch.SymFloat)


def _truncate(number: torch.SymInt | torch.SymFloat) -> Any:
    """Returns the integer part of a symbolic number; long terms become symbols of their own."""
    whole = torch.sym_int(number)  # type: ignore[no-untyped-call]
    return shorten_size(whole) if isinstance(whole, torch.SymInt) else whole


def _read(args: tuple[Any, ...]) -> Any:
    """The symbolic number that is converted; None for other arguments.

    The element of a traced tensor is a symbolic number.
    """
    given = args[0] if len(args) == 1 else None
    if isinstance(given, torch.Tensor) and is_traced(given):
        given = (given.to(torch.int64) if given.dtype == torch.bool else given).item()
    return given if isinstance(given, SYMBOLIC) else None


class _Int(metaclass=StandsFor):
    """``int``, except that a symbolic number is truncated to a symbolic one."""

    builtin = builtins.int

    def __new__(cls, *args: Any, **kwargs: Any) -> Any:
        number = _read(args)
        if number is None:  # int(n > 8) is a choice
            return ask_for_user(builtins.int, *args, **kwargs)
        return _truncate(number)


class _Float(metaclass=StandsFor):
    """``float``, except that a symbolic number stays symbolic."""

    builtin = builtins.float

    def __new__(cls, *args: Any) -> Any:
        number = _read(args)
        if number is None:
            return ask_for_user(builtins.float, *args)
        return torch.sym_float(number)  # type: ignore[no-untyped-call]


_TYPES = {"int": _Int, "float": _Float}


def _find_namespaces(name: str) -> Callable[[Settings], Iterator[Place]]:
    """Finds the modules in which a conversion fixed a size."""

    def places(settings: Settings) -> Iterator[Place]:
        for module, called in settings.conversions:
            spaces = _spaces_of(module, settings) if called == name else ()
            for names in spaces:
                if is_replaceable(names, name):
                    yield Entry(names, name, default=getattr(builtins, name))

    return places


def _spaces_of(module: str, settings: Settings) -> list[dict[str, Any]]:
    """The namespaces of a module by its name; more than one if it was loaded again."""
    spaces = [names for names in settings.namespaces() if names.get("__name__") == module]
    listed = sys.modules.get(module)
    if listed is not None and all(names is not vars(listed) for names in spaces):
        spaces.append(vars(listed))
    return spaces


CONVERSIONS: tuple[Patch, ...] = tuple(
    Patch(
        f"{name} in the modules where it fixed a size",
        lambda original, settings, replacement=replacement: replacement,  # type: ignore[misc]
        f"{name}(...) of a dynamic size fixes it.",
        when=lambda settings: bool(settings.conversions),
        places=_find_namespaces(name),
    )
    for name, replacement in _TYPES.items()
)
