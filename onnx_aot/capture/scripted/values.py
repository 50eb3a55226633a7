"""Represents the values of a TorchScript graph while it is interpreted.

Known numbers, strings, None, devices and dtypes are plain Python objects. Values that depend on
inputs are of class ``Leaf``. Lists and dicts have an identity, since the model writes to them.
"""

from __future__ import annotations

import dataclasses
from typing import Any

import torch
import torch.fx

__all__ = [
    "Cell",
    "GivenInt",
    "Leaf",
    "Maybe",
    "ModuleRef",
    "Uninitialized",
    "is_known",
    "is_tensor",
]


@dataclasses.dataclass(eq=False)
class Leaf:
    """A value of the recorded graph.

    Attributes:
        val: A FakeTensor, a symbolic number, or a ``SequenceVal``.
        node: Its node in ``scope``.
        scope: The graph that it belongs to.
    """

    val: Any
    node: torch.fx.Node
    scope: Any

    def __bool__(self) -> bool:
        raise TypeError("a value that depends on the inputs is asked whether it is true")


@dataclasses.dataclass(eq=False)
class Cell:
    """A list, or a dict.

    Attributes:
        content: A Python list or dict; for a list of unknown length, a ``Leaf``: a sequence of
            tensors, or a 1-D tensor of numbers.
        element: TorchScript's name for the type of a list's elements, such as ``Tensor``.
    """

    content: Any
    element: str = "Tensor"

    def copy_content(self) -> Any:
        """A copy of the content, which later writes do not change."""
        return self.content.copy() if isinstance(self.content, (list, dict)) else self.content


@dataclasses.dataclass(eq=False)
class Maybe:
    """An optional value that is None or not depending on the inputs."""

    present: Any
    value: Any


@dataclasses.dataclass(frozen=True)
class ModuleRef:
    """A module or an object with attributes, and its path in the model."""

    path: str
    owner: Any


class Uninitialized:
    """TorchScript's value of a variable on a path that does not set it; nobody reads it."""


class GivenInt(int):
    """An int among the inputs; a loop over it is kept as a loop."""


def is_tensor(value: Any) -> bool:
    """True if a value is a tensor."""
    return isinstance(value, Leaf) and isinstance(value.val, torch.Tensor)


def is_known(value: Any) -> bool:
    """True if a value is the same for all inputs."""
    if isinstance(value, (tuple, list)):
        return all(map(is_known, value))
    if isinstance(value, Cell):
        return isinstance(value.content, list) and all(map(is_known, value.content))
    return not isinstance(value, (Leaf, Maybe, Uninitialized))
