"""Notes what Python code of a part reads and writes besides its arguments and weights."""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Callable, Iterator, Mapping, Set
from typing import Any

import torch

from onnx_aot.capture.attribute_reads import reads_seen
from onnx_aot.capture.module_state import Snapshot
from onnx_aot.capture.python_random import state_of_generators
from onnx_aot.capture.reuse.alike import Attribute, are_equal
from onnx_aot.capture.reuse.exchanges import Own
from onnx_aot.torch_compat import REGISTRIES, registered_in

__all__ = [
    "Attributes",
    "Writes",
    "context_of",
    "reads_watched",
    "submodules",
    "weights_of",
]

_LONGEST = 1000  # containers with more items, such as vocabularies, are compared as objects


def submodules(module: torch.nn.Module) -> Iterator[tuple[str, torch.nn.Module]]:
    """Yields each submodule with its path, the module itself included."""
    yield from module.named_modules(remove_duplicate=False)


class Attributes:
    """Classes and attributes of a part and its submodules, as they were at one time.

    The caller of a part may set an attribute for one call, and set it back afterwards.

    Args:
        module: The part.
    """

    def __init__(self, module: torch.nn.Module) -> None:
        self._held: dict[str, tuple[type, dict[str, Any]]] = {
            path: (type(part), _attributes(part)) for path, part in submodules(module)
        }

    def agree(self, other: Attributes, ignored: Set[Attribute]) -> bool:
        """True if two parts have the same attributes, but for some that may differ."""
        left, right = self._held, other._held
        return left.keys() == right.keys() and all(
            left[path][0] is right[path][0]
            and _agree(left[path][1], right[path][1], {n for p, n in ignored if p == path})
            for path in left
        )


def _attributes(module: torch.nn.Module) -> dict[str, Any]:
    return {n: _copy(value) for n, value in vars(module).items() if n not in REGISTRIES}


def _agree(left: dict[str, Any], right: dict[str, Any], ignored: set[str]) -> bool:
    return all(
        name in left and name in right and are_equal(left[name], right[name])
        for name in left.keys() | right.keys()
        if name not in ignored
    )


def _copy(value: Any, depth: int = 3) -> Any:
    """Copies containers, whose contents may change."""
    kind = type(value)
    if kind not in (list, tuple, dict, set) or not depth or len(value) > _LONGEST:
        return value
    if kind is dict:
        return {key: _copy(item, depth - 1) for key, item in value.items()}
    return kind(value) if kind is set else kind(_copy(item, depth - 1) for item in value)


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

    def see(place: int, name: str) -> Callable[[Any], Any] | None:
        for path in paths.get(place, ()):
            if (path, name) in attributes:
                if marks:
                    return functools.partial(give, (path, name))
                reads.add((path, name))
            elif name == "__dict__":
                reads.update(attribute for attribute in attributes if attribute[0] == path)
        return None

    def give(attribute: Attribute, value: Any) -> Any:
        if type(value) is int:
            return Own(value, attribute, reads.add)
        reads.add(attribute)
        return value

    with reads_seen(names, see):
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
        self._generators = state_of_generators()
        self._context = context_of()

    def describe(self) -> str | None:
        """Returns the first write that is found, or None."""
        for part, snapshot in self._saved:
            for name in snapshot.list_changes(part):
                return f"it assigns {type(part).__name__}.{name}"
        for kind, before in self._classes.items():
            if _shallow(vars(kind)) != _shallow(before):
                return f"it assigns an attribute of the class {kind.__name__}"
        if any(_items(held) != _items(before) for held, before in self._arguments):
            return "it changes a list or dict among its arguments"
        if state_of_generators() != self._generators:
            return "it draws random numbers with Python or numpy"
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
        *((torch.is_autocast_enabled(kind), torch.get_autocast_dtype(kind)) for kind in _DEVICES),
        torch.get_default_dtype(),
    )


_DEVICES = ("cpu", "cuda")


def weights_of(module: torch.nn.Module) -> Iterator[tuple[str, torch.Tensor]]:
    """Yields parameters and buffers of a part with their paths."""
    for path, part in submodules(module):
        for kind in ("parameters", "buffers"):
            for name, tensor in registered_in(part, kind).items():
                if isinstance(tensor, torch.Tensor):
                    yield (f"{path}.{name}" if path else name), tensor
