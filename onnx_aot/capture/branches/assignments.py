"""Compares the attributes that the paths of a model leave changed."""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Collection, Iterable, Iterator, Sequence
from typing import Any

import torch

from onnx_aot.capture.attribute_reads import reads_seen
from onnx_aot.capture.error_hints import UnjoinableError
from onnx_aot.capture.module_state import Change
from onnx_aot.pytrees.containers import has_parts
from onnx_aot.torch_compat import pytree, restored

__all__ = ["Assignments", "LeftDifferentError"]

_COMPUTED = (torch.Tensor, torch.SymInt, torch.SymFloat, torch.SymBool)
_DELETED = object()
_FIX = (
    "use a local variable; or, for state, register a buffer and write to it, self.name.copy_(value)"
)


class LeftDifferentError(UnjoinableError):
    """Paths leave attributes with different values.

    Attributes:
        changes: The attributes.
    """

    def __init__(self, changes: Sequence[Change]) -> None:
        super().__init__(
            f"the sides leave {_list_names([change.path for change in changes])} with different "
            "values, and the ONNX model would not keep them for the next call",
            _FIX,
        )
        self.changes = changes


@dataclasses.dataclass(frozen=True)
class _Value:
    """The value that a path leaves in an attribute, flattened because it is restored after it."""

    change: Change
    leaves: list[Any]
    spec: Any


class Assignments:
    """Attributes that the paths of one call of ``forward`` leave changed.

    They are restored before the next path. A cache that each path fills is no harm: the exported
    model computes its contents at every call. But the model cannot remember which way it went.

    Args:
        watched: Attributes that may differ, unless a path reads one before it sets it.
    """

    def __init__(self, watched: Collection[Change] = ()) -> None:
        self.watched = {(id(change.owner), change.name): change for change in watched}
        self._read: set[tuple[int, str]] = set()
        self._first: dict[str, _Value] | None = None
        self._is_paused = False

    @contextlib.contextmanager
    def paused(self) -> Iterator[None]:
        """Lets this package read attributes, which is not the model."""
        self._is_paused = True
        try:
            yield
        finally:
            self._is_paused = False

    @contextlib.contextmanager
    def watch(self) -> Iterator[None]:
        """Notes which of the watched attributes code reads before it sets them."""
        unset = {(id(vars(change.owner)), change.name): key for key, change in self.watched.items()}
        if not unset:
            yield
            return
        module = torch.nn.Module
        has_own = {
            id(vars(change.owner))
            for change in self.watched.values()
            if type(change.owner).__getattribute__ is not module.__getattribute__
        }
        self._read.update(key for place, key in unset.items() if place[0] in has_own)
        setattr_of_torch = module.__setattr__

        def see(place: int, name: str) -> None:
            if self._is_paused:
                return
            if (place, name) in unset:
                self._read.add(unset[place, name])
            elif name == "__dict__":
                self._read.update(key for (held, _), key in unset.items() if held == place)

        def assign(self_: Any, name: str, value: Any) -> None:
            setattr_of_torch(self_, name, value)
            unset.pop((id(object.__getattribute__(self_, "__dict__")), name), None)

        def undo() -> None:
            if module.__setattr__ is assign:
                module.__setattr__ = setattr_of_torch  # type: ignore[method-assign]

        names = {name for _, name in unset}
        with reads_seen(names, see), restored(undo):
            module.__setattr__ = assign  # type: ignore[method-assign,assignment]
            yield

    def add_path(self, changes: Sequence[Change]) -> None:
        """Tests that a path leaves what the other paths left.

        Args:
            changes: The attributes that the path changed, not yet restored.

        Raises:
            LeftDifferentError: It leaves another value than the first path.
            UnjoinableError: It assigns a parameter, buffer or submodule, except that each path may
                fill a buffer that is None.
        """
        _refuse_registered(c for c in changes if c.is_registered and not c.is_filled)
        read = [self.watched[key] for key in self.watched if key in self._read]
        if read:
            raise LeftDifferentError(read)
        found = {
            change.path: _read_value(change)
            for change in changes
            if (id(change.owner), change.name) not in self.watched
        }
        first = self._first = found if self._first is None else self._first
        different = [
            (first.get(path) or found[path]).change
            for path in {**first, **found}
            if path not in first or path not in found or not _is_same(first[path], found[path])
        ]
        _refuse_registered(change for change in different if change.is_filled)
        if different:
            raise LeftDifferentError(different)

    def repeat(self) -> None:
        """Assigns tensors again, because torch warns of assigned tensors at the end of a call."""
        for value in (self._first or {}).values():
            is_tensor = any(isinstance(leaf, torch.Tensor) for leaf in value.leaves)
            if is_tensor and not value.change.is_filled:
                assigned = pytree.tree_unflatten(value.leaves, value.spec)
                vars(value.change.owner)[value.change.name] = assigned


def _refuse_registered(changes: Iterable[Change]) -> None:
    paths = [change.path for change in changes]
    if paths:
        raise UnjoinableError(
            f"forward assigns {_list_names(paths)} instead of writing to it", _FIX
        )


def _read_value(change: Change) -> _Value:
    return _Value(change, *pytree.tree_flatten(change.read(_DELETED)))


def _is_same(value: _Value, other: _Value) -> bool:
    """True if two paths leave equal values. Values that they compute count as equal."""
    return value.spec == other.spec and _are_alike(value.leaves, other.leaves, set())


def _are_alike(one: Any, other: Any, compared: set[tuple[int, int]]) -> bool:
    """True if two objects hold the same, but for what was computed.

    Args:
        one: An object.
        other: The other one.
        compared: Pairs of objects that are being compared, which may hold themselves.
    """
    if isinstance(one, _COMPUTED) or isinstance(other, _COMPUTED):
        return isinstance(one, _COMPUTED) and isinstance(other, _COMPUTED)
    modules = isinstance(one, torch.nn.Module) and isinstance(other, torch.nn.Module)
    if str(type(one)) != str(type(other)) if modules else type(one) is not type(other):
        return False
    if isinstance(one, (bool, int, float, str)):
        return bool(one == other)
    if (id(one), id(other)) in compared:
        return True
    compared.add((id(one), id(other)))
    if modules:  # a traced model gives out objects of torch that stand for its modules
        return vars(one) is vars(other) or _are_alike(vars(one), vars(other), compared)
    if isinstance(one, (list, tuple)):
        same_length = len(one) == len(other)
        return same_length and all(
            _are_alike(*pair, compared) for pair in zip(one, other, strict=True)
        )
    if type(one) is dict:
        same_keys = list(one) == list(other)
        return same_keys and all(_are_alike(one[key], other[key], compared) for key in one)
    if one is other:
        return not (isinstance(one, set) or has_parts(one))  # which may have held something else
    states = _read_state(one), _read_state(other)
    return None not in states and _are_alike(*states, compared)


def _read_state(value: Any) -> list[Any] | None:
    """What an object is made of; None for objects that do not say so."""
    try:
        made, given, *rest = value.__reduce_ex__(2)
    except Exception:  # a function, or an object of compiled code
        return None
    state, items, pairs = (*rest, None, None, None)[:3]
    return [made, given, state, list(items or ()), list(pairs or ())]


def _list_names(paths: Sequence[str]) -> str:
    return ", ".join(f"self.{path}" for path in paths[:3]) + " and others" * (len(paths) > 3)
