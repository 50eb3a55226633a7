"""Runs or records the branches and loops of a TorchScript graph.

Branches and loops that do not depend on inputs are executed. Otherwise both ways of a branch are
traced, and their results and writes become the outputs of one node. The body of a loop is traced
again until it is known which values differ between steps, starting from the assumption of none.
"""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import torch
import torch.fx

from onnx_aot.capture.scripted import specs
from onnx_aot.capture.scripted.recorder import Recorder, Scope, storage
from onnx_aot.capture.scripted.specs import IncompatibleError, Spec
from onnx_aot.capture.scripted.values import Cell, GivenInt, Leaf
from onnx_aot.errors import CaptureError, message_of
from onnx_aot.torch_compat import aten, symbolic_truth
from onnx_aot.torch_ops.scripted_ops import branch, repeat

__all__ = ["Control", "RaisesError", "State", "same_content"]


UNROLLED = 32
"""Loops are unrolled if their number of steps is known and at most this."""

UNROLLED_NODES = 2000
"""Loops are not unrolled if that creates more nodes than this."""

ENDLESS = 2**63 - 1
"""The trip count of ``while``."""


class RaisesError(CaptureError):
    """The model raises an exception of its own."""


@dataclasses.dataclass
class State:
    """State that nodes can write besides their outputs: lists, dicts, attributes of modules."""

    cells: list[Cell]
    attributes: dict[tuple[str, str], Any]

    def snapshot(self) -> tuple[list[tuple[Cell, Any]], dict[tuple[str, str], Any]]:
        """A copy of the current state."""
        return [(c, c.copy_content()) for c in self.cells], dict(self.attributes)

    def restore(self, saved: Any) -> None:
        """Restores the state from a snapshot."""
        for cell, content in saved[0]:
            cell.content = content.copy() if isinstance(content, (list, dict)) else content
        self.attributes.clear()
        self.attributes.update(saved[1])

    def changes(self, saved: Any) -> dict[Any, Any]:
        """The new values that differ from a snapshot, by cell or by path and name of attribute."""
        changed: dict[Any, Any] = {
            cell: Cell(cell.copy_content(), cell.element)
            for cell, before in saved[0]
            if not same_content(cell.content, before)
        }
        return changed | {
            key: value
            for key, value in self.attributes.items()
            if key not in saved[1] or not specs.same(value, saved[1][key])
        }


def same_content(left: Any, right: Any) -> bool:
    """True if two contents of lists or dicts are the same values."""
    if isinstance(left, dict) and isinstance(right, dict):
        return list(left) == list(right) and all(map(specs.same, left.values(), right.values()))
    if isinstance(left, list) and isinstance(right, list):
        return len(left) == len(right) and all(map(specs.same, left, right))
    return left is right


@dataclasses.dataclass
class Traced:
    """One pass through a block: its graph, its outputs and the changes it makes."""

    scope: Scope
    outputs: list[Any]
    changes: dict[Any, Any]
    stale: set[int]
    placeholders: list[Leaf] = dataclasses.field(default_factory=list)


class Control:
    """The part of the interpreter that runs blocks."""

    recorder: Recorder
    state: State
    env: dict[str, Any]
    run_block: Callable[[Any, Sequence[Any]], list[Any]]
    attribute: Callable[[tuple[str, str]], Any]

    # --- branches --------------------------------------------------------------------------------

    def run_if(self, node: Any) -> None:
        """``prim::If``."""
        condition = self.env[node.inputsAt(0).debugName()]
        blocks = list(node.blocks())
        truth = symbolic_truth(condition.val) if isinstance(condition, Leaf) else bool(condition)
        if truth is not None:
            self._bind(node, self.run_block(blocks[0 if truth else 1], []))
            return
        ways = [self._trace_way(block) for block in blocks]
        if ways[0] is None and ways[1] is None:
            raise RaisesError("the model raises an exception on both ways of a condition")
        for taken, way in enumerate(ways):
            if way is None:  # it raises, so only the other way continues
                self._assert(condition, holds=taken == 1)
                self._bind(node, self.run_block(blocks[1 - taken], []))
                return
        self._bind(node, self._merge(condition, ways))  # type: ignore[arg-type]

    def _assert(self, condition: Leaf, holds: bool) -> None:
        """Records a check, which is dropped unless checks are requested; bodies have none."""
        if self.recorder.scope.parent is None:
            asserted = condition if holds else self.recorder.call(torch.sym_not, condition)
            target = aten._assert_scalar.default
            self.recorder.record(target, None, asserted, "the model would raise an exception")

    def _trace_way(self, block: Any) -> Traced | None:
        saved = self.state.snapshot()
        before = set(self.recorder.stale)
        with self._enter_scope(Scope(self.recorder.scope)) as scope:
            try:
                outputs = self.run_block(block, [])
            except RaisesError:
                return None
            finally:
                changes = self.state.changes(saved)
                self.state.restore(saved)
                stale, self.recorder.stale = self.recorder.stale, before
        return Traced(scope, outputs, changes, stale)

    @contextlib.contextmanager
    def _enter_scope(self, scope: Scope) -> Iterator[Scope]:
        outer, self.recorder.scope = self.recorder.scope, scope
        try:
            yield scope
        finally:
            self.recorder.scope = outer

    def _merge(self, condition: Leaf, ways: list[Traced]) -> list[Any]:
        """Records the node of a branch; returns the values of the block's outputs."""
        slots: list[Any] = list(range(len(ways[0].outputs)))
        slots += [key for way in ways for key in way.changes]
        slots = list(dict.fromkeys(slots))
        pairs = [[self._value_after(way, slot) for way in ways] for slot in slots]
        joined: list[Spec] = []
        for one, other in pairs:
            if specs.same(one, other):
                joined.append(specs.Same(_find_outer(one, [way.scope for way in ways])))
            else:
                joined.append(_joined_ways(one, other))
        written = _find_written([way.scope for way in ways])
        for index, way in enumerate(ways):
            with self._enter_scope(way.scope):
                flat = [
                    leaf
                    for spec, pair in zip(joined, pairs, strict=True)
                    for leaf in specs.flatten(spec, pair[index], self.recorder)
                ]
            _finish(way.scope, [*flat, *written])
        vals = [val for spec in joined for val in specs.vals(spec, self.recorder)]
        vals += [self.recorder.fresh(leaf.val) for leaf in written]
        if not vals:  # the ways differ in nothing that lasts, as if one only prints
            return self._assign_results(slots, joined, [], written)
        bodies = [self._body(way.scope) for way in ways]
        inputs = [_inputs(way.scope) for way in ways]
        results = self.recorder.record(branch, tuple(vals), condition, *bodies, *inputs)
        self._note_alike(joined, pairs, vals)
        self.recorder.stale |= ways[0].stale | ways[1].stale
        return self._assign_results(slots, joined, list(results), written)

    def _note_alike(
        self, joined: list[Spec], given: Sequence[Sequence[Any]], vals: list[Any]
    ) -> None:
        """Notes that a result tensor may be the same tensor as one of several given values."""
        results = iter(vals)
        for spec, values in zip(joined, given, strict=True):
            own = [next(results) for _ in range(specs.width(spec))]
            if isinstance(spec, specs.Same):
                continue
            for value in values:
                for val in own:
                    self.recorder.may_be(val, specs.tensors(value))

    def _value_after(self, way: Traced, slot: Any) -> Any:
        if isinstance(slot, int):
            return way.outputs[slot]
        if slot in way.changes:
            return way.changes[slot]
        return slot if isinstance(slot, Cell) else self.attribute(slot)

    def _assign_results(
        self, slots: list[Any], joined: list[Spec], results: list[Any], written: list[Leaf]
    ) -> list[Any]:
        """Assigns the results of a node to everything it changed; returns the block's outputs."""
        leaves = iter(results)
        outputs = []
        for slot, spec in zip(slots, joined, strict=True):
            value = specs.build(spec, leaves)
            if isinstance(slot, int):
                outputs.append(value)
            elif isinstance(slot, Cell):
                slot.content = value.content
            else:
                self.state.attributes[slot] = value
        for leaf in written:
            self.recorder.call(aten.copy_.default, leaf, next(leaves))
        self._keep_cells(outputs)
        return outputs

    def _keep_cells(self, value: Any) -> None:
        """Adds lists and dicts in a value to the state, so that writes to them are noticed."""
        if isinstance(value, (list, tuple)):
            for item in value:
                self._keep_cells(item)
        elif isinstance(value, Cell):
            self.state.cells.append(value)
            if isinstance(value.content, (list, dict)):
                self._keep_cells(list(value.content))

    def _body(self, scope: Scope) -> torch.fx.Node:
        """Attaches the graph of a body to the current scope; returns the node for it."""
        module = torch.fx.GraphModule(scope.modules, scope.graph)
        return self.recorder.scope.attach(module)

    def _bind(self, node: Any, values: Sequence[Any]) -> None:
        for output, value in zip(node.outputs(), values, strict=True):
            self.env[output.debugName()] = value

    # --- loops -----------------------------------------------------------------------------------

    def run_loop(self, node: Any) -> None:
        """``prim::Loop``."""
        count, proceed, *carried = (self.env[i.debugName()] for i in node.inputs())
        (block,) = node.blocks()
        truth = symbolic_truth(proceed.val) if isinstance(proceed, Leaf) else bool(proceed)
        if truth is False or (isinstance(count, int) and count <= 0):
            self._bind(node, carried)
            return
        proceed = True if truth else proceed
        few = isinstance(count, int) and not isinstance(count, GivenInt)
        few = few and (count <= UNROLLED or count == ENDLESS)
        if few and truth and self._unroll(node, block, count, carried):
            return
        try:
            self._bind(node, self._loop(block, count, proceed, carried))
        except IncompatibleError as error:
            known = isinstance(count, int) and count != ENDLESS and truth
            if not known or not self._unroll(node, block, count, carried, count):
                reason = message_of(error)
                raise IncompatibleError(
                    f"a variable of a loop cannot be kept from step to step: {reason}"
                ) from None

    def _unroll(
        self, node: Any, block: Any, count: int, carried: list[Any], most: int = UNROLLED
    ) -> bool:
        """Runs the steps one by one; returns False, with nothing changed, if that fails."""
        saved = self.state.snapshot()
        stale = set(self.recorder.stale)
        graph = self.recorder.scope.graph
        before = len(graph.nodes)
        step, values = 0, carried
        proceed: Any = True
        try:
            while proceed and step < count:
                proceed, *values = self.run_block(block, [step, *values])
                step += 1
                if isinstance(proceed, Leaf):
                    proceed = symbolic_truth(proceed.val)
                if proceed is None or step > most or len(graph.nodes) - before > UNROLLED_NODES:
                    break
            else:
                self._bind(node, values)
                return True
        except IncompatibleError:
            pass
        for added in reversed(list(graph.nodes)[before:]):
            if added.op != "placeholder" and not added.users:
                graph.erase_node(added)
        self.state.restore(saved)
        self.recorder.stale = stale
        return False

    def _loop(self, block: Any, count: Any, proceed: Any, carried: list[Any]) -> list[Any]:
        """Records the node of a loop; returns the values of the block's outputs."""
        slots: list[Any] = list(range(len(carried)))
        before: dict[Any, Any] = dict(enumerate(carried))
        found: dict[Any, Spec] = {slot: specs.Same(before[slot]) for slot in slots}
        written: list[Leaf] = []
        while True:
            traced = self._trace_step(block, slots, before, found, written)
            changed = False
            for slot in traced.changes:
                if slot not in found:
                    slots.append(slot)
                    is_cell = isinstance(slot, Cell)
                    before[slot] = (
                        Cell(slot.copy_content(), slot.element) if is_cell else self.attribute(slot)
                    )
                    found[slot] = specs.Same(before[slot])
            for slot in slots:
                joined = self._join_specs(slot, traced, before, found)
                changed = changed or joined is not found[slot]
                found[slot] = joined
            now = _find_written([traced.scope])
            if not changed and now == written:
                break
            written = now
        return self._loop_node(traced, count, proceed, slots, before, found, written)

    def _join_specs(
        self, slot: Any, traced: Traced, before: dict[Any, Any], found: dict[Any, Spec]
    ) -> Spec:
        """The spec of a slot after a step; the same object if the traced spec still fits."""
        spec = found[slot]
        after = traced.outputs[slot + 1] if isinstance(slot, int) else traced.changes.get(slot)
        if not isinstance(slot, int) and slot not in traced.changes:
            return spec
        if isinstance(spec, specs.Same):
            if specs.same(after, spec.value):
                return spec
            return specs.join(specs.describe(before[slot]), specs.describe(after))
        joined = specs.join(spec, specs.describe(after))
        return spec if joined == spec else joined

    def _trace_step(
        self,
        block: Any,
        slots: list[Any],
        before: dict[Any, Any],
        found: dict[Any, Spec],
        written: list[Leaf],
    ) -> Traced:
        saved = self.state.snapshot()
        stale_before = set(self.recorder.stale)
        with self._enter_scope(Scope(self.recorder.scope)) as scope:
            step = scope.placeholder("step", self.recorder.new_size())
            placeholders = []
            parameters: list[Any] = []
            for slot in slots:
                own = [
                    scope.placeholder("carried", val)
                    for val in specs.vals(found[slot], self.recorder)
                ]
                placeholders += own
                value = specs.build(found[slot], iter(own))
                for leaf in own:
                    self.recorder.may_be(leaf.val, specs.tensors(before[slot]))
                if isinstance(slot, int):
                    parameters.append(value)
                    self._keep_cells([value])
                elif isinstance(slot, Cell):
                    slot.content = Cell(value.content).copy_content()
                else:
                    self.state.attributes[slot] = value
            for leaf in written:
                scope.carry(leaf, scope.placeholder("written", leaf.val))
            start = self.state.snapshot()
            try:
                outputs = self.run_block(block, [step, *parameters])
            finally:
                changes = self.state.changes(start)
                self.state.restore(saved)
                stale, self.recorder.stale = self.recorder.stale, stale_before
        return Traced(scope, outputs, changes, stale, placeholders)

    def _loop_node(
        self,
        traced: Traced,
        count: Any,
        proceed: Any,
        slots: list[Any],
        before: dict[Any, Any],
        found: dict[Any, Spec],
        written: list[Leaf],
    ) -> list[Any]:
        with self._enter_scope(traced.scope):
            flat: list[Any] = [traced.outputs[0]]
            kept = iter(traced.placeholders)
            for slot in slots:
                spec = found[slot]
                own = [next(kept) for _ in range(specs.width(spec))]
                if isinstance(slot, int):
                    flat += specs.flatten(spec, traced.outputs[slot + 1], self.recorder)
                elif slot in traced.changes:
                    flat += specs.flatten(spec, traced.changes[slot], self.recorder)
                else:
                    flat += own
        _finish(traced.scope, [*flat, *written])
        initial = [
            leaf
            for slot in slots
            for leaf in specs.flatten(found[slot], before[slot], self.recorder)
        ]
        joined = [found[slot] for slot in slots]
        vals = [val for spec in joined for val in specs.vals(spec, self.recorder)]
        vals += [self.recorder.fresh(leaf.val) for leaf in written]
        conditional = isinstance(traced.outputs[0], Leaf) or isinstance(proceed, Leaf)
        results = self.recorder.record(
            repeat,
            tuple(vals),
            None if count == ENDLESS else count,
            proceed if conditional else None,
            self._body(traced.scope),
            [*initial, *written],
            _inputs(traced.scope, 1 + len(initial) + len(written)),
        )
        self._note_alike(joined, [(before[slot],) for slot in slots], vals)
        self.recorder.stale |= traced.stale
        return self._assign_results(slots, joined, list(results), written)


def _find_outer(value: Any, scopes: list[Scope]) -> Any:
    """A value that is the same on both ways, as leaves of the enclosing scope."""
    if isinstance(value, tuple):
        return tuple(_find_outer(item, scopes) for item in value)
    if isinstance(value, Leaf) and value.scope in scopes:
        return next(leaf for leaf in value.scope.inputs if leaf.val is value.val)
    return value


def _joined_ways(one: Any, other: Any) -> Spec:
    try:
        return specs.join(specs.describe(one), specs.describe(other))
    except IncompatibleError as error:
        reason = message_of(error)
        raise IncompatibleError(
            "the inputs decide which way a condition goes, and the two ways set a variable to what "
            f"no one ONNX value can be: {reason}. Set it to a tensor of one type and rank, or to a "
            "number, in both"
        ) from None


def _find_written(scopes: list[Scope]) -> list[Leaf]:
    """Tensors of enclosing scopes that are written in one of these scopes."""
    found: dict[int, Leaf] = {}
    for scope in scopes:
        for leaf in scope.inputs:
            if not isinstance(leaf.val, torch.Tensor) or storage(leaf.val) not in scope.written:
                continue
            first = found.setdefault(storage(leaf.val), leaf)
            if first.val is not leaf.val:
                raise IncompatibleError(
                    "a tensor is written in a branch or loop through one view and read through "
                    "another; take the view inside"
                )
    return list(found.values())


def _inputs(scope: Scope, skipped: int = 0) -> list[Leaf]:
    """Outer leaves that the placeholders stand for, without the first ``skipped`` ones."""
    by_node = {node: leaf for leaf, node in reversed(scope.inputs.items())}
    placeholders = [node for node in scope.graph.nodes if node.op == "placeholder"]
    return [by_node[node] for node in placeholders[skipped:]]


def _finish(scope: Scope, results: list[Any]) -> None:
    """Ends a graph with its results."""
    scope.graph.output(
        [scope.node_of(result) if isinstance(result, Leaf) else result for result in results]
    )
