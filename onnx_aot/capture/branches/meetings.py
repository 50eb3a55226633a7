"""Finds the questions at which paths meet, so that what follows is not run again for each.

A path that asks a question in a state in which an earlier path asked it continues as that one did,
with other values. So its rest is a copy of the joined steps that are known to follow. Without this,
ten branches in a row would need 1,024 runs of the model.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import torch.fx

from onnx_aot.capture.branches.joining import VALUES, is_same_constant
from onnx_aot.capture.branches.states import State
from onnx_aot.capture.branches.steps import (
    Branch,
    Call,
    Choice,
    Constant,
    Input,
    Raised,
    Step,
    Value,
    Way,
    ask,
    check,
)

__all__ = ["Meetings", "Run", "follows"]


class Run:
    """A recorded path: its steps, and what they were before they were joined with others.

    Attributes:
        answers: The answers on the path.
        states: The state of the model at each question.
        steps: The steps, from which questions disappear as they are solved; or the error at the end
            of the path.
        open: The number of questions, from the first one, that are not solved.
    """

    def __init__(
        self,
        answers: Sequence[bool],
        states: Sequence[State],
        steps: list[Step] | Raised,
        values: Mapping[torch.fx.Node, Value],
    ) -> None:
        self.answers, self.states, self.steps = tuple(answers), states, steps
        self.open = len(answers)
        given = [] if isinstance(steps, Raised) else steps
        self.recorded = [(step, tuple(step.leaves)) for step in given if isinstance(step, Call)]
        self.asked = [i for i, (step, _) in enumerate(self.recorded) if step.target is ask]
        self._positions = {id(step): i for i, step in enumerate(given)}
        self._values = values

    def key(self, value: Value) -> Any:
        """Identifies a value: the position of a step, an input or a constant."""
        return self._positions[id(value)] if isinstance(value, Call) else value

    def value_of(self, node: torch.fx.Node | None) -> Value | None:
        """The value of a node of the graph."""
        return None if node is None else self._values.get(node)


@dataclasses.dataclass(frozen=True)
class _Known:
    """Solved steps from a question on, and the path whose values they read."""

    run: Run
    number: int
    steps: list[Step]


class Meetings:
    """The questions of the paths so far."""

    def __init__(self) -> None:
        self._runs: list[Run] = []
        self._known: dict[Any, list[_Known]] = {}
        self.used = False

    def add(self, run: Run) -> None:
        """Adds a recorded path."""
        self._runs.append(run)

    def remember(self, run: Run, number: int, steps: Sequence[Step]) -> None:
        """Notes what follows from a question on.

        Args:
            run: The path whose values the steps read.
            number: Number of questions before this one.
            steps: All steps of the path, in which the question is solved.
        """
        rest = steps[run.asked[number] :]
        copied = _copy_steps(rest, lambda value: value)
        self._known.setdefault(run.states[number].key, []).append(_Known(run, number, copied))

    def meet(self, run: Run, number: int) -> None:
        """Replaces the rest of a path by what is known to follow.

        Args:
            run: The path.
            number: Number of its first question that may be replaced.
        """
        for asked in range(number, len(run.answers)):
            for known in self._known.get(run.states[asked].key, ()):
                rest = self._find_rest(known, run, asked)
                if rest is not None and not isinstance(run.steps, Raised):
                    run.steps[run.asked[asked] :] = rest
                    run.open, self.used = asked, True
                    return

    def _find_rest(self, known: _Known, run: Run, asked: int) -> list[Step] | None:
        """The known steps with the values of a path; None if some are not known."""
        values = _Values(known.run, run)
        states = known.run.states[known.number], run.states[asked]
        if not values.pair_beginnings() or not values.pair_states(*states):
            return None
        before = known.run.answers[: known.number]
        after = run.answers[asked:]
        alike = (
            other
            for other in self._runs
            if other.answers[: known.number] == before and other.answers[known.number :] == after
        )
        other = next(alike, None)
        if other is None or not values.pair_ends(other, known.number, asked):
            return None
        try:
            return _copy_steps(known.steps, values.replace)
        except KeyError:  # it reads a value of which the states say nothing
            return None


class _Values:
    """The values of one path, and those that take their place in another one."""

    def __init__(self, run: Run, other: Run) -> None:
        self._run, self._other = run, other
        self._pairs: dict[Any, Value] = {}

    def replace(self, value: Value) -> Value:
        """The value of the other path.

        Raises:
            KeyError: It is not known.
        """
        key = self._run.key(value)
        if isinstance(value, Constant):
            return self._pairs.get(key, value)
        return self._pairs[key]

    def _pair(self, key: Any, value: Value) -> bool:
        known = self._pairs.setdefault(key, value)
        return known is value or (isinstance(known, Input) and known == value)

    def pair_beginnings(self) -> bool:
        """Pairs the values before the first answer in which the paths differ."""
        answers = zip(self._run.answers, self._other.answers, strict=False)
        first = next((i for i, (one, other) in enumerate(answers) if one != other), None)
        if first is None or self._run.asked[first] != self._other.asked[first]:
            return False
        end = self._run.asked[first]
        return all(self._pair(i, self._other.recorded[i][0]) for i in range(end + 1))

    def pair_states(self, state: State, other: State) -> bool:
        """Pairs the values in variables and attributes; False if they contradict each other."""
        for nodes in zip(state.nodes, other.nodes, strict=True):
            one, two = self._run.value_of(nodes[0]), self._other.value_of(nodes[1])
            if (one is None) != (two is None):
                return False
            if one is None or two is None or is_same_constant(one, two):
                continue
            if not self._pair(self._run.key(one), two):
                return False
        return True

    def pair_ends(self, run: Run, number: int, asked: int) -> bool:
        """Pairs the values that are read after the question; False if the steps differ.

        Args:
            run: A path that is equal to the first one up to the question, and has the other one's
                answers from it on.
            number: Number of its questions before this one.
            asked: Number of questions before this one on the other path.
        """
        begins = run.asked[number], self._other.asked[asked]
        ends = run.recorded[begins[0] :], self._other.recorded[begins[1] :]
        if len(ends[0]) != len(ends[1]):
            return False
        for (step, leaves), (other, others) in zip(*ends, strict=True):
            if step.target is not other.target or step.spec != other.spec:
                return False
            for leaf, given in zip(leaves, others, strict=True):
                if not self._pair_leaf(run, begins, leaf, given):
                    return False
        return True

    def _pair_leaf(self, run: Run, begins: tuple[int, int], leaf: Any, other: Any) -> bool:
        if not isinstance(leaf, VALUES) or not isinstance(other, VALUES):
            return type(leaf) is type(other) and bool(leaf == other)
        key, given = run.key(leaf), self._other.key(other)
        if isinstance(key, int) and key >= begins[0]:
            return isinstance(given, int) and given - begins[1] == key - begins[0]
        if isinstance(leaf, Constant):
            return is_same_constant(leaf, other)
        return self._pair(key, other)


def _copy_steps(steps: Sequence[Step], replace: Callable[[Value], Value]) -> list[Step]:
    """Copies steps; ``replace`` gives the values from before them."""
    copies: dict[int, Step] = {}

    def copy_leaf(leaf: Any) -> Any:
        if isinstance(leaf, Choice):
            branch = copies[id(leaf.branch)]
            assert isinstance(branch, Branch)
            return Choice(branch, leaf.position)
        if not isinstance(leaf, VALUES):
            return leaf
        return copies[id(leaf)] if id(leaf) in copies else replace(leaf)

    def copy_step(step: Step) -> Step:
        leaves = [copy_leaf(leaf) for leaf in step.leaves]
        made: Step
        if isinstance(step, Branch):
            first, second = (
                Way([copy_step(inner) for inner in way.steps], [*map(copy_leaf, way.results)])
                for way in step.ways
            )
            made = Branch(leaves, step.node, (first, second))
        else:
            made = Call(step.target, leaves, step.spec, step.node, list(step.twins))
        copies[id(step)] = made
        return made

    return [copy_step(step) for step in steps]


def follows(steps: Sequence[Step], run: Run) -> bool:
    """True if joined steps, with the answers of a recorded path, are those that it recorded."""
    values: dict[Any, Any] = {}
    recorded = iter(run.recorded)
    answers = iter(run.answers)

    def resolve(leaf: Any) -> Any:
        while isinstance(leaf, Choice):
            leaf = values[leaf]
        return values.get(leaf, leaf) if isinstance(leaf, Call) else leaf

    def is_same(leaf: Any, other: Any) -> bool:
        leaf = resolve(leaf)
        if isinstance(leaf, Constant) and isinstance(other, Constant):
            return is_same_constant(leaf, other)
        if isinstance(leaf, VALUES):
            return leaf is other or (isinstance(leaf, Input) and bool(leaf == other))
        return type(leaf) is type(other) and bool(leaf == other)

    def next_recorded(asks: bool) -> tuple[Any, tuple[Any, ...]]:
        """The next step; questions that cannot be asserted are passed over."""
        for step, leaves in recorded:
            if asks or step.target is not ask:
                return step, leaves
            next(answers)
        return None, ()

    def walk(given: Sequence[Step]) -> Iterator[bool]:
        for step in given:
            asks = isinstance(step, Branch) or step.target is check
            found, leaves = next_recorded(asks)
            if found is None:
                yield False
                return
            if isinstance(step, Branch):
                yield found.target is ask and is_same(step.leaves[0], leaves[0])
                way = step.ways[0 if next(answers) else 1]
                yield from walk(way.steps)
                values.update(
                    {Choice(step, i): resolve(result) for i, result in enumerate(way.results)}
                )
                continue
            if step.target is check and found.target is ask:
                next(answers)
                yield is_same(step.leaves[0], leaves[0])
                continue
            yield step.target is found.target and len(step.leaves) == len(leaves)
            yield all(map(is_same, step.leaves, leaves))
            values[step] = found

    return all(walk(steps)) and next(recorded, None) is None
