"""Replaces the three recorded steps of a loop by one call with a body."""

from __future__ import annotations

import contextlib
import copy
import itertools
import operator
from collections.abc import Iterator, Sequence
from typing import Any

import torch
import torch.fx

from onnx_aot.capture.error_hints import UnrollableError
from onnx_aot.capture.loops.compare import (
    END,
    Constant,
    Matched,
    Outer,
    Recorded,
    Slot,
    Source,
    expression_of,
    is_size,
    skip_identity,
)
from onnx_aot.capture.loops.history import Loop
from onnx_aot.capture.loops.steps import Loops
from onnx_aot.metadata.provenance import location
from onnx_aot.torch_compat import (
    ASSERTIONS,
    OpOverload,
    aten,
    fake_mode_of,
    pytree,
    schema_of,
    storage_key,
)
from onnx_aot.torch_ops.loop_marks import COLLECTED, JOINED, LOOP_STEP
from onnx_aot.torch_ops.rolled_loops import rolled

__all__ = ["roll_loops"]

Node = torch.fx.Node

_STACKED = (
    "use its first or last element, or join the whole list, torch.stack(values, dim); compute with "
    "its elements inside of the loop, on the joined tensor, or in a loop over enumerate(values), "
    "zip(values, others) or reversed(values)"
)
_COPY = "write to a copy, value.clone(), or compute a new tensor"


def roll_loops(program: torch.export.ExportedProgram, loops: Loops, changed: Sequence[str]) -> None:
    """Replaces the recorded steps of each loop of a program by one call of ``rolled``.

    Args:
        program: The program.
        loops: The loops.
        changed: Python numbers of the model that ``forward`` changes.

    Raises:
        UnrollableError: The steps of a loop differ, or later code uses one of them.
    """
    if loops.problem is not None:
        raise loops.problem
    if not loops.made:
        raise UnrollableError("", "")  # it is in code whose builtins are not replaced
    if changed:
        raise UnrollableError(
            f"forward changes numbers of the model, {', '.join(changed)}, and its steps may depend "
            "on them",
            "keep such a number in a buffer",
            loops.made[0].location,
        )
    constants = _find_constants(program)
    for loop in reversed(loops.made):  # the inner ones first
        try:
            rolling = _Rolling(_find_graph(program.graph_module, loop), loop, constants)
            rolling.run()
        except UnrollableError as error:
            error.location = error.location or loop.location
            raise
        for symbol in rolling.numbers:
            limits = program.range_constraints.pop(symbol, None)
            if limits is not None and symbol is rolling.number:
                program.range_constraints[symbol] = type(limits)(0, limits.upper)
    _rename_outputs(program)


def _find_graph(module: torch.fx.GraphModule, loop: Loop) -> torch.fx.GraphModule:
    """The graph that has a loop: the program's, or one of code under ``torch.no_grad()``."""
    for each in module.modules():
        if isinstance(each, torch.fx.GraphModule):
            nodes = each.graph.nodes
            if any(node.target == LOOP_STEP and node.args[2] == loop.number for node in nodes):
                return each
    return module


def _find_constants(program: torch.export.ExportedProgram) -> dict[str, torch.Tensor]:
    """Constant tensors by the name of the input of the graph that stands for them."""
    return {
        spec.arg.name: program.constants[spec.target]
        for spec in program.graph_signature.input_specs
        if spec.target in program.constants
        and isinstance(program.constants[spec.target], torch.Tensor)
    }


def _rename_outputs(program: torch.export.ExportedProgram) -> None:
    output = next(iter(reversed(program.graph.nodes)))
    specs = program.graph_signature.output_specs
    for position, (spec, value) in enumerate(zip(specs, output.args[0], strict=True)):
        if isinstance(value, Node) and spec.arg.name != value.name:
            specs[position] = copy.copy(spec)
            specs[position].arg = copy.copy(spec.arg)
            specs[position].arg.name = value.name


class _Rolling:
    """The replacement of one loop.

    Attributes:
        numbers: The symbols of the numbers of the steps.
        number: The one that the body has. It begins at 0 if all steps are in the loop.
    """

    def __init__(
        self, module: torch.fx.GraphModule, loop: Loop, constants: dict[str, torch.Tensor]
    ) -> None:
        self._module, self._loop, self._constants = module, loop, constants
        self._graph = module.graph
        self._marks = [
            node
            for node in self._graph.nodes
            if node.target == LOOP_STEP and node.args[2] == loop.number
        ]
        if len(self._marks) != 4:
            raise UnrollableError(
                "it is left before its end, or runs under torch.no_grad() or torch.autocast()",
                "let it run for all steps, and choose with torch.where in place of break and "
                "return; enter such a context around the call of the model",
            )
        for node in list(_between(self._marks[0], self._marks[3])):
            if node.target in ASSERTIONS:
                self._graph.erase_node(node)
        steps = [
            Recorded([mark, *_between(mark, end)]) for mark, end in itertools.pairwise(self._marks)
        ]
        self._first, self._second, self._third = steps
        numbers = self.numbers = [_number_of(mark) for mark in self._marks]
        self.number = numbers[1]
        self._matched = Matched(
            self._second, self._third, (numbers[1], numbers[2]), self._is_same_constant
        )
        self._collected = [
            node
            for node in self._graph.nodes
            if node.target in (COLLECTED, JOINED) and node.args[4] == loop.number
        ]
        self._sources = [
            self._matched.resolve(node.args[1], node.args[2], node) for node in self._collected
        ]
        self._matched.find_following()  # of slots that only lists need
        self._inside = {node for step in steps for node in step.nodes}
        self._whole = self._matched.match_first(self._first, numbers[1])
        if self._whole is not None and any(map(self._is_used_later, self._whole.values)):
            self._whole = None
        if not all(map(self._begins_with_first, self._collected, self._sources)):
            self._whole = None
        self._removed = {*self._second.nodes, *self._third.nodes}
        if self._whole is not None:
            others = set(self._first.values) - set(self._whole.values)
            self._removed |= set(self._first.nodes) - others
        self._begin = self._marks[1]
        self._kept = self._find_kept_sizes()

    def run(self) -> None:
        """Replaces the steps, from the second one on if the first one differs."""
        written = self._find_written()
        pairs = list(zip(self._collected, self._sources, strict=True))
        made = list(dict.fromkeys(source for node, source in pairs if node.target == COLLECTED))
        joined = [(node, source) for node, source in pairs if node.target == JOINED]
        finals = self._find_finals(made)
        slots = self._matched.slots
        whole = self._whole
        first_values = [s.second if whole is None else whole.initial[s] for s in slots]
        body = _Body(self._matched, self._marks[1], self._removed, whole is not None)
        inputs = body.build(written, [*made, *(source for _, source in joined)])
        joins = [node for node, _ in joined]
        results = self._call(body, [*first_values, *written], inputs, joins) if body.values else []
        last = dict(zip(slots, results, strict=False))
        stacked = dict(zip(made, results[len(slots) + len(written) :], strict=False))
        with self._graph.inserting_before(self._begin):
            for node, result in zip(written, results[len(slots) :], strict=False):
                # Run, copy_ would take a size that is 1 in the example for one that is always 1.
                self._emit(aten.copy_.default, node, result, value=node.meta["val"])
            for source, nodes in finals.items():
                value = (
                    last[source]
                    if isinstance(source, Slot)
                    else self._emit(aten.select.int, stacked[source], 0, -1)
                )
                for node in nodes:
                    node.replace_all_uses_with(value, self._is_outside)
        for node, source in pairs:
            if node.target == COLLECTED:
                self._replace_collected(node, source, stacked[source])
        for node, result in zip(joins, results[len(results) - len(joins) :], strict=True):
            node.replace_all_uses_with(result)
            self._graph.erase_node(node)
        self._erase()

    # --- uses of the recorded steps ---

    def _is_same_constant(self, one: Node, other: Node) -> bool:
        first, second = (self._constants.get(node.name) for node in (one, other))
        if first is None or second is None or first.dtype != second.dtype:
            return False
        return first.shape == second.shape and torch.equal(first, second)

    def _is_used_later(self, node: Node) -> bool:
        """True if other code uses a value of the first step itself, or a size of it."""
        return any(
            self._is_used_later(user)
            if user in self._first.nodes and is_size(user)
            else user not in self._inside and user not in self._collected
            for user in node.users
        )

    def _begins_with_first(self, node: Node, source: Source) -> bool:
        """True for lists of stacked values, and for those of pieces of all steps."""
        if self._whole is None or node.target == COLLECTED:
            return True
        first: Any = node.args[0]
        return skip_identity(first) is self._find_first(source)

    def _is_outside(self, user: Node) -> bool:
        return user not in self._removed or user in self._kept

    def _find_kept_sizes(self) -> set[Node]:
        """Sizes that later code uses, and that the steps only happen to compute first."""
        kept: set[Node] = set()
        for node in reversed(list(self._graph.nodes)):
            if node not in self._removed or not is_size(node):
                continue
            if not any(user not in self._removed or user in kept for user in node.users):
                continue
            kept.add(node)
            own = self._second.made | self._third.made
            if own & getattr(expression_of(node), "free_symbols", set()):
                raise UnrollableError(
                    "code after the loop uses the number of a step, or a size that depends on it",
                    "compute it from the size that gives the number of steps",
                )
        return kept

    def _find_finals(self, made: list[Source]) -> dict[Source, list[Node]]:
        """The values of the last step that later code uses, with the nodes that stand for them.

        Adds to ``made`` those that no step hands on, if the body makes all steps.
        """
        found: dict[Source, list[Node]] = {}
        for position, node in enumerate(self._second.values):
            users = [u for u in node.users if self._is_outside(u)]
            users = [u for u in users if u not in self._collected]
            if all(is_size(user) for user in users):
                if users:
                    found.setdefault(self._find_final(position, made), []).append(node)
                continue
            raise UnrollableError(
                "code after the loop uses a value of one of the steps in the middle, such as "
                "an element of a list, or goes through the list",
                _STACKED,
                location(next(user for user in users if not is_size(user))),
            )
        for position, node in enumerate(self._third.values):
            if any(self._is_outside(u) and u not in self._collected for u in node.users):
                found.setdefault(self._find_final(position, made), []).append(node)
        return found

    def _find_final(self, position: int, made: list[Source]) -> Source:
        for slot in self._matched.slots:
            if slot.following == position:
                return slot
        node = self._second.values[position]
        if not isinstance(node.meta.get("val"), torch.Tensor):
            raise UnrollableError(
                "code after the loop uses a number that its last step computes",
                "keep it as a tensor",
            )
        if self._whole is not None:
            if position not in made:
                made.append(position)
            return position
        values = self._first.values
        at = len(values) - len(self._second.values) + position
        if at < 0 or not _is_alike(values[at], node):
            raise UnrollableError(
                "its first step differs from the others, and code after the loop uses a value of "
                "the last step that it does not hand on",
                "give the variables their first values before the loop",
            )
        slot = Slot(values[at], node, following=position)
        self._matched.add_slot(slot)
        return slot

    def _find_written(self) -> list[Node]:
        """The tensors from outside that a step writes to.

        Raises:
            UnrollableError: They are read under another name.
        """
        written, next_written = (
            {_storage(leaf) for node in step.values for leaf in _find_writes(node)}
            for step in (self._second, self._third)
        )
        sources = {source for sources in self._matched.sources for source in sources}
        found = []
        for storage in written - {None}:
            outer = [s.node for s in sources if isinstance(s, Outer)]
            outer = list(dict.fromkeys(node for node in outer if _storage(node) == storage))
            slots = [slot for slot in self._matched.slots if _storage(slot.second) == storage]
            collected = any(_storage(node.args[1]) == storage for node in self._collected)
            earlier = itertools.takewhile(lambda n: n is not self._marks[1], self._graph.nodes)
            before = [node for node in earlier if _storage(node) == storage]
            later = any(self._is_after(user) for node in before for user in node.users)
            if not before and storage not in next_written:
                continue  # the step made it, and no later one writes to it
            if len(outer) + len(slots) > 1 or collected or (slots and later):
                raise UnrollableError(
                    "a step writes to a tensor that is also used under another name", _COPY
                )
            found += outer
        return found

    def _is_after(self, user: Node) -> bool:
        if user in self._inside:
            return False
        return self._marks[3] in itertools.takewhile(lambda n: n is not user, self._graph.nodes)

    # --- the new nodes ---

    def _call(
        self,
        body: _Body,
        carried: Sequence[Node],
        inputs: Sequence[Node],
        joined: Sequence[Node],
    ) -> list[Node]:
        """Adds the call, and returns its results.

        Args:
            body: The body.
            carried: Values that a step hands on.
            inputs: Values from outside.
            joined: Calls that join what the last results of the body are.
        """
        count: Any = self._marks[0].args[1 if self._whole is None else 0]
        steps = count.meta["val"] if isinstance(count, Node) else count
        name = f"loop_{self._loop.number}"
        self._module.add_submodule(name, body.module)
        with self._graph.inserting_before(self._begin):
            attribute = self._graph.create_node("get_attr", name)
            arguments: list[Any] = [count, attribute, list(carried), list(inputs)]
            if joined:
                starts = [None if self._whole is not None else node.args[0] for node in joined]
                arguments += [starts, [(node.args[6], node.args[5]) for node in joined]]
            call = self._graph.call_function(rolled, tuple(arguments))
            call.meta = _provenance(self._marks[0])
            values = [self._make_empty(value) for value in body.values[: len(carried)]]
            made = body.values[len(carried) : len(body.values) - len(joined)]
            values += [self._make_empty(value, steps) for value in made]
            values += [node.meta["val"] for node in joined]
            call.meta["val"] = tuple(values)
            results = []
            for position, value in enumerate(values):
                result = self._graph.call_function(operator.getitem, (call, position))
                result.meta = {**_provenance(self._marks[0]), "val": value}
                results.append(result)
        return results

    def _make_empty(self, like: torch.Tensor, *sizes: Any) -> torch.Tensor:
        with fake_mode_of(like) or contextlib.nullcontext():
            return torch.empty([*sizes, *like.shape], dtype=like.dtype, device=like.device)

    def _emit(self, target: OpOverload, *args: Any, value: Any = None) -> Node:
        """Adds a call with its recorded result, which is computed unless it is given."""
        node = self._graph.call_function(target, args)
        if value is None:
            values = torch.fx.map_arg(args, lambda given: given.meta["val"])
            with fake_mode_of(values) or contextlib.nullcontext():
                value = target(*values)
        node.meta = {**_provenance(self._marks[0]), "val": value}
        return node

    def _replace_collected(self, node: Node, source: Source, stacked: Node) -> None:
        """Replaces the values of all steps by what the loop collected."""
        first: Any = node.args[0]
        with self._graph.inserting_before(node):
            whole = stacked
            if self._whole is not None:
                begins = self._find_first(source)
                if first is None or skip_identity(first) is not begins:
                    whole = self._emit(aten.slice.Tensor, stacked, 0, 1, END)
                else:
                    first = None
            if first is not None:
                before = self._emit(aten.unsqueeze.default, first, 0)
                whole = self._emit(aten.cat.default, [before, whole], 0)
            if node.args[5]:
                whole = self._emit(aten.flip.default, whole, [0])
        node.replace_all_uses_with(whole)
        self._graph.erase_node(node)

    def _find_first(self, source: Source) -> Node | None:
        """The node of a value at the first step."""
        assert self._whole is not None
        if isinstance(source, int):
            return self._whole.values[source]
        return self._whole.initial.get(source) if isinstance(source, Slot) else None

    def _erase(self) -> None:
        """Erases the recorded steps.

        Raises:
            UnrollableError: Code after the loop still uses a value of them.
        """
        for node in reversed([n for n in self._graph.nodes if n in self._removed - self._kept]):
            if node.users:
                raise UnrollableError(
                    "code after the loop uses a value of one of its steps", _STACKED, location(node)
                )
            self._graph.erase_node(node)
        for mark in (self._marks[3], self._marks[0]):
            if mark not in self._removed:
                _erase_with_users(mark)


class _Body:
    """The graph of one step.

    Attributes:
        module: The graph.
        values: Recorded values of its results.
    """

    def __init__(self, matched: Matched, mark: Node, removed: set[Node], is_whole: bool) -> None:
        self._matched, self._removed = matched, removed
        self._graph = torch.fx.Graph()
        self._copies: dict[Node, Node] = {}
        self._inputs: list[Node] = []
        step = self._last = self._graph.placeholder("step")
        self._parameters = {
            slot: self._add_parameter("carried", slot.second) for slot in matched.slots
        }
        number = mark.meta["val"][0]
        step.meta["val"] = number if is_whole else number - 1
        if not is_whole:
            step = self._graph.call_function(operator.add, (step, 1))
            step.meta["val"] = number
        self._copies |= dict.fromkeys(mark.users, step)

    def build(self, written: Sequence[Node], made: Sequence[Source]) -> list[Node]:
        """Adds the nodes of a step, and returns the values that it reads from outside.

        Args:
            written: Values from outside that a step writes to.
            made: Values to collect.
        """
        for node in written:
            self._copies[node] = self._add_parameter("written", node)
        for node, sources in zip(self._matched.second.values, self._matched.sources, strict=True):
            _, spec = pytree.tree_flatten((node.args, node.kwargs))
            args, kwargs = pytree.tree_unflatten([self._find(s) for s in sources], spec)
            self._copies[node] = self._copy(node, args, kwargs)
        slots = self._matched.slots
        following: list[Source] = [slot.following for slot in slots]  # type: ignore[misc]
        results = [
            *map(self._find, following),
            *(self._copies[node] for node in written),
            *map(self._find, made),
        ]
        self._graph.output(tuple(results))
        self.module = torch.fx.GraphModule(torch.nn.Module(), self._graph)
        self.values = [result.meta["val"] for result in results]
        return self._inputs

    def _find(self, source: Source) -> Any:
        """The node, or Python object, that a source stands for."""
        if isinstance(source, int):
            return self._copies[self._matched.second.values[source]]
        if isinstance(source, Slot):
            return self._parameters[source]
        return (
            self._find_size(source.value)
            if isinstance(source, Constant)
            else self._find_outer(source.node)
        )

    def _find_outer(self, node: Node) -> Node:
        if node not in self._copies:
            self._copies[node] = self._add_parameter("outer", node)
            self._inputs.append(node)
        return self._copies[node]

    def _find_size(self, value: Any) -> Any:
        """A size or other Python object. Sizes that the recorded steps compute are copied."""
        if not isinstance(value, Node):
            return value
        if value in self._copies:
            return self._copies[value]
        expression = expression_of(value)
        if expression.is_Integer:
            return int(expression)
        if value not in self._removed:
            return self._find_outer(value)
        if not is_size(value):
            raise UnrollableError(
                "it uses a size of another step", "compute it before the loop", location(value)
            )
        args, kwargs = torch.fx.map_arg((value.args, value.kwargs), self._find_size)
        self._copies[value] = self._copy(value, args, kwargs)
        return self._copies[value]

    def _copy(self, node: Node, args: Any, kwargs: Any) -> Node:
        copied = self._graph.create_node(node.op, node.target, args, kwargs)
        copied.meta = dict(node.meta)
        return copied

    def _add_parameter(self, name: str, node: Node) -> Node:
        with self._graph.inserting_after(self._last):
            self._last = self._graph.placeholder(f"{name}_{node.name}")
        self._last.meta["val"] = node.meta["val"]
        return self._last


def _between(begin: Node, end: Node) -> Iterator[Node]:
    node = begin.next
    while node is not end:
        yield node
        node = node.next


def _number_of(mark: Node) -> Any:
    """The symbol of the number of a step."""
    return expression_of(mark.meta["val"][0])


def _erase_with_users(node: Node) -> None:
    """Erases a node, and those that are computed from it."""
    for user in list(node.users):
        if user in node.users:
            _erase_with_users(user)
    node.graph.erase_node(node)


def _is_alike(node: Node, other: Node) -> bool:
    one, two = (each.meta.get("val") for each in (node, other))
    if node.target is not other.target or not isinstance(one, torch.Tensor):
        return False
    assert isinstance(two, torch.Tensor)
    return one.dtype == two.dtype and list(map(str, one.shape)) == list(map(str, two.shape))


def _storage(node: Node) -> int | None:
    value = node.meta.get("val")
    if not isinstance(value, torch.Tensor) or value.layout != torch.strided:
        return None
    return storage_key(value)


def _find_writes(node: Node) -> Iterator[Node]:
    """Yields the arguments that a call writes to."""
    if not isinstance(node.target, OpOverload):
        return
    schema = schema_of(node.target)
    names = [argument.name for argument in schema.arguments]
    given = {**dict(zip(names, node.args, strict=False)), **node.kwargs}
    for argument in schema.arguments:
        is_write = argument.alias_info is not None and argument.alias_info.is_write
        if is_write or (argument.name in STATISTICS and given.get("training")):
            for leaf in pytree.tree_leaves(given.get(argument.name)):
                if isinstance(leaf, Node):
                    yield leaf


STATISTICS = ("running_mean", "running_var")
"""Arguments of normalizations that are written to in training, which their schema does not say."""


def _provenance(node: Node) -> dict[str, Any]:
    keys = ("nn_module_stack", "stack_trace", "torch_fn")
    return {key: node.meta[key] for key in keys if key in node.meta}
