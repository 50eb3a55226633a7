"""Finds the lists that hold a value of each step of a loop, and makes tensors of them."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Sequence
from typing import Any, NamedTuple

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


class Lane(NamedTuple):
    """The tensors that a list gets from one place in the steps of a loop.

    Attributes:
        first: The one before that of the second step, if it is as large; it may be a step's.
        second: The one of the second step.
        third: The one of the third step.
    """

    first: Tensor | None
    second: Tensor
    third: Tensor


@dataclasses.dataclass(frozen=True)
class History:
    """A list with values of each step of a loop.

    Attributes:
        loop: The loop.
        before: Elements before those of the steps.
        lanes: The elements of the steps; there are several if each step appends several times.
        after: Elements after those of the steps.
        backwards: Whether the last step's elements come first.
    """

    loop: Loop
    before: Sequence[Tensor]
    lanes: Sequence[Lane]
    after: Sequence[Tensor]
    backwards: bool

    @property
    def length(self) -> Any:
        """Number of elements, as a symbolic size."""
        return len(self.before) + len(self.lanes) * self._count + len(self.after)

    @property
    def can_be_stacked(self) -> bool:
        """True if all elements have the same shape and dtype."""
        of_steps = (each for lane in self.lanes for each in lane if each is not None)
        shape = _shape(self.lanes[0].second)
        return all(_shape(each) == shape for each in (*self.before, *of_steps, *self.after))

    @property
    def _count(self) -> Any:
        return self.loop.count - (self.lanes[0].first is None)

    def stack(self, dim: int = 0) -> Tensor:
        """``torch.stack`` of the list."""
        axis = dim if dim >= 0 else dim + self.lanes[0].second.dim() + 1
        others = [[t.unsqueeze(axis) for t in part] for part in (self.before, self.after)]
        collected = self._collect(axis)
        if len(collected) == 1:
            return self._join(others, collected[0], axis)
        whole = torch.stack(collected, axis + 1).flatten(axis, axis + 1)
        return self._join(others, whole, axis)

    def cat(self, dim: int = 0) -> Tensor:
        """``torch.cat`` of the list."""
        axis = dim if dim >= 0 else dim + self.lanes[0].second.dim()
        if any(str(lane.second.shape[axis]) != str(lane.third.shape[axis]) for lane in self.lanes):
            return self._join_pieces(axis)
        joined = torch.cat(self._collect(axis), axis + 1)
        whole = joined.flatten(axis, axis + 1)
        return self._join([self.before, self.after], whole, axis)

    def _join(self, others: Sequence[Sequence[Tensor]], whole: Tensor, axis: int) -> Tensor:
        before, after = others
        return torch.cat([*before, whole, *after], axis) if before or after else whole

    def _join_pieces(self, axis: int) -> Tensor:
        """Joins elements that differ in size."""
        before, after = list(self.before), list(self.after)
        (first, second, third), *others = self.lanes
        if first is None and (after if self.backwards else before):
            first = after.pop(0) if self.backwards else before.pop()
        if others or first is None or first.dtype != second.dtype:
            found = "each step adds several" if others else "the first step adds none"
            raise UnrollableError(
                f"the elements of a list differ in size, and {found}",
                "append to the list once in every step",
            )
        loop = self.loop
        size = find_total(second.shape[axis], loop.symbols[0], loop.count)
        whole: Tensor = JOINED(first, second, third, size, loop.number, self.backwards, axis)
        return self._join([before, after], whole, axis)

    def _collect(self, axis: int) -> list[Tensor]:
        """The values of each lane at all steps, which are along an axis, in the list's order."""
        lanes = reversed(self.lanes) if self.backwards else self.lanes
        options = (self._count, self.loop.number, self.backwards)
        return [COLLECTED(*lane, *options).movedim(0, axis) for lane in lanes]


def find_history(loops: Sequence[Loop], items: Any) -> History | None:
    """Describes a list with elements of two steps of a loop; None for other lists.

    ``[h1, h2, h3]`` of the three steps that were recorded stands for the values of all steps, as
    do ``[h0, h1, h2]``, to which each step appends the value of the step before, and
    ``[a1, b1, a2, b2, a3, b3]``, to which each appends two.
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
    last = 3 if 3 in steps else 2
    if last not in steps:
        return None
    begin = steps.index(last)
    # Last states of several loops are no history of one.
    each = min(_count(steps[begin:], last), _count(steps[:begin][::-1], last - 1))
    if not each:
        return None
    end = begin + each
    before, second, third = items[: begin - each], items[begin - each : begin], items[begin:end]
    first: Sequence[Tensor | None] = [None] * each
    if list(map(_shape, before[-each:])) == list(map(_shape, second)):
        before, first = before[:-each], before[-each:]
    lanes = [Lane(*lane) for lane in zip(first, second, third, strict=True)]
    return History(loop, before, lanes, items[end:], False)


def _count(steps: Sequence[int | None], step: int) -> int:
    """The number of elements of a step at the beginning."""
    return next((i for i, each in enumerate(steps) if each != step), len(steps))


def _shape(tensor: Tensor) -> list[str]:
    return [str(tensor.dtype), *map(str, tensor.shape)]
