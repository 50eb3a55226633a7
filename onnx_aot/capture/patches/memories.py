"""Lets a model keep what it computes in caches, which are without it after the capture.

A function under ``functools.lru_cache``, or one that fills a dict of its module, a default
argument, a global variable or an attribute of an object, would hand its fake tensors to the next
call of the model. In a module's attributes, ``module_state`` finds them.
"""

from __future__ import annotations

import ast
import dataclasses
import functools
import inspect
import linecache
import operator
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from types import FrameType, FunctionType, ModuleType
from typing import Any

import torch

from onnx_aot.errors import PACKAGE
from onnx_aot.metadata.user_code import is_users_file
from onnx_aot.torch_compat import (
    ABSENT,
    FakeTensor,
    Patch,
    Place,
    Settings,
    pytree,
    symbolic_expression,
)

__all__ = ["MEMORIES"]

_FUNCTION: Any = type(functools.lru_cache(int))


@dataclasses.dataclass(frozen=True)
class _Results:
    """Holds memoized functions; those that have computed anything are emptied afterwards.

    Each is there with the number of results that it had computed before the capture.
    """

    counted: list[tuple[Any, int]]

    def own(self) -> Any:
        """The functions."""
        return [function for function, _ in self.counted]

    value = own

    def put(self, value: Any) -> None:  # noqa: ARG002
        """Empties functions."""
        for function, misses in self.counted:
            if function.cache_info().misses != misses:
                function.cache_clear()


@dataclasses.dataclass(frozen=True)
class _Memoized:
    """The places of a memoized function.

    Attributes:
        function: The function.
        entries: Namespaces that have it, each with the name there.
        members: Classes that have it, each with the name and what is there, perhaps a
            ``staticmethod`` around it.
    """

    function: Any
    entries: list[tuple[dict[str, Any], str]] = dataclasses.field(default_factory=list)
    members: list[tuple[type, str, Any]] = dataclasses.field(default_factory=list)

    def own(self) -> Any:
        """The function."""
        return self.function

    value = own

    def put(self, value: Any) -> None:
        """Replaces the function everywhere or restores it."""
        for names, name in self.entries:
            names[name] = value
        for cls, name, own in self.members:
            kind = type(own)
            made = kind(value) if kind in (staticmethod, classmethod) else value
            setattr(cls, name, own if value is self.function else made)


def _find_results(settings: Settings) -> Iterator[Place]:
    counted = [(one.function, one.function.cache_info().misses) for one in settings.once(_memoized)]
    if counted:
        yield _Results(counted)


def _find_functions(settings: Settings) -> Iterator[Place]:
    """Finds memoized functions that take arguments; packages have many that take none."""
    for one in settings.once(_memoized):
        code = getattr(one.function.__wrapped__, "__code__", None)
        if code is None or code.co_argcount + code.co_kwonlyargcount or code.co_flags & _TAKES_MORE:
            yield one


_TAKES_MORE = inspect.CO_VARARGS | inspect.CO_VARKEYWORDS


def _memoized(settings: Settings) -> list[_Memoized]:
    """Finds memoized functions in the namespaces of the model, and in the classes of its modules.

    Packages import one function into hundreds of namespaces; it is one place.
    """
    found: dict[int, _Memoized] = {}
    for names, name, value in settings.once(_survey).memoized:
        found.setdefault(id(value), _Memoized(value)).entries.append((names, name))
    for cls in _classes(settings.module):
        for name, value in list(vars(cls).items()):
            function = getattr(value, "__func__", value)  # of a staticmethod or classmethod
            if type(function) is _FUNCTION:
                memory = found.setdefault(id(function), _Memoized(function))
                memory.members.append((cls, name, value))
    return list(found.values())


@dataclasses.dataclass
class _Survey:
    """Contents of the namespaces that the code of the model refers to.

    Attributes:
        memoized: Functions under ``lru_cache``, each with its namespace and name.
        tables: Dicts, also those that are default arguments.
        owners: Objects whose class is in one of the namespaces, and classes from the files of the
            model's modules.
    """

    memoized: list[tuple[dict[str, Any], str, Any]] = dataclasses.field(default_factory=list)
    tables: list[dict[Any, Any]] = dataclasses.field(default_factory=list)
    owners: list[Any] = dataclasses.field(default_factory=list)


def _survey(settings: Settings) -> _Survey:
    """Looks through the namespaces once, since packages have thousands of names."""
    survey = _Survey()
    is_owner = settings.once(_make_owner_test)
    own = _own_files(settings)
    passed: set[type] = set()  # types of values of which none is looked for
    for names in settings.reachable_namespaces():
        for name, value in list(names.items()):
            kind = type(value)
            if kind in passed:
                continue
            if kind is type:
                if value.__module__ in own:
                    survey.owners.append(value)
            elif kind is FunctionType:
                if value.__defaults__ or value.__kwdefaults__:
                    survey.tables += _default_dicts(value)
            elif kind is dict:
                if not name.startswith("__"):
                    survey.tables.append(value)
            elif kind is _FUNCTION:
                survey.memoized.append((names, name, value))
            elif is_owner(value):
                survey.owners.append(value)
            elif not issubclass(kind, type):
                passed.add(kind)
    return survey


def _classes(model: torch.nn.Module) -> set[type]:
    return {cls for part in model.modules() for cls in type(part).__mro__}


def _without_sizes(original: Any, settings: Settings) -> Callable[..., Any]:
    """Calls the function itself for symbolic sizes, which no cache takes for a key."""
    function = original.__wrapped__

    @functools.wraps(function)
    def call(*args: Any, **kwargs: Any) -> Any:
        leaves = pytree.tree_leaves((args, kwargs))
        return (function if any(map(_is_size, leaves)) else original)(*args, **kwargs)

    for name in ("cache_info", "cache_clear", "cache_parameters"):
        setattr(call, name, getattr(original, name))
    return call


def _is_size(value: Any) -> bool:
    return isinstance(value, (torch.SymInt, torch.SymFloat, torch.SymBool))


def _is_traced_value(value: Any) -> bool:
    return isinstance(value, FakeTensor) or _is_size(value)


@dataclasses.dataclass(frozen=True)
class _Tables:
    """Dicts of Python modules and classes; what tracing has added to them is removed afterwards.

    Each is there with the number of its entries before the capture.
    """

    counted: list[tuple[dict[Any, Any], int]]

    def own(self) -> Any:
        """The dicts."""
        return [table for table, _ in self.counted]

    value = own

    def put(self, value: Any) -> None:  # noqa: ARG002
        """Removes entries with fake tensors."""
        for table, count in self.counted:
            if len(table) != count:
                for key, entry in list(table.items()):
                    if any(map(_is_traced_value, pytree.tree_leaves((key, entry)))):
                        del table[key]


def _find_tables(settings: Settings) -> Iterator[Place]:
    classes = [table for cls in _classes(settings.module) for table in _dicts(vars(cls))]
    yield from _counted([*settings.once(_survey).tables, *classes])


def _counted(tables: Iterable[dict[Any, Any]]) -> Iterator[_Tables]:
    counted = [(table, len(table)) for table in tables]
    if counted:
        yield _Tables(counted)


def _dicts(names: Mapping[str, Any]) -> Iterator[dict[Any, Any]]:
    """Yields dicts in a namespace, and default arguments, which Python keeps from call to call."""
    for name, held in list(names.items()):
        kind = type(held)
        if kind is dict:
            if not name.startswith("__"):
                yield held
        elif kind is FunctionType:
            yield from _default_dicts(held)


def _default_dicts(function: FunctionType) -> Iterable[dict[Any, Any]]:
    return [default for default in _defaults(function) if type(default) is dict]


def _defaults(function: FunctionType) -> Iterable[Any]:
    if function.__kwdefaults__:
        return (*(function.__defaults__ or ()), *function.__kwdefaults__.values())
    return function.__defaults__ or ()


def _files(settings: Settings) -> set[Any]:
    """Names of the modules in which the code of the model looks something up."""
    return {names.get("__name__") for names in settings.reachable_namespaces()}


def _own_files(settings: Settings) -> set[Any]:
    """Names of those that define the classes of the model's modules."""
    return {cls.__module__ for cls in _classes(settings.module)} & settings.once(_files)


def _make_owner_test(settings: Settings) -> Callable[[Any], bool]:
    """Makes a function that tells whether a value is one of ``_Survey.owners``, by its type."""
    files, own = settings.once(_files), _own_files(settings)
    kinds: dict[type, bool | None] = {}  # None for types of classes

    def is_owner(value: Any) -> bool:
        kind = type(value)
        if kind not in kinds:
            keeps = kind.__module__ in files and not issubclass(kind, _NOT_OWNERS)
            kinds[kind] = None if issubclass(kind, type) else keeps
        found = kinds[kind]
        return value.__module__ in own if found is None else found

    return is_owner


def _owners(settings: Settings) -> list[Any]:
    """Those of the namespaces, of the model's modules, and of default arguments of ``forward``."""
    is_owner = settings.once(_make_owner_test)
    functions = vars(type(settings.module)).values()
    held = [each for f in functions if type(f) is FunctionType for each in _defaults(f)]
    for module in settings.module.modules():
        held += list(vars(module).values())
    owners = [*settings.once(_survey).owners, *filter(is_owner, held)]
    found = {id(value): value for value in owners}.values()
    return [each for each in found if isinstance(each, type) or type(_attributes(each)) is dict]


_NOT_OWNERS = (dict, ModuleType, torch.nn.Module, torch.Tensor)


def _attributes(owner: Any) -> Any:
    return getattr(owner, "__dict__", None)


@dataclasses.dataclass(frozen=True)
class _Names:
    """Names in namespaces, objects and classes; traced values in them are what they were before.

    Each namespace, object and class is there with its names before the capture.
    """

    kept: list[tuple[Any, dict[str, Any]]]

    def own(self) -> Any:
        """The namespaces, objects and classes."""
        return [owner for owner, _ in self.kept]

    value = own

    def put(self, value: Any) -> None:
        """Restores the names; ``ABSENT`` lets them change."""
        if value is ABSENT:
            return
        for owner, before in self.kept:
            names = owner if type(owner) is dict else _attributes(owner)
            if len(names) == len(before) and not any(
                map(operator.is_not, list(names.values()), before.values())
            ):
                continue  # as nearly all are, and packages have thousands
            for name, held in list(names.items()):
                if held is not before.get(name) and any(
                    map(_is_traced_value, pytree.tree_leaves(held))
                ):
                    _restore(owner, name, before)


def _restore(owner: Any, name: str, before: dict[str, Any]) -> None:
    """Restores a name without ``__setattr__`` of the owner, which may refuse, as if frozen."""
    if isinstance(owner, type):
        if name in before:
            type.__setattr__(owner, name, before[name])
        else:
            type.__delattr__(owner, name)
        return
    names = owner if type(owner) is dict else _attributes(owner)
    if name in before:
        names[name] = before[name]
    else:
        names.pop(name, None)


def _find_names(settings: Settings) -> Iterator[Place]:
    owners = _owners(settings)
    yield from _counted(table for owner in owners for table in _dicts(vars(owner)))
    namespaces = [(names, dict(names)) for names in settings.reachable_namespaces()]
    yield _Names([*namespaces, *((owner, dict(vars(owner))) for owner in owners)])


def _hash(original: Callable[[Any], int], settings: Settings) -> Callable[[Any], int]:
    """Takes a symbolic size for a key of a dict that the model fills itself.

    Such a dict may have an entry for the size or not: the model computes the same in both cases.
    Other dicts and sets decide what the model computes, ``if n in {8, 16}``, and fix the size.
    """
    keys = set()

    def hash_size(self: torch.SymInt) -> int:
        frame: FrameType | None = sys._getframe(1)
        while frame is not None and frame.f_code.co_filename.startswith(PACKAGE):
            frame = frame.f_back
        expression = symbolic_expression(self)
        # Symbols of another capture have the same names.
        key = hash((id(self.node.shape_env), expression))
        if frame is not None and is_users_file(frame.f_code.co_filename):
            if not _is_memory(frame.f_code.co_filename, frame.f_lineno):
                return original(self)
            keys.add(key)
        elif key not in keys:  # torch compares attributes before and after the capture
            return original(self)
        return hash(int(expression)) if expression.is_Integer else key

    return hash_size


@functools.lru_cache(maxsize=256)
def _is_memory(file: str, line: int) -> bool:
    """True if a line looks a key up in a dict to which the function around it adds entries."""
    try:
        tree = ast.parse("".join(linecache.getlines(file)))
    except SyntaxError:
        return False
    around = [node for node in ast.walk(tree) if _spans(node, line)]
    functions = [node for node in around if isinstance(node, ast.FunctionDef)]
    if not functions:
        return False
    parts = [part for node in around if isinstance(node, ast.expr) for part in ast.walk(node)]
    if any(isinstance(part, _MADE_HERE) for part in parts):
        return False
    filled = {
        ast.unparse(target.value)
        for node in ast.walk(functions[-1])  # the innermost one
        if isinstance(node, (ast.Assign, ast.AnnAssign))
        for target in (node.targets if isinstance(node, ast.Assign) else [node.target])
        if isinstance(target, ast.Subscript)
    }
    return any(table in filled for part in parts for table in _tables_of(part))


_MADE_HERE = (ast.Set, ast.Dict, ast.SetComp, ast.DictComp)


def _spans(node: ast.AST, line: int) -> bool:
    first, last = getattr(node, "lineno", None), getattr(node, "end_lineno", None)
    return first is not None and last is not None and first <= line <= last


def _tables_of(part: ast.AST) -> Iterator[str]:
    """Yields the source of what an expression looks a key up in."""
    if isinstance(part, ast.Compare):
        for operator, table in zip(part.ops, part.comparators, strict=True):
            if isinstance(operator, (ast.In, ast.NotIn)):
                yield ast.unparse(table)
    elif isinstance(part, ast.Subscript):
        yield ast.unparse(part.value)
    elif isinstance(part, ast.Call):
        method = part.func
        if isinstance(method, ast.Attribute) and method.attr in ("get", "setdefault"):
            yield ast.unparse(method.value)


def _is_traced(settings: Settings) -> bool:
    return settings.module is not None and not settings.strict


MEMORIES: tuple[Patch, ...] = (
    Patch(  # before the next ones, which remove such keys
        "torch:SymInt.__hash__",
        _hash,
        "A model that keeps what it computes in a dict, by size, is refused with dynamic sizes.",
        when=lambda settings: settings.dynamic and _is_traced(settings),
        parameters="self",
    ),
    Patch(
        "results of functions under functools.lru_cache in the code of the model",
        lambda original, settings: original,
        "Such a function returns fake tensors after the export.",
        when=_is_traced,
        places=_find_results,
    ),
    Patch(
        "functions under functools.lru_cache in the code of the model",
        _without_sizes,
        "Such a function takes no dynamic size.",
        when=_is_traced,
        places=_find_functions,
    ),
    Patch(
        "dicts of Python modules and classes in which the model keeps what it computes",
        lambda original, settings: original,
        "Such a dict holds fake tensors after the export.",
        when=_is_traced,
        places=_find_tables,
    ),
    Patch(
        "global variables and attributes in which the model keeps what it computes",
        lambda original, settings: ABSENT,
        "Such a variable is a fake tensor after the export.",
        when=_is_traced,
        places=_find_names,
    ),
)
"""Rows for caches."""
