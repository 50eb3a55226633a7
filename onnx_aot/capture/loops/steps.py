"""Lets Python loops over dynamic sizes run for three steps, which stand for all."""

from __future__ import annotations

import copy
import sys
from collections.abc import Callable, Iterator, Sequence
from types import FrameType
from typing import Any

import torch

from onnx_aot.capture.error_hints import UnrollableError
from onnx_aot.capture.loops.history import History, Loop, find_history
from onnx_aot.capture.loops.list_items import find_position
from onnx_aot.capture.loops.numbers import make_tensor
from onnx_aot.capture.sizes.guards import Location
from onnx_aot.torch_compat import (
    aten,
    current_tracer,
    example_size,
    fresh_size,
    known_number,
    last_node,
    symbolic_expression,
)
from onnx_aot.torch_ops.loop_marks import LOOP_STEP

__all__ = ["Loops", "Steps"]

_REVERSED: tuple[type, ...] = (type(reversed([])), type(reversed(())))


class Loops:
    """Loops of a capture.

    Args:
        locate: Returns the user's current line.
        forget: Forgets the values of computed tensors, which differ between steps.
        files: Files with loops, whose builtins are replaced.

    Attributes:
        locate: Returns the user's current line.
        files: Files with loops, whose builtins are replaced.
        made: The loops, in the order in which they begin.
        problem: Why a loop cannot be rolled.
    """

    def __init__(
        self,
        locate: Callable[[], Location | None],
        forget: Callable[[], None],
        files: frozenset[str] = frozenset(),
    ) -> None:
        self.locate, self._forget, self.files = locate, forget, files
        self._symbols: dict[Any, Loop] = {}
        self.made: list[Loop] = []
        self.problem: UnrollableError | None = None

    def is_asked_about(self, expression: Any) -> bool:
        """True if an expression depends on the number of a step."""
        return not self._symbols.keys().isdisjoint(getattr(expression, "free_symbols", ()))

    def refuse(self, reason: str, fix: str) -> None:
        """Notes why a loop cannot be rolled. The capture goes on, as the model may catch errors."""
        if self.problem is None:
            self.problem = UnrollableError(reason, fix, self.locate())

    # --- what Python code loops over ---

    def range(self, start: Any, stop: Any, step: Any) -> Steps:
        """The numbers of a ``range``."""
        return Steps(self, -((start - stop) // step), lambda index: start + step * index)

    def unbind(self, tensor: torch.Tensor, dim: int) -> Steps | None:
        """The slices of a tensor along a dynamic dimension; None for others."""
        size: Any = tensor.shape[dim]
        if not isinstance(size, torch.SymInt) or known_number(size) is not None:
            return None
        return Steps(self, size, lambda index: tensor.select(dim, index))

    def split(self, tensor: torch.Tensor, size: Any, dim: int) -> Steps | None:
        """Slices of a size along a dynamic dimension, of which the last one may be smaller."""
        whole: Any = tensor.shape[dim]
        if type(size) not in (int, torch.SymInt) or known_number(whole) is not None:
            return None
        steps = (whole + size - 1) // size
        count = torch.sym_max(steps, 1)  # type: ignore[no-untyped-call]  # as torch does

        def take(index: Any) -> torch.Tensor:
            return aten.slice(tensor, dim, index * size, index * size + size)  # type: ignore[no-any-return]

        return None if known_number(count) is not None else Steps(self, count, take)

    def chunk(self, tensor: torch.Tensor, chunks: Any, dim: int) -> Steps | None:
        """As many slices along a dynamic dimension, or fewer if the dimension is small."""
        if type(chunks) is int and chunks == 1:
            return None
        size = (tensor.shape[dim] + chunks - 1) // chunks
        # Torch would ask whether pieces of one element have one, and fix that.
        return self.split(tensor, fresh_size(size) if example_size(size) == 1 else size, dim)

    def enumerate(self, items: Any, start: Any) -> Steps | None:
        """What is looped over, with its numbers; None if it has a number of steps that is known."""
        steps = self._find_steps(items)
        if steps is None:
            return None
        return Steps(self, steps.count, lambda index: (start + index, steps[index]))

    def zip(self, parts: Sequence[Any]) -> Steps | None:
        """Loops over several things together, as long as the shortest; None if that is unknown.

        It is known if all have dynamic numbers of steps, which differ by numbers, as n and n - 1.
        """
        found = [steps for part in parts if (steps := self._find_steps(part)) is not None]
        if not found or len(found) != len(parts):
            return None
        first = symbolic_expression(found[0].count)
        more = [symbolic_expression(steps.count) - first for steps in found]
        if not all(each.is_Integer for each in more):
            return None
        count = found[more.index(min(more))].count
        return Steps(self, count, lambda index: tuple(steps[index] for steps in found))

    def _find_steps(self, items: Any) -> Steps | None:
        if isinstance(items, torch.Tensor):
            return self.unbind(items, 0) if items.dim() else None
        return items if isinstance(items, Steps) else self.find_elements(items)

    def find_elements(self, items: Any) -> Steps | None:
        """The elements of a list, or of its ``reversed``, with a value of each step; else None."""
        if type(items) in _REVERSED:
            items = list(copy.copy(items))  # the copy begins where the iterator is
        history = self.find_history(items)
        if history is None or not history.can_be_stacked:
            return None
        stacked = history.stack()
        return Steps(self, history.length, lambda index: stacked.select(0, index))

    def count(self, items: Any) -> Any:
        """The symbolic length of what is looped over, or of a list of all steps; else None."""
        if isinstance(items, Steps):
            return items.count
        history = self.find_history(items)
        return None if history is None else history.length

    def find_history(self, items: Any) -> History | None:
        """Describes a list with a value of each step; None for other lists."""
        return find_history(self.made, items)

    def make_tensor(self, numbers: Any) -> torch.Tensor | None:
        """The tensor of a list with numbers of each step; None for other lists."""
        return make_tensor(numbers, self._symbols) if self._symbols else None

    def make_index(self, index: Any) -> Any:
        """An index with tensors in place of lists with numbers of each step."""
        if isinstance(index, tuple):
            return tuple(
                self.make_index(each) if isinstance(each, list) else each for each in index
            )
        made = self.make_tensor(index) if isinstance(index, list) else None
        return index if made is None else made

    def find_position(self, index: Any) -> int | None:
        """The position of an element that the present step takes from a list by its number.

        None if something else is indexed, or by another number.
        """
        asked = [s for s in symbolic_expression(index).free_symbols if s in self._symbols]
        if len(asked) != 1 or self._symbols[asked[0]].is_complete:
            return None
        return find_position(index, asked[0], self._symbols[asked[0]])

    # --- steps ---

    def run(self, count: Any, at: Callable[[Any], Any]) -> Iterator[Any]:
        """Yields what ``at`` gives for the first step, and for two that stand for all others."""
        if not count >= 1:
            return
        loop = Loop(len(self.made), count, self.locate())
        self.made.append(loop)
        more = count - 1
        self._mark(loop, more)
        yield at(0)
        numbers: dict[str, Any] = {}
        for _ in (2, 3):
            step = self._mark(loop, more)
            self._symbols[symbolic_expression(step)] = loop
            loop.symbols.append(symbolic_expression(step))
            yield at(step)
            before, numbers = numbers, _read_numbers(sys._getframe(1))
        self._refuse_counters(before, numbers)
        self._mark(loop, more)

    def _mark(self, loop: Loop, more: Any) -> Any:
        self._forget()
        before = last_node(current_tracer().graph)
        step, _ = LOOP_STEP(loop.count, more, loop.number, len(loop.marks) + 1)
        loop.marks.append(before)
        check: Any = torch._check
        check(step < loop.count)  # before the other, from which torch infers count > 1
        check(step >= 1)
        return step

    def _refuse_counters(self, before: dict[str, Any], after: dict[str, Any]) -> None:
        """Refuses Python numbers that change from step to step: their next values are unknown."""
        for name, value in after.items():
            if name in before and before[name] != value:
                self.refuse(
                    f"the Python value {name} changes from step to step: it is {before[name]!r} "
                    f"after one and {value!r} after the next",
                    "compute it from the number of the step, which `for step in range(n)` gives, "
                    "or keep it in a tensor",
                )


class Steps:
    """The values that a loop goes through, one per step; there are as many as a size says.

    Args:
        loops: Loops of the capture.
        count: The number of steps.
        at: Gives the value of a step, from its number.
    """

    def __init__(self, loops: Loops, count: Any, at: Callable[[Any], Any]) -> None:
        self._loops, self.count, self._at = loops, count, at

    def __iter__(self) -> Iterator[Any]:
        return self._loops.run(self.count, self._at)

    def __reversed__(self) -> Iterator[Any]:
        return self._loops.run(self.count, lambda step: self._at(self.count - 1 - step))

    def __getitem__(self, index: int | slice) -> Any:
        if isinstance(index, slice):
            return self._take(index)
        return self._at(index if index >= 0 else self.count + index)

    def _take(self, part: slice) -> Steps:
        """All values, less some at the ends.

        Raises:
            UnrollableError: The slice is another one.
        """
        start, stop = part.start or 0, part.stop or 0
        is_int = type(start) is int and type(stop) is int
        if not is_int or start < 0 or stop > 0 or part.stop == 0 or part.step not in (None, 1):
            raise UnrollableError(
                "only some of its values are taken, by a slice such as [-2:], [:3] or [::2]",
                "slice the tensor, x[:, -2:], and loop over it; values[1:] and values[:-1] can be "
                "looped over as they are",
                self._loops.locate(),
            )
        return Steps(self._loops, self.count - start + stop, lambda index: self._at(start + index))


def _read_numbers(frame: FrameType) -> dict[str, Any]:
    """The Python numbers and texts among local variables, and attributes of ``self``."""
    found = {name: value for name, value in frame.f_locals.items() if _is_plain(value)}
    owner = frame.f_locals.get("self")
    if isinstance(owner, torch.nn.Module):
        found |= {f"self.{name}": value for name, value in vars(owner).items() if _is_plain(value)}
    return found


def _is_plain(value: Any) -> bool:
    return type(value) in (bool, int, float, str)
