"""Replaces Python's functions in the code of a model: sizes stay dynamic, and are numbers."""

from __future__ import annotations

import builtins
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import torch

from onnx_aot import torch_compat
from onnx_aot.capture.patches.tensor_subclasses import class_in_model
from onnx_aot.torch_compat import Entries, FakeTensor, Patch, Place, Settings

__all__ = ["BUILTINS", "StandsFor", "find_uses"]


def _len(value: Any) -> Any:
    """Keeps the size of a tensor symbolic; Python turns the result of ``__len__`` into an int."""
    if isinstance(value, torch.Tensor) and value.dim():
        return value.shape[0]
    return builtins.len(value)


def _make_len(original: Any, settings: Settings) -> Callable[[Any], Any]:
    loops = settings.loops
    if loops is None:
        return _len

    def length(value: Any) -> Any:
        steps = loops.count(value)
        return _len(value) if steps is None else steps

    return length


class StandsFor(type):
    """A class in the place of the builtin ``builtin``, for ``isinstance`` and for other threads."""

    builtin: type

    def __instancecheck__(cls, value: Any) -> bool:
        return isinstance(value, cls.builtin)

    def __call__(cls, *args: Any, **kwargs: Any) -> Any:
        """Makes a value of the class; in threads that do not capture, of the builtin."""
        if not torch_compat.in_capturing_thread():
            return cls.builtin(*args, **kwargs)
        return super().__call__(*args, **kwargs)


class _Range(metaclass=StandsFor):
    """Keeps symbolic bounds, which Python's ``range`` turns into ints.

    ``range(0, n, n)`` gives only 0, whatever ``n`` is. If the size determines the number of steps,
    it is fixed all the same, because the loop is unrolled, unless ``loops`` runs it.
    """

    builtin = builtins.range
    loops: Any = None

    def __new__(cls, *bounds: Any) -> Iterable[Any]:  # type: ignore[misc]
        if any(isinstance(bound, torch.SymInt) for bound in bounds):
            start, stop, step = (0, *bounds, 1) if len(bounds) == 1 else (*bounds, 1)[:3]
            count = torch_compat.known_number(-((start - stop) // step))
            if count is not None:
                return [start + step * index for index in builtins.range(count)]
            if cls.loops is not None:
                return cls.loops.range(start, stop, step)  # type: ignore[no-any-return]
        return builtins.range(*bounds)


def _make_range(original: Any, settings: Settings) -> type:
    return StandsFor("range", (_Range,), {"loops": settings.loops})


def _divmod(left: Any, right: Any) -> Any:
    """Divides symbolic sizes too, which have ``//`` and ``%`` but no ``__divmod__``."""
    if isinstance(left, _SYMBOLIC) or isinstance(right, _SYMBOLIC):
        return left // right, left % right
    return builtins.divmod(left, right)


_SYMBOLIC = (torch.SymInt, torch.SymFloat)
_LIKE: dict[type, Any] = {torch.SymInt: 0, torch.SymFloat: 0.0, torch.SymBool: False}


def _isinstance(value: Any, classes: Any) -> bool:
    """True for a symbolic size too, where it is for the number that the model has in its place."""
    if builtins.isinstance(value, classes):
        return True
    like = _LIKE.get(type(value))
    return like is not None and builtins.isinstance(like, classes)


class _Type(metaclass=StandsFor):
    """``type``, which gives the type of what the model has in the place of a traced value."""

    builtin = builtins.type

    def __new__(cls: type, *args: Any, **kwargs: Any) -> Any:
        if not builtins.isinstance(cls, StandsFor):  # type.__new__(Meta, ...)
            return builtins.type.__new__(cls, *args, **kwargs)
        made = builtins.type(*args, **kwargs)
        if len(args) > 1:
            return made
        if builtins.isinstance(args[0], FakeTensor):
            return class_in_model(args[0])
        return builtins.type(_LIKE[made]) if made in _LIKE else made

    def __class_getitem__(cls, item: Any) -> Any:
        return builtins.type[item]


_FIXED = "{}(...) of a dynamic size fixes it, or is refused."
_BUILTINS: dict[str, tuple[Callable[[Any, Settings], Any], str]] = {
    "len": (_make_len, _FIXED),
    "range": (_make_range, _FIXED),
    "divmod": (lambda original, settings: _divmod, _FIXED),
    "isinstance": (
        lambda original, settings: _isinstance,
        "isinstance(n, int) of a dynamic size n is false, and the export has the code for that.",
    ),
    "type": (
        lambda original, settings: _Type,
        "type(n) is int is false for a dynamic size n, and type(x) is torch.Tensor for any tensor; "
        "the export has the code for that.",
    ),
}


def find_uses(name: str) -> Callable[[Settings], Iterator[Place]]:
    """Finds namespaces of the model's packages where a name refers to the builtin.

    Those of other files that have loops over dynamic sizes are among them.
    """

    def places(settings: Settings) -> Iterator[Place]:
        files = () if settings.loops is None else settings.loops.files
        spaces = [*settings.namespaces(), *torch_compat.namespaces_of_files(files)]
        tables = list({id(names): names for names in spaces if name not in names}.values())
        if tables:
            yield Entries(tables, name, default=getattr(builtins, name))

    return places


BUILTINS: tuple[Patch, ...] = tuple(
    Patch(
        f"{name} in the packages of the model",
        make,
        without.format(name),
        when=lambda settings: settings.module is not None and not settings.strict,
        places=find_uses(name),
    )
    for name, (make, without) in _BUILTINS.items()
)
