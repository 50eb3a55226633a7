"""Keeps sizes symbolic that a model passes through ``int`` or ``float``.

``int(x.shape[0])`` and ``[int(n) for n in x.shape]`` give Python numbers, which fix the dimension.
The functions are replaced only in modules where that happened, when the model is captured again,
because they are types too: ``dtype=int`` is not accepted of the replacement.
"""

from __future__ import annotations

import builtins
import sys
from collections.abc import Callable, Iterator
from typing import Any

import torch

from onnx_aot.torch_compat import Entry, Patch, Place, Settings, fresh_size, symbolic_expression

__all__ = ["CONVERSIONS"]

SYMBOLIC = (torch.SymInt, torch.SymFloat)


LONG = 12
"""Operations in an expression from which on torch takes seconds to minutes to compare sizes."""


def _truncate(number: torch.SymInt | torch.SymFloat) -> Any:
    """Returns the integer part of a symbolic number, as a new symbol if its expression is long."""
    whole = torch.sym_int(number)  # type: ignore[no-untyped-call]
    if isinstance(whole, torch.SymInt) and symbolic_expression(whole).count_ops() > LONG:
        return fresh_size(whole)
    return whole


class _IsInt(type):
    def __instancecheck__(cls, value: Any) -> bool:
        return isinstance(value, builtins.int)


class _Int(metaclass=_IsInt):
    """``int``, except that a symbolic number is truncated to a symbolic one."""

    def __new__(cls, *args: Any, **kwargs: Any) -> Any:
        if len(args) == 1 and isinstance(args[0], SYMBOLIC):
            return _truncate(args[0])
        return builtins.int(*args, **kwargs)


class _IsFloat(type):
    def __instancecheck__(cls, value: Any) -> bool:
        return isinstance(value, builtins.float)


class _Float(metaclass=_IsFloat):
    """``float``, except that a symbolic number stays symbolic."""

    def __new__(cls, *args: Any) -> Any:
        if len(args) == 1 and isinstance(args[0], SYMBOLIC):
            return torch.sym_float(args[0])  # type: ignore[no-untyped-call]
        return builtins.float(*args)


_TYPES = {"int": _Int, "float": _Float}


def _find_namespaces(name: str) -> Callable[[Settings], Iterator[Place]]:
    """Finds the modules in which a conversion fixed a size."""

    def places(settings: Settings) -> Iterator[Place]:
        for module, called in settings.conversions:
            names = vars(sys.modules[module]) if module in sys.modules else {name: None}
            if called == name and name not in names:
                yield Entry(names, name, default=getattr(builtins, name))

    return places


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
