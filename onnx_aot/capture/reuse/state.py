"""Notes what Python code of a part reads and writes besides its arguments and weights."""

from __future__ import annotations

import contextlib
import random
import sys
from collections.abc import Iterator, Mapping
from types import FunctionType, ModuleType
from typing import Any

import torch

from onnx_aot.capture.module_state import Snapshot
from onnx_aot.capture.reuse.alike import Attribute
from onnx_aot.capture.reuse.exchanges import Own
from onnx_aot.torch_compat import REGISTRIES, registered_in, restored

__all__ = [
    "Surroundings",
    "Writes",
    "context_of",
    "reads_watched",
    "submodules",
    "values_of",
    "weights_of",
]

_LONGEST = 1000  # containers with more items, such as vocabularies, are compared by length
_VALUES = (bool, int, float, complex, str, bytes, type(None))


def submodules(module: torch.nn.Module) -> Iterator[tuple[str, torch.nn.Module]]:
    """Yields each submodule with its path, the module itself included."""
    yield from module.named_modules(remove_duplicate=False)


def values_of(module: torch.nn.Module, attributes: frozenset[Attribute]) -> dict[Attribute, Any]:
    """The values of attributes of a part; those that it does not have are left out."""
    owners = dict(submodules(module))
    return {
        (path, name): vars(owners[path])[name]
        for path, name in attributes
        if path in owners and name in vars(owners[path])
    }


@contextlib.contextmanager
def reads_watched(
    module: torch.nn.Module, attributes: frozenset[Attribute], marks: bool = False
) -> Iterator[set[Attribute]]:
    """Collects those of the given attributes that code reads meanwhile.

    Code that reads a module's ``__dict__`` counts as reading all of them, unless it is torch's.

    Args:
        module: The part.
        attributes: The attributes.
        marks: Whether integers are given out as ``Own``, and count as read where they are used.
    """
    reads: set[Attribute] = set()
    if not attributes:
        yield reads
        return
    names = {name for _, name in attributes}
    paths: dict[int, list[str]] = {}
    for path, part in submodules(module):
        paths.setdefault(id(vars(part)), []).append(path)

    def get(self: Any, name: str) -> Any:
        if name in names or name == "__dict__":
            for path in paths.get(id(object.__getattribute__(self, "__dict__")), ()):
                if (path, name) in attributes:
                    value = object.__getattribute__(self, name)
                    if marks and type(value) is int:
                        return Own(value, (path, name), reads.add)
                    reads.add((path, name))
                elif name == "__dict__" and not sys._getframe(1).f_globals.get(
                    "__name__", ""
                ).startswith("torch."):
                    reads.update(attribute for attribute in attributes if attribute[0] == path)
        return object.__getattribute__(self, name)

    def undo() -> None:
        if torch.nn.Module.__dict__.get("__getattribute__") is get:
            del torch.nn.Module.__getattribute__

    with restored(undo):
        torch.nn.Module.__getattribute__ = get  # type: ignore[method-assign]
        yield reads


class Writes:
    """Detects writes of Python state during the call of a part.

    Args:
        module: The part.
        arguments: The containers among its arguments, with their contents.
    """

    def __init__(self, module: torch.nn.Module, arguments: Any) -> None:
        self._saved = [(part, Snapshot(part, elements=False)) for part in module.modules()]
        self._classes = {type(part): dict(vars(type(part))) for part, _ in self._saved}
        self._arguments = [(held, held.copy()) for held in _containers(arguments)]
        self._random = random.getstate()
        self._context = context_of()

    def describe(self) -> str | None:
        """What was written, or None."""
        for part, snapshot in self._saved:
            for name in snapshot.list_changes(part):
                return f"it assigns {type(part).__name__}.{name}"
        for kind, before in self._classes.items():
            if _shallow(vars(kind)) != _shallow(before):
                return f"it assigns an attribute of the class {kind.__name__}"
        if any(_items(held) != _items(before) for held, before in self._arguments):
            return "it changes a list or dict among its arguments"
        if random.getstate() != self._random:
            return "it draws random numbers with Python"
        if context_of() != self._context:
            return "it leaves gradients or autocast switched on or off"
        return None


def _shallow(namespace: Mapping[str, Any]) -> dict[str, int]:
    return {name: id(value) for name, value in namespace.items() if name[:2] != "__"}


def _containers(value: Any) -> Iterator[list[Any] | dict[Any, Any]]:
    if isinstance(value, (list, dict)):
        yield value
    if isinstance(value, (list, tuple, dict)):
        for item in value.values() if isinstance(value, dict) else value:
            yield from _containers(item)


def _items(held: list[Any] | dict[Any, Any]) -> list[Any]:
    if isinstance(held, dict):
        return [(key, id(value)) for key, value in held.items()]
    return [id(value) for value in held]


def context_of() -> tuple[Any, ...]:
    """The modes of torch that decide what operators compute."""
    return (
        torch.is_grad_enabled(),
        torch.is_inference_mode_enabled(),
        torch.is_autocast_enabled("cpu"),
        torch.get_autocast_dtype("cpu"),
        torch.is_autocast_enabled("cuda"),
        torch.get_default_dtype(),
    )


class Surroundings:
    """Values outside of modules that alike parts may read: shared objects and globals.

    A counter that the caller keeps in a configuration or a global, and that a part reads, would
    make the part differ from call to call.

    Args:
        module: One of the parts.
        differing: Attributes that parts do not share.
    """

    def __init__(self, module: torch.nn.Module, differing: frozenset[Attribute]) -> None:
        self._objects: dict[int, Any] = {}
        self._globals: dict[tuple[int, str], Mapping[str, Any]] = {}
        for path, part in submodules(module):
            for name, value in vars(part).items():
                if name not in REGISTRIES and (path, name) not in differing:
                    self._note(value)
            for kind in type(part).__mro__:
                if kind is not object and not kind.__module__.startswith("torch."):
                    self._note_functions(kind)

    def _note(self, value: Any) -> None:
        if isinstance(value, (type, FunctionType, ModuleType, torch.Tensor, torch.nn.Module)):
            return
        if isinstance(value, (list, dict, set)) or hasattr(value, "__dict__"):
            self._objects[id(value)] = value

    def _note_functions(self, kind: type) -> None:
        for value in vars(kind).values():
            function = getattr(value, "__func__", value)
            if isinstance(function, FunctionType):
                held = function.__globals__
                for name in function.__code__.co_names:
                    if not isinstance(held.get(name), (type, FunctionType, ModuleType)):
                        self._globals[id(held), name] = held

    def read(self) -> dict[Any, Any]:
        """The values now, to be compared with those at another time."""
        found: dict[Any, Any] = {key: _summarize(value) for key, value in self._objects.items()}
        for (key, name), held in self._globals.items():
            if name in held:
                found[key, name] = _summarize(held[name])
        return found


def _summarize(value: Any, depth: int = 2) -> Any:
    if isinstance(value, _VALUES):
        return (type(value).__name__, repr(value))
    if isinstance(value, (dict, list, tuple)) and len(value) > _LONGEST:
        return (id(value), len(value))
    if depth and isinstance(value, dict):
        return {key: _summarize(item, depth - 1) for key, item in value.items()}
    if depth and isinstance(value, (list, tuple)):
        return [_summarize(item, depth - 1) for item in value]
    if isinstance(value, set):
        return len(value)
    attributes = getattr(value, "__dict__", None)
    if depth == 2 and isinstance(attributes, dict):
        return (id(value), {name: _summarize(item, 1) for name, item in attributes.items()})
    return id(value)


def weights_of(module: torch.nn.Module) -> Iterator[tuple[str, torch.Tensor]]:
    """Yields parameters and buffers of a part with their paths."""
    for path, part in submodules(module):
        for kind in ("parameters", "buffers"):
            for name, tensor in registered_in(part, kind).items():
                if isinstance(tensor, torch.Tensor):
                    yield (f"{path}.{name}" if path else name), tensor
