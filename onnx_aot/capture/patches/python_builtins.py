"""``len`` and ``range`` in the code of a model: sizes of dimensions stay dynamic."""

from __future__ import annotations

import builtins
import inspect
import sys
from collections.abc import Callable, Iterable, Iterator
from types import ModuleType
from typing import Any

import torch

from onnx_aot import torch_compat
from onnx_aot.torch_compat import Entry, Patch, Place, Settings

__all__ = ["BUILTINS"]

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


def _shadowed(name: str) -> Callable[[Settings], Iterator[Place]]:
    """Namespaces of the model's packages in which a name is looked up among the builtins."""

    def places(settings: Settings) -> Iterator[Place]:
        # Some modules are loaded under two names.
        namespaces = {id(names): names for names in map(vars, _modules(settings.module))}
        for names in namespaces.values():
            if name not in names:
                yield Entry(names, name, default=getattr(builtins, name))

    return places


BUILTINS: tuple[Patch, ...] = tuple(
    Patch(
        f"{name} in the packages of the model",
        lambda original, settings, replacement=replacement: replacement,  # type: ignore[misc]
        f"{name}(...) of a dynamic size fixes it.",
        when=lambda settings: settings.module is not None and not settings.strict,
        places=_shadowed(name),
    )
    for name, replacement in _BUILTINS.items()
)


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
