"""Compares the attributes that the paths of a model leave changed."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any

import torch

from onnx_aot.capture.error_hints import UnjoinableError
from onnx_aot.capture.module_state import Change
from onnx_aot.pytrees.containers import has_parts
from onnx_aot.torch_compat import pytree

__all__ = ["Assignments"]

_COMPUTED = (torch.Tensor, torch.SymInt, torch.SymFloat, torch.SymBool)
_DELETED = object()
_FIX = (
    "use a local variable; or, for state, register a buffer and write to it, self.name.copy_(value)"
)


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
    """

    def __init__(self) -> None:
        self._first: dict[str, _Value] | None = None

    def add_path(self, changes: Sequence[Change]) -> None:
        """Tests that a path leaves what the other paths left.

        Args:
            changes: The attributes that the path changed, not yet restored.

        Raises:
            UnjoinableError: It leaves another value than the first path, or it assigns a
                parameter, buffer or submodule.
        """
        registered = [change.path for change in changes if change.is_registered]
        if registered:
            raise UnjoinableError(
                f"forward assigns {_list_names(registered)} instead of writing to it", _FIX
            )
        found = {change.path: _read_value(change) for change in changes}
        first = self._first = found if self._first is None else self._first
        different = [
            path
            for path in {**first, **found}
            if path not in first or path not in found or not _is_same(first[path], found[path])
        ]
        if different:
            raise UnjoinableError(
                f"the sides leave {_list_names(different)} with different values, and the ONNX "
                "model would not keep them for the next call",
                _FIX,
            )

    def repeat(self) -> None:
        """Assigns tensors again, because torch warns of assigned tensors at the end of a call."""
        for value in (self._first or {}).values():
            if any(isinstance(leaf, torch.Tensor) for leaf in value.leaves):
                assigned = pytree.tree_unflatten(value.leaves, value.spec)
                vars(value.change.owner)[value.change.name] = assigned


def _read_value(change: Change) -> _Value:
    value = vars(change.owner).get(change.name, _DELETED)
    return _Value(change, *pytree.tree_flatten(value))


def _is_same(value: _Value, other: _Value) -> bool:
    """True if two paths leave equal values. Values that they compute count as equal."""
    return value.spec == other.spec and all(map(_is_same_leaf, value.leaves, other.leaves))


def _is_same_leaf(leaf: Any, other: Any) -> bool:
    if isinstance(leaf, _COMPUTED) or isinstance(other, _COMPUTED):
        return isinstance(leaf, _COMPUTED) and isinstance(other, _COMPUTED)
    if isinstance(leaf, (bool, int, float, str)):
        return type(leaf) is type(other) and bool(leaf == other)
    has_contents = isinstance(leaf, set) or has_parts(leaf)  # which may be others all the same
    return leaf is other and not has_contents


def _list_names(paths: Sequence[str]) -> str:
    return ", ".join(f"self.{path}" for path in paths[:3]) + " and others" * (len(paths) > 3)
