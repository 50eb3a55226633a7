"""Finds the objects and globals that the code of a part may read, and compares their contents."""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable, Iterator, Mapping
from types import CellType, CodeType, FunctionType, ModuleType
from typing import Any

import torch

from onnx_aot.capture.reuse.alike import Attribute
from onnx_aot.capture.reuse.state import submodules
from onnx_aot.torch_compat import REGISTRIES

__all__ = ["Surroundings"]

_LONGEST = 1000  # containers with more items, such as vocabularies, are compared by length
_VALUES = (bool, int, float, complex, str, bytes, type(None))
_MOST_CALLS = 3  # from a method to a function, and from there to others


class Surroundings:
    """Values outside of modules that alike parts may read.

    A counter that the caller keeps in a configuration or a global, and that a part reads, would
    make the part differ from call to call. What the code can reach is found by names: attributes
    that the parts share, their classes, and the globals, closures and defaults of methods and of
    the functions that these call. Functions of torch and of Python's library are not followed.

    Args:
        module: One of the parts.
        differing: Attributes that parts do not share.
    """

    def __init__(self, module: torch.nn.Module, differing: frozenset[Attribute]) -> None:
        self._objects: dict[int, Any] = {}
        self._variables: dict[tuple[int, str], Callable[[], Any]] = {}
        self._calls: dict[Any, int] = {}  # fewest calls to each function and class
        for path, part in submodules(module):
            for name, value in vars(part).items():
                if name not in REGISTRIES and (path, name) not in differing:
                    self._note(value, 0)
            self._note_class(type(part), 0)

    def _note(self, value: Any, calls: int) -> None:
        if isinstance(value, FunctionType):
            self._note_function(value, calls + 1)
        elif isinstance(value, type):
            self._note_class(value, calls + 1)
        elif isinstance(value, (list, dict, set)) or _has_attributes(value):
            self._objects[id(value)] = value

    def _note_class(self, kind: type, calls: int) -> None:
        for base in kind.__mro__:
            if _is_of_library(base.__module__) or not self._is_nearer(base, calls):
                continue
            for name, value in vars(base).items():
                function = getattr(value, "__func__", getattr(value, "fget", value))
                if isinstance(function, FunctionType):
                    self._note_function(function, calls)
                elif name[:2] != "__":
                    self._note_variable(vars(base), name)

    def _note_function(self, function: FunctionType, calls: int) -> None:
        if _is_of_library(function.__module__ or "") or not self._is_nearer(function, calls):
            return
        for cell in function.__closure__ or ():
            self._variables[id(cell), ""] = functools.partial(_contents, cell)
            self._note(_contents(cell), calls)
        for value in (*(function.__defaults__ or ()), *(function.__kwdefaults__ or {}).values()):
            self._note(value, calls)
        names = set(_names_in(function.__code__))
        spaces: list[Mapping[str, Any]] = [function.__globals__]
        for name in names & function.__globals__.keys():
            value = function.__globals__[name]
            if isinstance(value, ModuleType) and not _is_of_library(value.__name__):
                spaces.append(vars(value))
        for space in spaces:
            for name in names & space.keys():
                self._note_variable(space, name)
                if isinstance(space[name], (FunctionType, type)):
                    self._note(space[name], calls)

    def _is_nearer(self, code: Any, calls: int) -> bool:
        """True if fewer calls lead to a function or class than to where it was met before."""
        if calls >= self._calls.get(code, _MOST_CALLS + 1):
            return False
        self._calls[code] = calls
        return True

    def _note_variable(self, space: Mapping[str, Any], name: str) -> None:
        self._variables[id(space), name] = functools.partial(space.get, name, _ABSENT)

    def read(self) -> dict[Any, Any]:
        """The values now, to be compared with those at another time."""
        found: dict[Any, Any] = {key: _summarize(value) for key, value in self._objects.items()}
        for place, value in self._variables.items():
            found[place] = _summarize(value())
        return found


_ABSENT = object()


def _contents(cell: CellType) -> Any:
    try:
        return cell.cell_contents
    except ValueError:  # not assigned yet
        return _ABSENT


def _is_of_library(module: str) -> bool:
    """True for modules of torch, and of Python's own library."""
    root = module.partition(".")[0]
    return root in ("torch", "onnx_aot") or root in sys.stdlib_module_names


def _names_in(code: CodeType) -> Iterator[str]:
    yield from code.co_names
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield from _names_in(constant)


def _has_attributes(value: Any) -> bool:
    return hasattr(value, "__dict__") and not isinstance(value, (ModuleType, torch.Tensor))


class _Same:
    """Equal to itself alone; keeps the object, so that no other gets its id."""

    def __init__(self, value: Any) -> None:
        self._value = value

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Same) and self._value is other._value

    def __hash__(self) -> int:
        return id(self._value)


def _summarize(value: Any, depth: int = 3) -> Any:
    if isinstance(value, _VALUES):
        return (type(value).__name__, repr(value))
    if isinstance(value, (dict, list, tuple, set)):
        if len(value) > _LONGEST or not depth:
            return (_Same(value), len(value))
        if isinstance(value, dict):
            return {_key(key): _summarize(item, depth - 1) for key, item in value.items()}
        if isinstance(value, set):
            return {_key(item) for item in value}
        return [_summarize(item, depth - 1) for item in value]
    if depth > 1 and _has_attributes(value) and not isinstance(value, (type, FunctionType)):
        held = {n: item for n, item in vars(value).items() if n not in REGISTRIES}
        return (_Same(value), {n: _summarize(item, depth - 2) for n, item in held.items()})
    return _Same(value)


def _key(value: Any) -> Any:
    return value if isinstance(value, _VALUES) else _Same(value)
