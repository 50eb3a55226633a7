"""What the values of a TorchScript graph are while it is interpreted.

Numbers, strings, None, devices and dtypes that are known are Python's own. What depends on inputs
is a ``Leaf``. Lists and dicts have an identity, since the model writes to them.
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
    "is_tensor",
    "known",
]


@dataclasses.dataclass(eq=False)
class Leaf:
    """A value of the graph that is recorded.

    Attributes:
        val: A FakeTensor, a symbolic number, or a ``SequenceVal``.
        node: The node that it is in ``scope``.
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
        content: A Python list or dict; a ``Leaf`` for a list whose length is not known: a sequence
            of tensors, or a 1-D tensor of numbers.
        element: What TorchScript calls the type of the elements of a list, such as ``Tensor``.
    """

    content: Any
    element: str = "Tensor"

    def copy_content(self) -> Any:
        """The content now, which later writes leave alone."""
        return self.content.copy() if isinstance(self.content, (list, dict)) else self.content


@dataclasses.dataclass(eq=False)
class Maybe:
    """An optional value of which the inputs decide whether it is there."""

    present: Any
    value: Any


@dataclasses.dataclass(frozen=True)
class ModuleRef:
    """A module or an object with attributes: where it stands in the model, and itself."""

    path: str
    owner: Any


class Uninitialized:
    """What no one reads: TorchScript's value of a variable on a path that does not set it."""


class GivenInt(int):
    """An int among the inputs: a loop over it stays a loop."""


def is_tensor(value: Any) -> bool:
    """Whether a value is a tensor."""
    return isinstance(value, Leaf) and isinstance(value.val, torch.Tensor)


def known(value: Any) -> bool:
    """Whether a value is the same for all inputs."""
    if isinstance(value, (tuple, list)):
        return all(map(known, value))
    if isinstance(value, Cell):
        return isinstance(value.content, list) and all(map(known, value.content))
    return not isinstance(value, (Leaf, Maybe, Uninitialized))
