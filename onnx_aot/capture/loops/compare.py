"""Compares recorded steps of a loop, and finds what one step hands on to the next."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import torch
import torch.fx

from onnx_aot.capture.error_hints import UnrollableError
from onnx_aot.metadata.provenance import location
from onnx_aot.torch_compat import OpOverload, aten, pytree, schema_of, symbolic_expression
from onnx_aot.torch_ops.loop_marks import LOOP_STEP

__all__ = [
    "END",
    "Constant",
    "FirstStep",
    "Matched",
    "Outer",
    "Recorded",
    "Slot",
    "Source",
    "expression_of",
    "is_size",
    "skip_identity",
]

Node = torch.fx.Node
SYMBOLIC = (torch.SymInt, torch.SymFloat, torch.SymBool)
END = 2**63 - 1

SAME_STEPS = "compute the same in every step; choose with torch.where, or do it before the loop"


def is_size(node: Node) -> bool:
    """True if a node computes a number from sizes, and does not read one from data."""
    if node.op != "call_function" or node.meta.get("unbacked_bindings"):
        return False
    if "val" not in node.meta:  # conditions that only assertions need
        return getattr(node.target, "__module__", "") == "_operator"
    return isinstance(node.meta["val"], (int, float, *SYMBOLIC))


def _is_mark(node: Node) -> bool:
    """True for a mark of a step, and its results."""
    return any(each.target == LOOP_STEP for each in (node, *node.all_input_nodes[:1]))


def expression_of(value: Any) -> Any:
    """A number as a sympy expression."""
    import sympy

    value = value.meta["val"] if isinstance(value, Node) else value
    return symbolic_expression(value) if isinstance(value, SYMBOLIC) else sympy.sympify(value)


def skip_identity(node: Node) -> Node:
    """The tensor of which a node is a slice with all elements, such as ``x[:]``.

    Python indexes ``x[:, 0]`` with such a slice, and ``x[:, step]`` without.
    """
    while node.target is aten.slice.Tensor:
        given: list[Any] = [*node.args, *(0, None, END, 1)[len(node.args) - 1 :]]
        source, _, start, end, step = given
        if start not in (None, 0) or end not in (None, END) or step != 1:
            break
        node = source
    return node


class Recorded:
    """The nodes that one step recorded.

    Attributes:
        values: Those that compute tensors, and numbers from tensors, in order.
        position: Their positions.
        made: Symbols of sizes and numbers of data that the step made.
    """

    def __init__(self, nodes: Sequence[Node]) -> None:
        self.nodes = list(nodes)
        self.values = [
            node
            for node in nodes
            if node.op == "call_function" and not _is_mark(node)
            if not is_size(node) and skip_identity(node) is node
        ]
        self.position = {node: index for index, node in enumerate(self.values)}
        self.made = {s for node in nodes for s in node.meta.get("unbacked_bindings") or ()}


class Outer(NamedTuple):
    """A value that is the same in every step."""

    node: Node


class Constant(NamedTuple):
    """A Python object, or a size, that is the same in every step but for the step's number."""

    value: Any


@dataclasses.dataclass(eq=False)
class Slot:
    """A value that a step hands on to the next.

    Attributes:
        second: The value at the second step.
        third: The value at the third step.
        first: The value at the first step, if that is equal to the others.
        following: The value at the next step: the position of a node, or another slot.
    """

    second: Node
    third: Node
    first: Node | None = None
    following: int | Slot | None = None


Source = int | Outer | Constant | Slot
"""Origin of an argument: a node of the same step, by its position, or one of the others."""


@dataclasses.dataclass(frozen=True)
class FirstStep:
    """The first step, if it is equal to the others.

    Attributes:
        values: Its nodes, as those of the second step.
        initial: Values of the slots before the loop.
    """

    values: list[Node]
    initial: dict[Slot, Node]


class Matched:
    """The second and the third step, which are equal.

    Args:
        second: The second step.
        third: The third step.
        numbers: The symbols of their numbers.
        is_same_constant: Tells whether two inputs of the graph are equal constants.

    Attributes:
        sources: The origins of the arguments of each node.

    Raises:
        UnrollableError: The steps differ.
    """

    def __init__(
        self,
        second: Recorded,
        third: Recorded,
        numbers: tuple[Any, Any],
        is_same_constant: Callable[[Node, Node], bool],
    ) -> None:
        self.second, self.third = second, third
        self._is_same_constant = is_same_constant
        self.renamed = {numbers[0]: numbers[1]}
        self._slots: dict[tuple[Node, Node], Slot] = {}
        self.sources: list[list[Source]] = []
        for node, other in zip(second.values, third.values, strict=False):
            self._match(node, other)
        if len(second.values) != len(third.values):
            longer = max(second.values, third.values, key=len)
            raise _describe_difference(longer[min(len(second.values), len(third.values))])
        self.find_following()

    @property
    def slots(self) -> list[Slot]:
        """Values that one step hands on to the next."""
        return list(self._slots.values())

    def resolve(self, leaf: Any, other: Any, user: Node) -> Source:
        """The origin of an argument, from the arguments at the second and the third step.

        Raises:
            UnrollableError: The steps use different values.
        """
        if not isinstance(leaf, Node) or not isinstance(other, Node) or is_size(leaf):
            return self._resolve_number(leaf, other, user)
        leaf, other = skip_identity(leaf), skip_identity(other)
        inside, inside_other = self.second.position.get(leaf), self.third.position.get(other)
        if inside is not None or inside_other is not None:
            if inside is None or inside != inside_other:
                raise _describe_difference(user)
            return inside
        if leaf is other or self._is_same_constant(leaf, other):
            return Outer(leaf)
        slot = self._slots.get((leaf, other))
        if slot is None:
            slot = self._slots[leaf, other] = Slot(leaf, other)
            self._check_kinds(slot, user)
        return slot

    def add_slot(self, slot: Slot) -> None:
        """Adds a value that is handed on for the code after the loop."""
        self._slots[slot.second, slot.third] = slot

    def match_first(self, first: Recorded, number: Any) -> FirstStep | None:
        """Compares the first step; None if it differs from the others.

        It may have further nodes, which give variables their first values.

        Args:
            first: The first step.
            number: The symbol of the number of the second step, which is 0 in the first.
        """
        values = self._align(first)
        if values is None:
            return None
        step = FirstStep(values, {})
        renamed: dict[Any, Any] = {number: expression_of(0)}
        for node, other, sources in zip(values, self.second.values, self.sources, strict=True):
            leaves, others = _flatten(node)[0], _flatten(other)[0]
            for leaf, given, source in zip(leaves, others, sources, strict=True):
                if not self._is_same_source(step, leaf, given, source, renamed):
                    return None
            symbols = (self.second.made, first.made)
            if not _is_same_value(other.meta.get("val"), node.meta.get("val"), renamed, symbols):
                return None
        return step if all(self._continues(step, slot, renamed) for slot in self.slots) else None

    def _align(self, first: Recorded) -> list[Node] | None:
        """The nodes of the first step that are counterparts of those of the second."""
        remaining = iter(first.values)
        found: list[Node] = []
        for wanted in self.second.values:
            spec = _flatten(wanted)[1]
            for node in remaining:
                if node.target is wanted.target and _flatten(node)[1] == spec:
                    found.append(node)
                    break
            else:
                return None
        inside = set(found)
        others = [node for node in first.values if node not in inside]
        if any(_depends_on(node, inside, set(first.nodes)) for node in others):
            return None
        return None if any(map(_is_write, others)) else found

    def _is_same_source(
        self, step: FirstStep, leaf: Any, given: Any, source: Source, renamed: Any
    ) -> bool:
        """True if the first step takes an argument from where the second one does."""
        if isinstance(source, Constant):
            return _is_same_number(given, leaf, renamed)
        if not isinstance(leaf, Node):
            return False
        value = skip_identity(leaf)
        if isinstance(source, int):
            return step.values[source] is value
        if value in step.values:
            return False
        if isinstance(source, Slot):
            return step.initial.setdefault(source, value) is value
        return value is source.node or self._is_same_constant(value, source.node)

    def _continues(self, step: FirstStep, slot: Slot, renamed: Any) -> bool:
        """True if the second step gets the value of a slot from the first one."""
        if slot not in step.initial:
            return False
        if isinstance(slot.following, int):
            same = step.values[slot.following] is slot.second
        else:
            same = step.initial.get(slot.following) is slot.second  # type: ignore[arg-type]
        kinds = (slot.second.meta["val"], step.initial[slot].meta["val"])
        return same and _is_same_value(*kinds, renamed, (set(), set()))

    def _match(self, node: Node, other: Node) -> None:
        leaves, spec = _flatten(node)
        others, other_spec = _flatten(other)
        if node.target is not other.target or spec != other_spec:
            raise _describe_difference(other)
        self.sources.append(
            [self.resolve(*pair, node) for pair in zip(leaves, others, strict=True)]
        )
        symbols = (self.second.made, self.third.made)
        if not _is_same_value(node.meta.get("val"), other.meta.get("val"), self.renamed, symbols):
            raise _describe_difference(node)

    def _resolve_number(self, leaf: Any, other: Any, user: Node) -> Source:
        if isinstance(leaf, Node) and leaf in self.second.position:  # a number of data
            if (
                isinstance(other, Node)
                and self.third.position.get(other) == (self.second.position[leaf])
            ):
                return self.second.position[leaf]
            raise _describe_difference(user)
        if not _is_same_number(leaf, other, self.renamed):
            raise UnrollableError(
                "a number is computed from that of the step before, or a Python variable counts "
                f"the steps: {user.target} gets {_show(leaf)} in one step and {_show(other)} in "
                "the next",
                "compute it from the number of the step, which `for step in range(n)` gives, or "
                "keep it in a tensor",
                location(user),
            )
        return Constant(leaf)

    def _check_kinds(self, slot: Slot, user: Node) -> None:
        one, two = (node.meta.get("val") for node in (slot.second, slot.third))
        if _is_same_value(one, two, {}, (set(), set())) and not isinstance(one, (list, tuple)):
            return
        raise UnrollableError(
            "a variable changes its shape or type from step to step: it is "
            f"{_describe(one)} before a step and {_describe(two)} after it",
            "collect what a step adds in a list, values.append(value), and join the list after "
            "the loop, torch.cat(values, dim)",
            location(user),
        )

    def find_following(self) -> None:
        """Finds what each slot is at the next step.

        Raises:
            UnrollableError: No step computes it.
        """
        for slot in self.slots:
            position = self.second.position.get(slot.third)
            if position is not None:
                slot.following = position
                continue
            later = [other for other in self.slots if other.second is slot.third]
            if not later:
                raise UnrollableError(
                    "two steps use values that no step computes", SAME_STEPS, location(slot.second)
                )
            slot.following = later[0]


def _describe_difference(node: Node) -> UnrollableError:
    return UnrollableError(
        f"its steps differ: not every step calls {node.target} with the same operands",
        SAME_STEPS,
        location(node),
    )


def _flatten(node: Node) -> tuple[list[Any], Any]:
    return pytree.tree_flatten((node.args, node.kwargs))


def _is_same_number(leaf: Any, other: Any, renamed: Any) -> bool:
    """True if two Python objects or sizes are equal after the symbols of the first are renamed."""
    sizes = [isinstance(each, Node) and is_size(each) for each in (leaf, other)]
    if any(sizes):  # the other may be a number of data with the same symbol
        pair = zip(sizes, (leaf, other), strict=True)
        sizes = [s or (isinstance(e, Node) and _is_number(e.meta.get("val"))) for s, e in pair]
        numbers = (int, float)
        if not all(s or type(e) in numbers for s, e in zip(sizes, (leaf, other), strict=True)):
            return False
        return bool(expression_of(leaf).xreplace(renamed) == expression_of(other))
    if isinstance(leaf, Node) or isinstance(other, Node):
        return False
    return type(leaf) is type(other) and bool(leaf == other)


def _depends_on(node: Node, values: set[Node], among: set[Node]) -> bool:
    """True if a node is computed from others, by nodes of a set."""
    return any(
        given in values or (given in among and _depends_on(given, values, among))
        for given in node.all_input_nodes
    )


def _is_write(node: Node) -> bool:
    return isinstance(node.target, OpOverload) and schema_of(node.target).is_mutable


def _is_same_value(
    value: Any, other: Any, renamed: dict[Any, Any], made: tuple[set[Any], set[Any]]
) -> bool:
    """True if two recorded values have the same type and sizes after symbols are renamed.

    Symbols that the steps made are added to the renamed ones where they meet.
    """
    if isinstance(value, (list, tuple)) and isinstance(other, (list, tuple)):
        return len(value) == len(other) and all(
            _is_same_value(one, two, renamed, made) for one, two in zip(value, other, strict=True)
        )
    if isinstance(value, torch.Tensor) and isinstance(other, torch.Tensor):
        if value.dtype != other.dtype or value.dim() != other.dim():
            return False
        sizes = zip(value.shape, other.shape, strict=True)
        return all(_is_same_size(one, two, renamed, made) for one, two in sizes)
    if _is_number(value) and _is_number(other):
        one, two = expression_of(value), expression_of(other)
        if one in made[0] and two in made[1]:
            return bool(renamed.setdefault(one, two) == two)
        return bool(one.xreplace(renamed) == two)
    return value is None and other is None


def _is_number(value: Any) -> bool:
    return isinstance(value, (int, float, *SYMBOLIC))


def _is_same_size(
    size: Any, other: Any, renamed: dict[Any, Any], made: tuple[set[Any], set[Any]]
) -> bool:
    if _is_same_value(size, other, renamed, made):
        return True
    one, two = expression_of(size).xreplace(renamed), expression_of(other)
    return bool(_skip_bound(one) == _skip_bound(two))


def _skip_bound(size: Any) -> Any:
    """The size ``n`` for ``Max(0, n)``: one that torch records as ``n`` is not below zero."""
    if type(size).__name__ == "Max" and len(size.args) == 2 and size.args[0] == 0:
        return size.args[1]
    return size


def _show(value: Any) -> str:
    return str(value.meta.get("val", value)) if isinstance(value, Node) else repr(value)


def _describe(value: Any) -> str:
    if isinstance(value, torch.Tensor):
        return f"{value.dtype} [{', '.join(map(str, value.shape))}]"
    return type(value).__name__
