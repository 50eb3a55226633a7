"""Namespaces in which the code of a model looks up its functions."""

from __future__ import annotations

import inspect
import sys
from collections.abc import Collection, Iterator, Sequence
from types import FunctionType, ModuleType
from typing import Any

import torch

__all__ = ["namespaces_of_files", "namespaces_of_packages", "reachable_namespaces"]

Namespace = dict[str, Any]

_OTHERS = frozenset({"torch", __name__.partition(".")[0], *sys.stdlib_module_names, ""})


def namespaces_of_packages(model: torch.nn.Module) -> list[Namespace]:
    """Returns the namespaces of loaded modules of the packages that the model is written in.

    These packages define its classes and its ``forward``; torch and the standard library do not
    count.
    """
    packages = frozenset(map(_package, _written_in(model))) - _OTHERS
    found = [vars(module) for module in _loaded_modules(packages).values()] if packages else []
    found += _unlisted_namespaces(model, packages)
    # By id, since some modules are loaded under two names.
    return list({id(names): names for names in found}.values())


def namespaces_of_files(files: Collection[str]) -> list[Namespace]:
    """Returns the namespaces of loaded modules whose code is in one of the files.

    Attributes of modules are not read: some packages import others when one is.
    """
    modules = list(sys.modules.values()) if files else []
    spaces = [vars(module) for module in modules if isinstance(module, ModuleType)]
    return [names for names in spaces if names.get("__file__") in files]


def reachable_namespaces(
    model: torch.nn.Module, known: Sequence[Namespace] | None = None
) -> list[Namespace]:
    """Returns these namespaces, and those of functions that the model's modules refer to.

    A function that is imported from another package is looked up in the module that defines it, and
    so on. Modules of torch and the standard library do not count.

    Args:
        model: The model.
        known: What ``namespaces_of_packages`` returns, if it has been called.
    """
    known = namespaces_of_packages(model) if known is None else known
    found = {id(names): names for names in known}
    own = _written_in(model)
    todo = [names for names in known if names.get("__name__") in own]
    while todo:
        for names in _namespaces_of_functions(todo.pop()):
            if id(names) not in found:
                found[id(names)] = names
                todo.append(names)
    return list(found.values())


def _unlisted_namespaces(model: torch.nn.Module, packages: Collection[str]) -> list[Namespace]:
    """Returns those of code that ``sys.modules`` does not list.

    Such code was run by ``exec``, or by ``importlib.util.module_from_spec`` as its documentation
    shows.
    """
    # Reading the ``forward`` of a scripted class fails.
    found = {inspect.getattr_static(type(part), "forward", None) for part in model.modules()}
    functions = [inspect.unwrap(f) for f in (*found, model.forward) if isinstance(f, FunctionType)]
    names = [f.__globals__ for f in functions if isinstance(f, FunctionType)]
    return [n for n in names if _package(n.get("__name__") or "") in packages]


_Loaded = tuple[list[str], dict[str, ModuleType]]  # all modules, and those of the packages
_loaded: dict[frozenset[str], _Loaded] = {}  # of the last packages that were asked for


def _loaded_modules(packages: frozenset[str]) -> dict[str, ModuleType]:
    """Returns the loaded modules of packages by name; finding them among thousands takes long."""
    names = list(sys.modules)
    before, known = _loaded.get(packages, ([], {}))
    if before == names and all(sys.modules.get(name) is known[name] for name in known):
        return known
    found = {
        name: module
        for name in names
        if _package(name) in packages and isinstance(module := sys.modules.get(name), ModuleType)
    }
    _loaded.clear()
    _loaded[packages] = (names, found)
    return found


def _written_in(model: torch.nn.Module) -> set[str]:
    names = {type(part).__module__ for part in model.modules()}
    forward = inspect.unwrap(model.forward)
    return {*names, getattr(forward, "__module__", None) or ""}


def _namespaces_of_functions(names: Namespace) -> Iterator[Namespace]:
    for value in list(names.values()):
        if isinstance(value, FunctionType) and _package(value.__module__ or "") not in _OTHERS:
            yield value.__globals__


def _package(module: str) -> str:
    return module.partition(".")[0]
