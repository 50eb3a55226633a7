"""Finds what values of two paths have in common, and passes them from one graph to another.

A spec tells which parts of a value are leaves that a branch or loop must pass on, and their types.
``join`` finds the spec that fits two values, ``flatten`` takes a value apart by it, and ``build``
puts one together again.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from typing import Any

import torch

from onnx_aot import torch_compat
from onnx_aot.capture.scripted.recorder import Recorder
from onnx_aot.capture.scripted.values import Cell, Leaf, Maybe, Uninitialized
from onnx_aot.errors import CaptureError
from onnx_aot.torch_compat import aten
from onnx_aot.torch_ops.scripted_ops import SequenceVal, sequence_construct

__all__ = [
    "IncompatibleError",
    "Same",
    "Spec",
    "as_sequence",
    "build",
    "describe",
    "flatten",
    "join",
    "same",
    "tensors",
    "vals",
    "width",
]


class IncompatibleError(CaptureError):
    """Two paths give values that no single value can represent."""


@dataclasses.dataclass(frozen=True)
class Spec:
    """Base class of the specs below."""


@dataclasses.dataclass(frozen=True, eq=False)
class Same(Spec):
    """One value on all paths, which is not passed on."""

    value: Any

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Same) and same(self.value, other.value)

    __hash__ = None  # type: ignore[assignment]


@dataclasses.dataclass(frozen=True, eq=False)
class Tensor(Spec):
    """A tensor; None for sizes that differ."""

    dtype: torch.dtype
    shape: tuple[Any, ...]

    def __eq__(self, other: object) -> bool:
        return (
            isinstance(other, Tensor)
            and self.dtype == other.dtype
            and len(self.shape) == len(other.shape)
            and all(map(_same_size, self.shape, other.shape))
        )

    __hash__ = None  # type: ignore[assignment]


@dataclasses.dataclass(frozen=True)
class Number(Spec):
    """An int, float or bool."""

    kind: type


@dataclasses.dataclass(frozen=True)
class Sequence(Spec):
    """A list of tensors of any length; ``element`` is None if there was no element."""

    element: Spec | None


@dataclasses.dataclass(frozen=True)
class Numbers(Spec):
    """A list of numbers of any length, which is a 1-D tensor."""

    kind: type


@dataclasses.dataclass(frozen=True)
class Group(Spec):
    """A tuple, list or dict, whose parts are passed on one by one."""

    kind: type
    items: tuple[Spec, ...]
    keys: tuple[Any, ...] = ()
    element: str = ""


@dataclasses.dataclass(frozen=True)
class Optional(Spec):
    """A value that may be None."""

    inner: Spec


@dataclasses.dataclass(frozen=True)
class Nothing(Spec):
    """A value that nobody reads."""


_KINDS: dict[type, type] = {torch.SymInt: int, torch.SymFloat: float, torch.SymBool: bool}
_DTYPES: dict[type, torch.dtype] = {int: torch.int64, float: torch.float64, bool: torch.bool}


def same(left: Any, right: Any) -> bool:
    """True if two values are the same object or equal constants."""
    if left is right:
        return True
    if isinstance(left, Leaf) and isinstance(right, Leaf):
        # an operator that writes in place returns the tensor that it was given
        return isinstance(left.val, torch.Tensor) and left.val is right.val
    if isinstance(left, tuple) and isinstance(right, tuple):
        return len(left) == len(right) and all(map(same, left, right))
    plain = (bool, int, float, str, torch.dtype, torch.device)
    return isinstance(left, plain) and type(left) is type(right) and left == right


def _same_size(left: Any, right: Any) -> bool:
    if left is None or right is None:
        return left is right
    if isinstance(left, int) and isinstance(right, int):
        return left == right
    return bool(_expression(left) == _expression(right))


def _expression(size: Any) -> Any:
    return torch_compat.symbolic_expression(size) if isinstance(size, torch.SymInt) else size


def describe(value: Any) -> Spec:
    """The spec of one value."""
    if isinstance(value, Leaf):
        if isinstance(value.val, torch.Tensor):
            return Tensor(value.val.dtype, tuple(value.val.shape))
        if isinstance(value.val, SequenceVal):
            element = value.val.element
            return Sequence(Tensor(element.dtype, tuple(element.shape)))
        return Number(_KINDS[type(value.val)])
    if isinstance(value, Cell):
        return _describe_cell(value)
    if isinstance(value, tuple):
        return Group(tuple, tuple(map(describe, value)))
    if isinstance(value, Maybe):
        return Optional(describe(value.value))
    if isinstance(value, Uninitialized):
        return Nothing()
    return Same(value)


def _describe_cell(cell: Cell) -> Spec:
    content = cell.content
    if isinstance(content, list):
        return Group(list, tuple(map(describe, content)), (), cell.element)
    if isinstance(content, dict):
        items = tuple(map(describe, content.values()))
        return Group(dict, items, tuple(content), cell.element)
    if isinstance(content.val, SequenceVal):
        return describe(content)
    kinds = {dtype: kind for kind, dtype in _DTYPES.items()}
    return Numbers(kinds[content.val.dtype])


def join(left: Spec, right: Spec) -> Spec:
    """The spec of a value that may be either.

    Raises:
        IncompatibleError: There is none.
    """
    if left == right:
        return left
    for one, other in ((left, right), (right, left)):
        if isinstance(one, Nothing):
            return _with_any_size(other)
        if isinstance(one, Same) and one.value is None:
            return other if isinstance(other, Optional) else Optional(_with_any_size(other))
        if isinstance(one, Optional):
            inner = other.inner if isinstance(other, Optional) else other
            return Optional(join(one.inner, inner))
        if isinstance(one, Sequence):
            return Sequence(_join_elements([one, other]))
        if isinstance(one, Numbers):
            return Numbers(_number_kind(_elements(other)) or one.kind)
    kind = _number_kind([left, right])
    if kind is not None:
        return Number(kind)
    if isinstance(left, Tensor) and isinstance(right, Tensor):
        return _join_tensors(left, right)
    if isinstance(left, Group) and isinstance(right, Group) and left.kind is right.kind:
        if len(left.items) == len(right.items) and left.keys == right.keys:
            items = tuple(map(join, left.items, right.items))
            return Group(left.kind, items, left.keys, left.element)
        if left.kind is list:
            return _join_lists(left, right)
    raise IncompatibleError(f"it is {_show(left)} on one path and {_show(right)} on another")


def _with_any_size(spec: Spec) -> Spec:
    """Replaces sizes that are not numbers by None; they are 0 in a stand-in for a missing value."""
    if isinstance(spec, Tensor):
        return Tensor(spec.dtype, tuple(s if type(s) is int else None for s in spec.shape))
    if isinstance(spec, Group):
        return dataclasses.replace(spec, items=tuple(map(_with_any_size, spec.items)))
    return spec


def _join_tensors(left: Tensor, right: Tensor) -> Tensor:
    if left.dtype != right.dtype or len(left.shape) != len(right.shape):
        raise IncompatibleError(f"it is {_show(left)} on one path and {_show(right)} on another")
    pairs = zip(left.shape, right.shape, strict=True)
    return Tensor(left.dtype, tuple(a if _same_size(a, b) else None for a, b in pairs))


def _number_kind(specs: list[Spec]) -> type | None:
    kinds = {
        spec.kind if isinstance(spec, Number) else type(getattr(spec, "value", None))
        for spec in specs
    }
    kinds = {int if issubclass(kind, int) and kind is not bool else kind for kind in kinds}
    only = kinds.pop() if len(kinds) == 1 else None
    return only if only in _DTYPES else None


def _join_lists(left: Group, right: Group) -> Spec:
    items = [*left.items, *right.items]
    kind = _number_kind(items)
    if kind is not None:
        return Numbers(kind)
    return Sequence(_join_elements([left, right]))


def _elements(spec: Spec) -> list[Spec]:
    if isinstance(spec, Numbers):
        return [Number(spec.kind)]
    if isinstance(spec, Sequence):
        return [] if spec.element is None else [spec.element]
    if isinstance(spec, Group) and spec.kind is list:
        return list(spec.items)
    raise IncompatibleError(f"it is a list on one path and {_show(spec)} on another")


def _join_elements(specs: list[Spec]) -> Spec | None:
    found: Spec | None = None
    for element in (item for spec in specs for item in _elements(spec)):
        if not isinstance(element, Tensor):
            raise IncompatibleError(
                f"a list whose length depends on the inputs holds {_show(element)}; "
                "tensors and numbers can be held"
            )
        found = element if found is None else join(found, element)
    return found


def _show(spec: Spec) -> str:
    if isinstance(spec, Tensor):
        sizes = ", ".join("?" if size is None else str(size) for size in spec.shape)
        return f"a tensor {str(spec.dtype).removeprefix('torch.')}[{sizes}]"
    if isinstance(spec, Same):
        return repr(spec.value)
    if isinstance(spec, Number):
        return f"a number of type {spec.kind.__name__}"
    if isinstance(spec, Group):
        return f"a {spec.kind.__name__} of {len(spec.items)}"
    return {"Sequence": "a list of tensors", "Numbers": "a list of numbers"}.get(
        type(spec).__name__, "None"
    )


# --- passing values on ---------------------------------------------------------------------------


def flatten(spec: Spec, value: Any, recorder: Recorder) -> list[Any]:
    """The leaves and numbers by which a value is passed on, in the current scope."""
    if isinstance(spec, (Same, Nothing)):
        return []
    missing = isinstance(value, Uninitialized)
    if isinstance(spec, Optional):
        if missing or value is None:
            return [False, *flatten(spec.inner, Uninitialized(), recorder)]
        if isinstance(value, Maybe):
            return [value.present, *flatten(spec.inner, value.value, recorder)]
        return [True, *flatten(spec.inner, value, recorder)]
    if isinstance(spec, Group):
        if missing:
            items: Any = [value] * len(spec.items)
        else:
            items = value.content if isinstance(value, Cell) else value
            items = [items[key] for key in spec.keys] if spec.keys else items
        parts = zip(spec.items, items, strict=True)
        return [leaf for item, part in parts for leaf in flatten(item, part, recorder)]
    if isinstance(spec, Number):
        return [spec.kind(0) if missing else value]
    if isinstance(spec, Tensor):
        if missing:
            sizes = [size if type(size) is int else 0 for size in spec.shape]
            return [recorder.call(aten.zeros.default, sizes, dtype=spec.dtype)]
        return [value]
    given = Cell([]) if missing else value
    if isinstance(spec, Numbers):
        return [as_tensor(given, _DTYPES[spec.kind], recorder)]
    assert isinstance(spec, Sequence)
    return [as_sequence(given, recorder, spec.element)]


def as_sequence(cell: Any, recorder: Recorder, element: Any = None) -> Leaf:
    """Converts a list of tensors to a leaf."""
    content = cell.content if isinstance(cell, Cell) else cell
    if isinstance(content, Leaf):
        return content
    for item in content:
        element = describe(item) if element is None else join(element, describe(item))
    if not isinstance(element, Tensor):
        raise IncompatibleError(
            "a list whose length depends on the inputs has no tensor of which the type is known"
        )
    val = SequenceVal(vals(element, recorder)[0])
    leaf: Leaf = recorder.record(sequence_construct, val, list(content), element.dtype)
    return leaf


def as_tensor(cell: Any, dtype: torch.dtype, recorder: Recorder) -> Leaf:
    """Converts a list of numbers to a 1-D tensor."""
    content = cell.content if isinstance(cell, Cell) else cell
    if isinstance(content, Leaf):
        return content
    if not content:
        empty: Leaf = recorder.call(aten.zeros.default, [0], dtype=dtype)
        return empty
    scalars = [recorder.call(aten.scalar_tensor.default, n, dtype=dtype) for n in content]
    stacked: Leaf = recorder.call(aten.stack.default, scalars)
    return stacked


def width(spec: Spec) -> int:
    """Number of leaves by which a value of the spec is passed on."""
    if isinstance(spec, (Same, Nothing)):
        return 0
    if isinstance(spec, Group):
        return sum(map(width, spec.items))
    return 1 + width(spec.inner) if isinstance(spec, Optional) else 1


def vals(spec: Spec, recorder: Recorder) -> list[Any]:
    """Recorded values for the leaves, with a new symbol for each size that differs."""
    if isinstance(spec, (Same, Nothing)):
        return []
    if isinstance(spec, Optional):
        return [recorder.new_symbol(bool), *vals(spec.inner, recorder)]
    if isinstance(spec, Group):
        return [val for item in spec.items for val in vals(item, recorder)]
    if isinstance(spec, Number):
        return [recorder.new_symbol(spec.kind)]
    if isinstance(spec, Tensor):
        sizes = [recorder.new_size() if size is None else size for size in spec.shape]
        return [recorder.empty(sizes, spec.dtype)]
    if isinstance(spec, Numbers):
        return [recorder.empty([recorder.new_size()], _DTYPES[spec.kind])]
    assert isinstance(spec, Sequence)
    if spec.element is None:
        raise IncompatibleError("a list whose length depends on the inputs never has an element")
    return [SequenceVal(vals(spec.element, recorder)[0])]


def tensors(value: Any) -> Iterator[torch.Tensor]:
    """Recorded values of the tensors in a value."""
    if isinstance(value, Leaf):
        if isinstance(value.val, torch.Tensor):
            yield value.val
    elif isinstance(value, Maybe):
        yield from tensors(value.value)
    elif isinstance(value, Cell):
        yield from tensors(value.content)
    elif isinstance(value, (list, tuple)):
        for item in value:
            yield from tensors(item)
    elif isinstance(value, dict):
        yield from tensors(list(value.values()))


def build(spec: Spec, leaves: Iterator[Any]) -> Any:
    """Rebuilds a value from leaves; the inverse of ``flatten``."""
    if isinstance(spec, Same):
        return spec.value
    if isinstance(spec, Nothing):
        return Uninitialized()
    if isinstance(spec, Optional):
        present = next(leaves)
        return Maybe(present, build(spec.inner, leaves))
    if isinstance(spec, Group):
        items = [build(item, leaves) for item in spec.items]
        if spec.kind is tuple:
            return tuple(items)
        if spec.kind is dict:
            return Cell(dict(zip(spec.keys, items, strict=True)), spec.element)
        return Cell(items, spec.element)
    leaf = next(leaves)
    if isinstance(spec, Numbers):
        return Cell(leaf, spec.kind.__name__)
    return Cell(leaf) if isinstance(spec, Sequence) else leaf
