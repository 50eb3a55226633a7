"""Finds modules of a model that are alike, and the attributes in which they differ."""

from __future__ import annotations

import dataclasses
import functools
from collections import Counter
from collections.abc import Iterator, Mapping
from types import FunctionType
from typing import Any

import torch

from onnx_aot.torch_compat import REGISTRIES, registered_in, without_function_modes

__all__ = ["Alike", "Attribute", "are_equal"]

Attribute = tuple[str, str]
"""The path of a submodule from a part, and the name of its attribute."""

_PLAIN = (bool, int, float, complex, str, bytes, type(None), torch.dtype, torch.device, torch.Size)


@dataclasses.dataclass(frozen=True)
class _Shape:
    """Common traits of modules that are alike: class, weights and submodules.

    Attributes:
        kind: The class.
        training: Whether in training mode.
        weights: Names, shapes, types and devices of parameters and buffers.
        children: Names of submodules, with the number of their shape.
    """

    kind: type
    training: bool
    weights: tuple[Any, ...]
    children: tuple[tuple[str, int | None], ...]


class Alike:
    """Modules of a model by what they have in common.

    Args:
        root: The model.
    """

    def __init__(self, root: torch.nn.Module) -> None:
        self._numbers: dict[_Shape, int] = {}
        self._of: dict[int, int] = {}  # by the id of a module's attributes
        self._modules: dict[int, list[torch.nn.Module]] = {}
        self._differing: dict[int, frozenset[Attribute]] = {}
        with without_function_modes():
            self._number(root)
        self._count = Counter(self._of.values())

    def _number(self, module: torch.nn.Module) -> int:
        found = self._of.get(id(vars(module)))
        if found is not None:
            return found
        children = tuple(
            (name, None if child is None else self._number(child))
            for name, child in registered_in(module, "modules").items()
        )
        shape = _Shape(type(module), module.training, tuple(_weights(module)), children)
        number = self._numbers.setdefault(shape, len(self._numbers))
        self._of[id(vars(module))] = number
        self._modules.setdefault(number, []).append(module)
        return number

    def find(self, module: torch.nn.Module) -> int | None:
        """The number that a module shares with those that are alike; None for other modules."""
        return self._of.get(id(vars(module)))

    def count(self, number: int) -> int:
        """The number of modules that are alike."""
        return self._count[number]

    def differing(self, number: int) -> frozenset[Attribute]:
        """Attributes of these modules, and of their submodules, that are not equal in all."""
        if number not in self._differing:
            first, *others = self._modules[number]
            self._differing[number] = frozenset(
                attribute for other in others for attribute in _compare(first, other)
            )
        return self._differing[number]


def _weights(module: torch.nn.Module) -> Iterator[Any]:
    for registry in ("parameters", "buffers"):
        for name, tensor in registered_in(module, registry).items():
            if isinstance(tensor, torch.Tensor):
                kind = (type(tensor), tensor.dtype, tensor.device, tensor.requires_grad)
                layout = (tuple(tensor.shape), tensor.layout, _strides(tensor))
                yield (registry, name, *kind, *layout)
            else:
                yield (registry, name, None)


def _strides(tensor: torch.Tensor) -> Any:
    return tensor.stride() if tensor.layout is torch.strided else None


def _compare(first: torch.nn.Module, other: torch.nn.Module, path: str = "") -> Iterator[Attribute]:
    left, right = vars(first), vars(other)
    if left is right:
        return
    for name in left.keys() | right.keys():
        if name in REGISTRIES:
            continue
        if name not in left or name not in right or not are_equal(left[name], right[name]):
            yield (path, name)
    for name, child in registered_in(first, "modules").items():
        if child is not None:
            twin = registered_in(other, "modules")[name]
            yield from _compare(child, twin, f"{path}.{name}" if path else name)


def are_equal(left: Any, right: Any, depth: int = 4) -> bool:
    """True if two attributes hold the same: one object, or equal numbers, texts and containers.

    What raises while it is compared is not equal: classes may answer requests for attributes that
    they do not have with errors of their own.
    """
    try:
        return _are_equal(left, right, depth)
    except Exception:
        return False


def _are_equal(left: Any, right: Any, depth: int) -> bool:
    if left is right:
        return True
    if type(left) is not type(right) or depth == 0:
        return False
    if isinstance(left, (float, complex)):
        return repr(left) == repr(right)  # tells 0.0 from -0.0, and finds nan equal to nan
    if isinstance(left, _PLAIN):
        return bool(left == right)
    return _have_equal_parts(left, right, depth - 1)


def _have_equal_parts(left: Any, right: Any, depth: int) -> bool:
    equal = functools.partial(_are_equal, depth=depth)
    if isinstance(left, Mapping):
        return list(left) == list(right) and all(map(equal, left.values(), right.values()))
    if isinstance(left, (list, tuple)):
        return len(left) == len(right) and all(map(equal, left, right))
    if isinstance(left, (set, frozenset)):
        return all(isinstance(item, _PLAIN) for item in left) and bool(left == right)
    if isinstance(left, functools.partial):
        parts = [(f.func, f.args, f.keywords) for f in (left, right)]
        return equal(*parts)
    if dataclasses.is_dataclass(left):
        return equal(vars(left), vars(right))
    if isinstance(left, FunctionType):
        cells = [[cell.cell_contents for cell in f.__closure__ or ()] for f in (left, right)]
        defaults = [(f.__defaults__, f.__kwdefaults__) for f in (left, right)]
        return left.__code__ is right.__code__ and equal(*cells) and equal(*defaults)
    return False
