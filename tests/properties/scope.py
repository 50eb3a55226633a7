"""The variables of a program while it is being written.

Every statement is run by eager PyTorch at the example's sizes and at all others when it is added.
A statement is left out if eager rejects it at the example, or if its numbers become too large to
be exact; another size at which eager rejects it is dropped. A dimension is recorded as its values
at all remaining sizes, so two dimensions are the same if they agree everywhere.
"""

from __future__ import annotations

import contextlib
import dataclasses
import re
import warnings
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import nn

from tests.properties.programs import OTHER_SIZES, STATE, Input, Sizes

__all__ = ["Scope", "Value"]

# Whole numbers up to these limits, and their sums, are exact in the type.
LARGEST = {
    torch.float16: 1000,
    torch.bfloat16: 120,
    torch.float32: 1e5,
    torch.float64: 1e6,
    torch.int32: 1e8,
    torch.int64: 1e9,
    torch.int16: 10_000,
    torch.int8: 100,
    torch.uint8: 100,
}
LARGEST_INEXACT = 100.0

REFUSED = (
    RuntimeError,
    ValueError,
    IndexError,
    ZeroDivisionError,
    TypeError,
    AssertionError,
    AttributeError,
)
"""Errors with which eager rejects a statement."""

RESULT = re.compile(r"\bresult =")
MOST_ELEMENTS = 4000


@dataclasses.dataclass
class Value:
    """A variable.

    Attributes:
        name: Name of the variable.
        held: Contents by the index of the sizes.
        exact: Whether all its numbers are exact, so that conditions may depend on them.
        unbacked: Whether its shape depends on data.
    """

    name: str
    held: dict[int, Any]
    exact: bool = True
    unbacked: bool = False

    @property
    def example(self) -> Any:
        return self.held[0]

    @property
    def is_tensor(self) -> bool:
        return isinstance(self.example, torch.Tensor)

    @property
    def dtype(self) -> torch.dtype:
        dtype: torch.dtype = self.example.dtype
        return dtype

    @property
    def rank(self) -> int:
        rank: int = self.example.dim()
        return rank

    @property
    def floating(self) -> bool:
        return self.dtype.is_floating_point

    def sizes(self, axis: int) -> tuple[int, ...]:
        """Returns a dimension at the example and at all other remaining sizes."""
        return tuple(tensor.shape[axis] for tensor in self.held.values())

    def shape(self) -> tuple[tuple[int, ...], ...]:
        return tuple(map(self.sizes, range(self.rank)))


class Scope:
    """Variables by size, and the statements that define them.

    Attributes:
        lines: Statements of ``forward``.
        members: Statements of ``__init__``.
        passed_over: Sizes at which eager may share memory differently.
    """

    def __init__(
        self,
        inputs: Sequence[Input],
        example: Sizes,
        *,
        dynamic: bool = True,
        training: bool = False,
    ) -> None:
        self.lines: list[str] = []
        self.members: list[str] = []
        self.values: list[Value] = []
        self.passed_over: list[Sizes] = []
        self.dynamic = dynamic
        self.training = training
        self._count = 0
        self._spaces: dict[int, dict[str, Any]] = {}
        for index, sizes in enumerate((example, *(OTHER_SIZES if dynamic else ()))):
            space = {"torch": torch, "F": nn.functional, "nn": nn, "self": nn.Module()}
            self._spaces[index] = space
            for name, text in STATE.items():
                exec(f"self.{name} = {text}", space)
            space |= {given.name: given.make(sizes) for given in inputs}
        for given in inputs:
            self._add(given.name)

    def _add(self, name: str, exact: bool = True, unbacked: bool = False) -> Value:
        held = {i: eval(name, space) for i, space in self._spaces.items()}
        self.values.append(Value(name, held, exact, unbacked))
        return self.values[-1]

    def read_state(self, name: str) -> Value:
        """Makes a parameter or a buffer of the module one of the values."""
        for value in self.values:
            if value.name == name:
                return value
        return self._add(name)

    def add_member(self, constructor: str, *, again: bool) -> str:
        """Adds a statement of ``__init__`` that makes a layer.

        Args:
            constructor: Text that makes the layer.
            again: Whether to use a layer that was made by the same text.

        Returns:
            Name of the layer, such as ``self.layer0``.
        """
        for line in self.members if again else ():
            name, _, made = line.partition(" = ")
            if made == constructor:
                return name
        name = f"self.layer{sum(' = ' in line for line in self.members)}"
        self._add_to_init(f"{name} = {constructor}")
        for space in self._spaces.values():
            eval(name, space).train(self.training)
        return name

    def add_hook(self, layer: str, hook: str) -> None:
        """Adds a statement of ``__init__`` that registers a hook of a layer."""
        self._add_to_init(f"{layer}.{hook}")

    def _add_to_init(self, statement: str) -> None:
        for space in self._spaces.values():
            exec(statement, space)
        self.members.append(statement)

    def nonempty(self, value: Value) -> bool:
        """True if the tensor is empty at sizes with a zero only."""
        return all(
            tensor.numel() > 0 or (index > 0 and 0 in OTHER_SIZES[index - 1].values())
            for index, tensor in value.held.items()
        )

    def assign(self, expression: str, exact: bool, unbacked: bool, several: bool) -> bool:
        """Adds ``v = expression``, or ``v, w = expression``, unless eager rejects it.

        The text may be statements instead that assign ``result``.
        """
        code = expression if RESULT.search(expression) else f"result = {expression}"
        results = self._run(code, lambda r, _: _acceptable(r, exact))
        if results is None or not _alike(list(results.values())):
            return False
        given = {i: result if several else (result,) for i, result in results.items()}
        names = [f"v{self._count + i}" for i in range(len(given[0]))]
        self._count += len(names)
        for index, items in given.items():
            self._spaces[index].update(zip(names, items, strict=True))
        self.lines.append(RESULT.sub(f"{', '.join(names)} =", code))
        for value in self.values:
            value.held = {i: value.held[i] for i in self._spaces}
        for name in names:
            made = self._add(name, exact)
            made.unbacked = unbacked and (not made.is_tensor or made.rank > 0)
        return True

    def write(self, statement: str, target: Value) -> bool:
        """Adds a statement that writes to a variable, unless eager rejects it."""
        shared = {i: self._aliases(target, i) for i in self._spaces}
        before = {i: value.clone() for i, value in target.held.items() if i in self._spaces}
        for index in [i for i, names in shared.items() if names != shared[0]]:
            del self._spaces[index]  # a reshape that copies at this size but not at the example
        left = [OTHER_SIZES[index - 1] for index in self._spaces if index]
        self.passed_over = [sizes for sizes in OTHER_SIZES if sizes not in left]
        results = self._run(statement, lambda _, i: _acceptable(target.held[i], target.exact))
        if results is None:
            for index, tensor in before.items():
                # Eager rejects all writes to elements that share memory: they have not changed.
                with torch.no_grad(), contextlib.suppress(RuntimeError):
                    target.held[index].copy_(tensor)
            return False
        self.lines.append(statement)
        for value in self.values:
            value.held = {i: value.held[i] for i in self._spaces}
        return True

    def _aliases(self, target: Value, index: int) -> set[str]:
        storage = target.held[index].untyped_storage()._cdata
        return {
            v.name
            for v in self.values
            if v.is_tensor and v.held[index].untyped_storage()._cdata == storage
        }

    def _run(self, text: str, accept: Callable[[Any, int], bool]) -> dict[int, Any] | None:
        """Returns ``result`` of a piece of code at every size, or None if it cannot be used."""
        code = compile(text, "<program>", "exec")
        results: dict[int, Any] = {}
        with torch.no_grad(), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            for index, space in list(self._spaces.items()):
                try:
                    exec(code, space)
                    result = space.pop("result", None)
                    accepted = accept(result, index)
                except REFUSED:
                    accepted = False
                if accepted:
                    results[index] = result
                elif index == 0:
                    return None
        if len(results) < min(3, len(self._spaces)):
            return None
        self._spaces = {i: self._spaces[i] for i in results}
        return results


def _alike(results: Sequence[Any]) -> bool:
    """True if the results at all sizes have the same number, types and ranks."""
    kinds = [
        [(v.dtype, v.dim()) if isinstance(v, torch.Tensor) else type(v) for v in items]
        for items in (r if isinstance(r, (list, tuple)) else (r,) for r in results)
    ]
    return all(kind == kinds[0] for kind in kinds)


def _acceptable(result: Any, exact: bool) -> bool:
    if isinstance(result, (list, tuple)):
        return len(result) == 2 and all(_acceptable(item, exact) for item in result)
    if not isinstance(result, torch.Tensor):
        return isinstance(result, (int, float)) and abs(result) < 1e6
    if result.dtype not in LARGEST and result.dtype != torch.bool:
        return False
    if result.numel() > MOST_ELEMENTS or result.dim() > 5:
        return False
    if result.dtype == torch.bool or result.numel() == 0:
        return True
    limit = LARGEST[result.dtype] if exact else LARGEST_INEXACT
    return bool((result.to(torch.float64).abs() <= limit).all())  # also rejects NaN
