"""Choices for instructions: suitable variables, axes, sizes and numbers."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

import torch

from tests.properties.scope import Scope, Value

__all__ = ["Choices", "DoesNotFitError", "shares"]

X = TypeVar("X")
INTEGERS = (torch.int64, torch.int32, torch.int16, torch.int8, torch.uint8)
WIDEST = 8
"""Largest number of features that a layer takes."""


HOOKS = (
    "register_forward_pre_hook(lambda module, args: (args[0] * 2, *args[1:]))",
    "register_forward_pre_hook(lambda module, args: None)",
    "register_forward_hook(lambda module, args, output: None)",
    "register_forward_hook("
    "lambda module, args, output: output * 2 if isinstance(output, torch.Tensor) else output)",
)


class DoesNotFitError(Exception):
    """No variable suits the instruction."""


class Choices:
    """Chooses the parts of one instruction and remembers the variables that it uses."""

    def __init__(self, random: random.Random, scope: Scope) -> None:
        self._random = random
        self.scope = scope
        self.used: list[Value] = []

    def of(self, *options: X) -> X:
        return self._random.choice(options)

    def between(self, low: int, high: int) -> int:
        return self._random.randint(low, high)

    def maybe(self) -> bool:
        return self._random.random() < 0.5

    # --- variables -------------------------------------------------------------------------------

    def tensor(
        self,
        accept: Callable[[Value], bool] = lambda v: True,
        *,
        rank: int = 0,
        unbacked: bool = False,
        exact: bool = False,
    ) -> Value:
        """Chooses a tensor; later ones come first.

        Args:
            accept: Additional condition on the tensor.
            rank: Minimal rank of the tensor.
            unbacked: Whether its shape may depend on data.
            exact: Whether its numbers must be exact.
        """
        fitting = [
            v
            for v in reversed(self.scope.values)
            if v.is_tensor
            and v.rank >= rank
            and (unbacked or not v.unbacked)
            and (v.exact or not exact)
            and accept(v)
        ]
        if self.between(0, 30) == 0:
            kept = [self.scope.read_state(n) for n in ("self.memory", "self.weight")]
            fitting = [v for v in kept if v.rank >= rank and accept(v)] or fitting
        return self._take(fitting)

    def floats(self, **options: Any) -> Value:
        return self.tensor(lambda v: v.floating, **options)

    def integers(self, **options: Any) -> Value:
        return self.tensor(lambda v: v.dtype in INTEGERS, exact=True, **options)

    def numbers(self, **options: Any) -> Value:
        """Chooses a tensor of any dtype but bool."""
        return self.tensor(lambda v: v.dtype != torch.bool, **options)

    def mask(self, like: Value, *, selects: bool = False) -> str:
        """Chooses a boolean tensor shaped like another one: a variable or a comparison.

        torch.export cannot select with a boolean scalar tensor whose value it does not know.
        """
        if selects and like.rank == 0:
            raise DoesNotFitError
        masks = [
            v
            for v in reversed(self.scope.values)
            if v.is_tensor and v.dtype == torch.bool and v.shape() == like.shape()
        ]
        if masks and self.maybe():
            return self._take(masks).name
        if not like.exact:
            raise DoesNotFitError
        if like.dtype == torch.bool:
            return f"~{like.name}"
        return f"({like.name} {self.of('>', '<', '==', '!=', '<=')} {self.between(-2, 3)})"

    def fitting(self, other: Value, accept: Callable[[Value], bool] = lambda v: True) -> Value:
        """Chooses a tensor that broadcasts with another one at every size."""
        return self.tensor(lambda v: _broadcast(v, other) and accept(v))

    def alike(self, other: Value, accept: Callable[[Value], bool] = lambda v: True) -> Value:
        """Chooses a tensor of the same shape, possibly the same tensor."""
        return self.tensor(
            lambda v: v.rank == other.rank and v.shape() == other.shape() and accept(v)
        )

    def into(self, target: Value, accept: Callable[[Value], bool] = lambda v: True) -> Value:
        """Chooses a tensor to write to another: it broadcasts to it and is not a view of it."""
        return self.tensor(
            lambda v: (
                v.rank <= target.rank
                and _broadcast(v, target)
                and all(
                    of_v == of_t or set(of_v) == {1}
                    for of_v, of_t in zip(
                        reversed(v.shape()), reversed(target.shape()), strict=False
                    )
                )
                and (v.exact or not target.exact)
                and not shares(v, target)
                and _castable(v.dtype, target.dtype)
                and accept(v)
            )
        )

    def writable(self, **options: Any) -> Value:
        """Chooses a tensor that may be written to."""
        return self.tensor(lambda v: not shares(v, None), unbacked=False, **options)

    def features(self, ranks: Sequence[int], place: int) -> tuple[str, int, Value]:
        """Chooses a float32 tensor with a dimension of one size everywhere, for a layer.

        Args:
            ranks: Accepted ranks.
            place: Axis that the layer wants the features at, such as -1.

        Returns:
            Text of the tensor with the features in their place, their number, and the tensor.
        """
        x = self.tensor(
            lambda v: (
                v.dtype == torch.float32
                and v.rank in ranks
                and bool(self._constant_axes(v))
                and self.scope.nonempty(v)
            )
        )
        axis = self.of(*self._constant_axes(x))
        moved = axis != (place if place >= 0 else x.rank + place)
        return (f"{x.name}.movedim({axis}, {place})" if moved else x.name), x.sizes(axis)[0], x

    @staticmethod
    def _constant_axes(value: Value) -> list[int]:
        return [a for a, s in enumerate(value.shape()) if len(set(s)) == 1 and 0 < s[0] <= WIDEST]

    def layer(self, constructor: str) -> str:
        """Chooses a layer of the module: a new one, maybe with a hook, or an earlier one."""
        name = self.scope.add_member(constructor, again=self.maybe())
        if self.between(0, 5) == 0:
            self.scope.add_hook(name, self.of(*HOOKS))
        return name

    def _take(self, fitting: Sequence[Value]) -> Value:
        if not fitting:
            raise DoesNotFitError
        # later ones are twice as likely
        chosen = fitting[min(self.between(0, len(fitting) - 1) for _ in range(self.between(1, 2)))]
        self.used.append(chosen)
        return chosen

    # --- parts of an expression ------------------------------------------------------------------

    def axis(self, value: Value, beyond: int = 0) -> int:
        """Chooses an axis, counted from the front or the back."""
        rank = value.rank + beyond
        if rank == 0:
            raise DoesNotFitError
        drawn = self.between(0, 2 * rank - 1)
        return drawn if drawn < rank else drawn - 2 * rank

    def size(self) -> str:
        """Chooses a number that follows from the inputs' sizes, or a small one."""
        atom, k = self._size_atom(), self.between(1, 3)
        if self.maybe():
            return atom
        form = self.of(
            "{k}",
            "({atom} + {k})",
            "({atom} * {k})",
            "({atom} // {k})",
            "({atom} - {k})",
            "(-(-{atom} // {more}))",
            "({atom} % {k} + 1)",
            "(({atom} - 5) // {more})",
            "(({atom} - 5) % {more})",
            "((5 - {atom}) // -{more})",
            "({atom} - {other})",
            "({atom} * {other} // {more})",
            "torch.sym_max({atom}, {more})",
            "torch.sym_min({atom}, {other})",
            "torch.sym_max({atom} - {more}, 0)",
            "int({atom} / {more})",
            "({atom} ** 2)",
        )
        other = self._size_atom() if "{other}" in form else ""
        return form.format(atom=atom, other=other, k=k, more=k + 1)

    def _size_atom(self) -> str:
        numbers = [v for v in self.scope.values if not v.is_tensor and not v.unbacked]
        if numbers and self.between(0, 2) == 2:
            return self._take(list(reversed(numbers))).name
        fixed = 1 if self.scope.dynamic else 0
        value = self.tensor(lambda v: any(len(set(s)) > fixed for s in v.shape()))
        axes = [a for a, s in enumerate(value.shape()) if len(set(s)) > fixed]
        return f"{value.name}.shape[{self.of(*axes)}]"

    def number(self, like: Value) -> str:
        """Chooses a Python number for arithmetic with a tensor; it may be a size."""
        form = self.between(0, 5)
        if form == 0:
            return self.size()
        if form == 1 and like.exact and like.dtype in (torch.float32, torch.float64):
            return self.of("0.5", "-1.5", "2.0")
        if form == 2:
            return self.of("True", "False")
        return str(self.between(-3, 3))

    def bound(self) -> str:
        """Chooses an end of a slice."""
        form = self.between(0, 5)
        if form == 0:
            return ""
        if form == 1:
            return self.size()
        if form == 2:
            return f"-{self.size()}"
        return str(self.between(-3, 4))


def shares(value: Value, other: Value | None) -> bool:
    """True if two tensors share memory; without a second one, if a tensor repeats elements."""
    if other is None:
        return any(
            stride == 0 and size > 1
            for stride, size in zip(value.example.stride(), value.example.shape, strict=True)
        )
    storages = (value.example.untyped_storage(), other.example.untyped_storage())
    return bool(storages[0]._cdata == storages[1]._cdata)


def _broadcast(left: Value, right: Value) -> bool:
    pairs = zip(reversed(left.shape()), reversed(right.shape()), strict=False)
    return all(a == b or set(a) == {1} or set(b) == {1} for a, b in pairs)


def _castable(source: torch.dtype, target: torch.dtype) -> bool:
    return torch.can_cast(source, target)
