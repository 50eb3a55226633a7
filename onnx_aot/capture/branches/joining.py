"""Joins the steps of two paths into one sequence with a branch."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterator, Sequence
from typing import Any

import torch

from onnx_aot.capture.branches.steps import (
    Branch,
    Call,
    Choice,
    Constant,
    Input,
    Step,
    Way,
    list_steps,
    list_uses,
)
from onnx_aot.capture.error_hints import UnjoinableError
from onnx_aot.torch_compat import (
    OpOverload,
    pytree,
    schema_of,
    storage_key,
    with_real_tensors,
    without_recording,
)

__all__ = [
    "SAME_KINDS",
    "STRUCTURES",
    "DifferentBeginningError",
    "is_same_constant",
    "join",
    "read_writes",
]

VALUES = (Call, Choice, Input, Constant)

STRUCTURES = "they return different structures"
SAME_KINDS = (
    "compute the same on both sides: as many results, each with the same dtype and number of "
    "dimensions, and a tensor in place of None"
)


class DifferentBeginningError(UnjoinableError):
    """Two paths compute other values before their first different answer."""

    def __init__(self) -> None:
        super().__init__(
            "the model computes other values before the branch when it runs again",
            "forward must not depend on what earlier calls left in globals and objects",
        )


@dataclasses.dataclass(frozen=True, eq=False)
class _Pair:
    """A value that one path uses where the other path uses ``other``."""

    place: tuple[list[Any], int]
    value: Any
    other: Any


def join(steps: list[Step], others: list[Step], at: int) -> list[Step]:
    """Joins two paths that are equal up to a question.

    The ways end where the rest of both paths is equal again.

    Args:
        steps: The path on which the answer is True. Its steps become part of the result.
        others: The path on which it is False.
        at: Position of the question in both.

    Raises:
        DifferentBeginningError: The paths differ before the question.
        UnjoinableError: They differ in the kinds of their results.
    """
    paths = _Paths(steps, others, at)
    paths.check_beginning()
    length, choices = paths.find_end()
    ways = (
        Way(steps[at + 1 : len(steps) - length], []),
        Way(others[at + 1 : len(others) - length], []),
    )
    asked = steps[at]
    branch = Branch(asked.leaves[:1], asked.node, ways)
    positions: dict[tuple[Any, Any], int] = {}
    for pair in choices:
        position = positions.setdefault((pair.value, pair.other), len(positions))
        holder, index = pair.place
        holder[index] = Choice(branch, position)
    for value, other in positions:
        ways[0].results.append(value)
        ways[1].results.append(other)
    paths.use_values_of_first(ways[1])
    return [*steps[:at], branch, *steps[len(steps) - length :]]


class _Paths:
    """Two paths and the positions of their steps."""

    def __init__(self, steps: list[Step], others: list[Step], at: int) -> None:
        self.steps, self.others, self.at = steps, others, at
        self._first = {id(step): position for position, step in enumerate(steps)}
        self._second = {id(step): position for position, step in enumerate(others)}

    def check_beginning(self) -> None:
        """Checks that both paths compute the same up to the question.

        Raises:
            DifferentBeginningError: They do not.
        """
        for position in range(self.at + 1):
            pairs = _compare(self.steps[position], self.others[position], {})
            asks = position == self.at
            if pairs is None or not all(map(self._is_same, pairs)):
                if asks and pairs is None:
                    pairs = _compare_leaves(
                        self.steps[position].leaves[:1], self.others[position].leaves[:1], {}
                    )
                    if pairs is not None and all(map(self._is_same, pairs)):
                        continue
                raise DifferentBeginningError

    def find_end(self) -> tuple[int, list[_Pair]]:
        """The number of last steps that are equal, and the values that they choose.

        Raises:
            UnjoinableError: Not even the kinds of the results are equal.
        """
        most: float = min(len(self.steps), len(self.others)) - self.at - 1
        found: list[list[_Pair]] = []
        while len(found) < most:
            offset = len(found) + 1
            pairs = _compare(self.steps[-offset], self.others[-offset], {})
            if pairs is None:
                break
            most = min(most, *(self._latest_end(pair) for pair in pairs), most)
            if len(found) < most:
                found.append(pairs)
        reason = self._find_different_numbers() or (STRUCTURES, SAME_KINDS)
        for length in range(len(found), 0, -1):
            pairs = [pair for some in found[:length] for pair in some]
            choices = [pair for pair in pairs if not self._is_same(pair, length)]
            problem = self._find_problem(choices, length)
            if problem is None:
                return length, choices
            reason = problem
        raise UnjoinableError(*reason)

    def _find_different_numbers(self) -> tuple[str, str] | None:
        """Says which Python numbers the paths return, if these are what differs last."""
        first, second = self.steps[-1].leaves, self.others[-1].leaves
        pairs = zip(first, second, strict=True) if len(first) == len(second) else ()
        for pair in pairs:
            if all(type(value) in (int, float) for value in pair) and pair[0] != pair[1]:
                return (
                    f"they return different numbers, such as {pair[0]} and {pair[1]}",
                    "return a tensor in place of a Python number that depends on the branch: "
                    "torch.tensor(number)",
                )
        return None

    def use_values_of_first(self, way: Way) -> None:
        """Replaces values before the question by those of the first path."""
        results = ((way.results, position) for position in range(len(way.results)))
        for holder, index in (*list_uses(way.steps), *results):
            position = self._second.get(id(holder[index]))
            if position is not None and position < self.at:
                step = self.steps[position]
                if isinstance(step, Call) and holder[index] not in step.twins:
                    step.twins.append(holder[index])
                holder[index] = step

    def _latest_end(self, pair: _Pair) -> float:
        """The most last steps that can be equal if one of them uses a pair of values."""
        first, second = self._offset(pair.value, True), self._offset(pair.other, False)
        if first == second and _position(pair.value) == _position(pair.other):
            return math.inf
        return min(first, second)

    def _offset(self, value: Any, first: bool) -> float:
        """Counts the steps after a value; infinite for values before the question."""
        steps, positions = (self.steps, self._first) if first else (self.others, self._second)
        step = value.branch if isinstance(value, Choice) else value
        position = positions.get(id(step), -1)
        return math.inf if position <= self.at else len(steps) - 1 - position

    def _is_same(self, pair: _Pair, length: int = 0) -> bool:
        """True if a pair is one value, computed before the question or in the last steps."""
        value, other = pair.value, pair.other
        if isinstance(value, Input):
            return bool(value == other)
        if isinstance(value, Constant) or isinstance(other, Constant):
            return is_same_constant(value, other)
        first, second = self._offset(value, True), self._offset(other, False)
        if math.isinf(first) and math.isinf(second):
            return self._first.get(id(value)) == self._second.get(id(other))
        return first == second and first < length and _position(value) == _position(other)

    def _find_problem(self, choices: Sequence[_Pair], length: int) -> tuple[str, str] | None:
        """Why the ways cannot end before the last steps, and a fix; None if they can."""
        written = [read_writes(path[len(path) - length :]) for path in (self.steps, self.others)]
        for pair in choices:
            kinds = [_kind(_recorded_value(value)) for value in (pair.value, pair.other)]
            if None in kinds or kinds[0] != kinds[1]:
                shown = " and ".join(str(kind or "another object") for kind in kinds)
                return f"they compute {shown} for the same value", SAME_KINDS
            for value, storages in zip((pair.value, pair.other), written, strict=True):
                if storages & set(find_storages(value)):
                    return (
                        "a value of one side is written to after the branch",
                        "write to a copy, value.clone(), or compute a new tensor",
                    )
        return None


def _recorded_value(value: Any) -> Any:
    """The fake tensor or symbolic number that was recorded for a value."""
    if isinstance(value, Choice):
        return _recorded_value(value.branch.ways[0].results[value.position])
    return value.node.meta.get("val") if isinstance(value, Call) else value.value


def find_storages(value: Any) -> Iterator[int]:
    """Yields keys of the memory that a value may have."""
    if isinstance(value, Choice):
        for way in value.branch.ways:
            yield from find_storages(way.results[value.position])
    elif isinstance(value, VALUES):
        for twin in getattr(value, "twins", ()):
            yield from find_storages(twin)
        for leaf in pytree.tree_leaves(_recorded_value(value)):
            if isinstance(leaf, torch.Tensor):
                yield storage_key(leaf)


def read_writes(steps: Sequence[Step]) -> set[int]:
    """Keys of the memory that steps write to."""
    found: set[int] = set()
    for step in list_steps(steps):
        if isinstance(step, Call):
            for value in _list_written(step):
                found.update(find_storages(value))
    return found


def _list_written(call: Call) -> Iterator[Any]:
    if isinstance(call.target, OpOverload):
        args, kwargs = pytree.tree_unflatten(call.leaves, call.spec)
        for position, argument in enumerate(schema_of(call.target).arguments):
            if argument.alias_info is not None and argument.alias_info.is_write:
                given = args[position] if position < len(args) else kwargs.get(argument.name)
                yield from (leaf for leaf in pytree.tree_leaves(given) if isinstance(leaf, VALUES))
    elif any(
        isinstance(getattr(leaf, "value", None), torch.fx.GraphModule) for leaf in call.leaves
    ):
        yield from (leaf for leaf in call.leaves if isinstance(leaf, VALUES))


def _position(value: Any) -> int | None:
    return value.position if isinstance(value, Choice) else None


def _kind(value: Any) -> str | None:
    """Words for the kinds of values that a branch can choose between; None for others."""
    if isinstance(value, torch.Tensor):
        return f"a {value.dtype} tensor with {value.ndim} dimensions"
    if isinstance(value, (bool, torch.SymBool)):
        return None
    if isinstance(value, (int, torch.SymInt)):
        return "an int"
    return "a float" if isinstance(value, (float, torch.SymFloat)) else None


# --- comparison ----------------------------------------------------------------------------------


def _compare(step: Step, other: Step, inner: dict[int, Step]) -> list[_Pair] | None:
    """The pairs of values that two steps use if they are equal otherwise; None if not.

    Args:
        step: A step of the first path.
        other: A step of the second one.
        inner: Steps inside of a branch of the first path, with those of the second one.
    """
    if isinstance(step, Call) and isinstance(other, Call):
        if step.target is not other.target or step.spec != other.spec:
            return None
        return _compare_leaves(step.leaves, other.leaves, inner)
    if not isinstance(step, Branch) or not isinstance(other, Branch):
        return None
    pairs = _compare_leaves(step.leaves, other.leaves, inner)
    for way, other_way in zip(step.ways, other.ways, strict=True):
        if pairs is None or len(way.steps) != len(other_way.steps):
            return None
        within = dict(inner)
        for one, two in zip(way.steps, other_way.steps, strict=True):
            found = _compare(one, two, within)
            if found is None:
                return None
            within[id(one)] = two
            pairs += found
        results = _compare_leaves(way.results, other_way.results, within)
        pairs = None if results is None else [*pairs, *results]
    return pairs


def _compare_leaves(
    leaves: list[Any], others: list[Any], inner: dict[int, Step]
) -> list[_Pair] | None:
    if len(leaves) != len(others):
        return None
    pairs = []
    for index, (leaf, other) in enumerate(zip(leaves, others, strict=True)):
        if isinstance(leaf, VALUES) != isinstance(other, VALUES):
            return None
        if not isinstance(leaf, VALUES):
            if type(leaf) is not type(other) or leaf != other:
                return None
            continue
        step = leaf.branch if isinstance(leaf, Choice) else leaf
        if id(step) not in inner:
            pairs.append(_Pair((leaves, index), leaf, other))
            continue
        partner = other.branch if isinstance(other, Choice) else other
        if inner[id(step)] is not partner or _position(leaf) != _position(other):
            return None
    return pairs


def is_same_constant(constant: Any, other: Any) -> bool:
    """True for two constants with equal elements, or equal graphs."""
    if not isinstance(constant, Constant) or not isinstance(other, Constant):
        return False
    one, two = constant.value, other.value
    if one is two:
        return True
    if isinstance(one, torch.fx.GraphModule) and isinstance(two, torch.fx.GraphModule):
        has_constants = any(node.op == "get_attr" for node in one.graph.nodes)
        return not has_constants and str(one.graph) == str(two.graph)
    if type(one) is not torch.Tensor or type(two) is not torch.Tensor or one.dtype != two.dtype:
        return False
    with without_recording(), with_real_tensors():
        return one.shape == two.shape and torch.equal(one, two)
