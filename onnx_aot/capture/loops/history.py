"""Finds the lists that hold a value of each step of a loop, and makes tensors of them."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Sequence
from typing import Any

import torch
import torch.fx

from onnx_aot.capture.error_hints import UnrollableError
from onnx_aot.capture.loops.totals import find_total
from onnx_aot.capture.sizes.guards import Location
from onnx_aot.torch_compat import current_tracer, node_of
from onnx_aot.torch_ops.loop_marks import COLLECTED, JOINED

__all__ = ["History", "Loop", "find_history"]

Tensor = torch.Tensor


@dataclasses.dataclass(eq=False)
class Loop:
    """A loop that runs for three steps.

    Attributes:
        number: Its number in the capture.
        count: Number of steps that it stands for.
        location: The user's line.
        marks: The last nodes before each step, and the last node of the loop.
        symbols: The symbols of the numbers of the second and the third step.
    """

    number: int
    count: Any
    location: Location | None
    marks: list[Any] = dataclasses.field(default_factory=list)
    symbols: list[Any] = dataclasses.field(default_factory=list)

    @property
    def shown(self) -> str:
        """The user's line."""
        return "a loop" if self.location is None else self.location.cited

    @property
    def is_complete(self) -> bool:
        """True if it ran to its end, and was not left by ``break`` or ``return``."""
        return len(self.marks) == 4

    def step_of(self, node: torch.fx.Node | None) -> int | None:
        """The number of the step, from 1 to 3, that recorded a node."""
        return None if node is None else self._steps.get(node)

    def step_so_far(self, node: torch.fx.Node | None) -> int | None:
        """The number of the step that recorded a node, while the loop runs."""
        for step in range(len(self.marks), 0, -1):
            last = self.marks[step] if step < len(self.marks) else None
            each = self.marks[step - 1]
            while node is not None and each is not last:
                each = each.next
                if each is node:
                    return step
                if each.op == "root":
                    break
        return None

    @functools.cached_property
    def _steps(self) -> dict[torch.fx.Node, int]:
        """The step of each node that the loop recorded."""
        found: dict[torch.fx.Node, int] = {}
        for step in (1, 2, 3):
            node = self.marks[step - 1]
            while node is not self.marks[step]:
                node = node.next
                found[node] = step
        return found


@dataclasses.dataclass(frozen=True)
class History:
    """A list with a value of each step of a loop.

    Attributes:
        loop: The loop.
        before: Elements before those of the steps.
        first: The element before that of the second step, if it is as large; it may be a step's.
        second: The element of the second step.
        third: The element of the third step.
        after: Elements after those of the steps.
        backwards: Whether the last step's element comes first.
    """

    loop: Loop
    before: Sequence[Tensor]
    first: Tensor | None
    second: Tensor
    third: Tensor
    after: Sequence[Tensor]
    backwards: bool

    @property
    def length(self) -> Any:
        """Number of elements, as a symbolic size."""
        return len(self.before) + self._count + len(self.after)

    @property
    def can_be_stacked(self) -> bool:
        """True if all elements have the shape and dtype of the second step's."""
        first = () if self.first is None else (self.first,)
        others = (*self.before, *first, self.third, *self.after)
        return all(_shape(each) == _shape(self.second) for each in others)

    @property
    def _count(self) -> Any:
        return self.loop.count - (self.first is None)

    def stack(self, dim: int = 0) -> Tensor:
        """``torch.stack`` of the list."""
        axis = dim if dim >= 0 else dim + self.second.dim() + 1
        others = [[t.unsqueeze(axis) for t in part] for part in (self.before, self.after)]
        return self._join(others, self._collect().movedim(0, axis), axis)

    def cat(self, dim: int = 0) -> Tensor:
        """``torch.cat`` of the list."""
        axis = dim if dim >= 0 else dim + self.second.dim()
        if str(self.second.shape[axis]) != str(self.third.shape[axis]):
            return self._join_pieces(axis)
        whole = self._collect().movedim(0, axis).flatten(axis, axis + 1)
        return self._join([self.before, self.after], whole, axis)

    def _join(self, others: Sequence[Sequence[Tensor]], whole: Tensor, axis: int) -> Tensor:
        before, after = others
        return torch.cat([*before, whole, *after], axis) if before or after else whole

    def _join_pieces(self, axis: int) -> Tensor:
        """Joins elements that differ in size."""
        before, first, after = list(self.before), self.first, list(self.after)
        if first is None and (after if self.backwards else before):
            first = after.pop(0) if self.backwards else before.pop()
        if first is None or first.dtype != self.second.dtype:
            raise UnrollableError(
                "the elements of a list differ in size, and the first step adds none",
                "append to the list in every step",
            )
        loop = self.loop
        size = find_total(self.second.shape[axis], loop.symbols[0], loop.count)
        parts = (first, self.second, self.third)
        whole: Tensor = JOINED(*parts, size, loop.number, self.backwards, axis)
        return self._join([before, after], whole, axis)

    def _collect(self) -> Tensor:
        collected: Tensor = COLLECTED(
            self.first, self.second, self.third, self._count, self.loop.number, self.backwards
        )
        return collected


def find_history(loops: Sequence[Loop], items: Any) -> History | None:
    """Describes a list with elements of two steps of a loop; None for other lists.

    ``[h1, h2, h3]`` of the three steps that were recorded stands for the values of all steps, as
    does ``[h0, h1, h2]``, to which each step appends the value of the step before.
    """
    if not loops or not isinstance(items, (list, tuple)) or len(items) < 2:
        return None
    tracer = current_tracer()
    if tracer is None or not all(isinstance(item, Tensor) for item in items):
        return None
    nodes = [node_of(item, tracer) for item in items]
    for loop in reversed(loops):
        if loop.is_complete:
            steps = [loop.step_of(node) for node in nodes]
            found = _find_in_order(loop, items, steps)
            if found is not None:
                return found
            found = _find_in_order(loop, items[::-1], steps[::-1])
            if found is not None:
                return dataclasses.replace(
                    found, before=found.after[::-1], after=found.before[::-1], backwards=True
                )
    return None


def _find_in_order(loop: Loop, items: Sequence[Tensor], steps: list[int | None]) -> History | None:
    position = next((i for i, step in enumerate(steps) if step == 3), None)
    if position is None:
        position = next((i for i, step in enumerate(steps) if step == 2), None)
    # Last states of several loops are no history of one.
    if not position or steps[position - 1] != (steps[position] or 0) - 1:
        return None
    before, second, third = items[: position - 1], items[position - 1], items[position]
    first = None
    if before and _shape(before[-1]) == _shape(second):
        *before, first = before
    return History(loop, before, first, second, third, items[position + 1 :], False)


def _shape(tensor: Tensor) -> list[str]:
    return [str(tensor.dtype), *map(str, tensor.shape)]
