"""Adds a copy of a recorded part to the graph, as if the module's call had been traced."""

from __future__ import annotations

import copy
import dataclasses
import itertools
from collections import Counter
from collections.abc import Callable, Mapping
from typing import Any

import torch
import torch.fx

from onnx_aot.capture.reuse.alike import Attribute, are_equal
from onnx_aot.capture.reuse.exchanges import Exchange, Own, flatten
from onnx_aot.capture.reuse.parts import Operands, Part, describe_tensor
from onnx_aot.torch_compat import (
    FakeTensor,
    TensorCopies,
    copy_constant,
    last_node,
    node_of,
    nodes_after,
    pytree,
    requested_name,
    track_copy,
)

__all__ = ["Position", "SpliceError", "describe_difference", "splice"]


@dataclasses.dataclass(frozen=True)
class Position:
    """Place in the model where a call is made.

    Attributes:
        path: The module's path.
        depth: The number of calls of modules around it.
        stack: Those calls, as nodes record them.
        lines: The user's lines that lead to the call.
        calls: How often each module had been called before.
        functions: How often each function of torch had been called before, by name.
    """

    path: str
    depth: int
    stack: Mapping[str, Any]
    lines: str
    calls: Mapping[str, int]
    functions: Mapping[str, int]

    @classmethod
    def now(cls, tracer: Any, path: str, lines: str) -> Position:
        """The position of a call that the tracer is about to make."""
        stack = {key: (fqn, _class_name(kind)) for key, (fqn, kind) in tracer.module_stack.items()}
        functions: Counter[str] = Counter()
        for function, count in tracer.torch_fn_counts.items():
            functions[function.__name__] += count
        return cls(path, len(stack), stack, lines, dict(tracer.num_calls), functions)


def _class_name(kind: Any) -> str:
    return f"{kind.__module__}.{kind.__qualname__}" if isinstance(kind, type) else kind


class SpliceError(Exception):
    """A copy could not be completed; the capture is repeated without copies."""


def splice(
    part: Part,
    origin: Position,
    here: Position,
    operands: Operands,
    attributes: Callable[[Attribute], Any],
    tracer: Any,
) -> Any:
    """Adds a copy of a part to the graph, and returns what the call would have returned.

    Args:
        part: The recorded part.
        origin: Where it was recorded.
        here: Where it is added.
        operands: What the call works on, with the key of the recorded call's.
        attributes: Returns an attribute of the module in which parts differ.
        tracer: The tracer.

    Raises:
        SpliceError: A method of an object answers otherwise than it did for the recorded call.
    """
    return _Splicer(part, _Placement(origin, here), operands, attributes, tracer).run()


class _Splicer:
    def __init__(
        self,
        part: Part,
        placement: _Placement,
        operands: Operands,
        attributes: Callable[[Attribute], Any],
        tracer: Any,
    ) -> None:
        self._part, self._placement, self._operands = part, placement, operands
        self._attributes, self._tracer = attributes, tracer
        self._copies = TensorCopies()
        self._nodes: dict[torch.fx.Node, torch.fx.Node] = {}
        self._values: dict[int, Any] = {}  # by the id of a recorded tensor
        self._replies: list[list[Any]] = []

    def run(self) -> Any:
        """Copies the steps, and returns what the call would have returned."""
        part = self._part
        with self._copies:
            for node, (kind, key) in part.places.items():
                if kind != "reply":
                    self._bind(node, self._node_from_outside(kind, key))
        for is_exchange, steps in itertools.groupby(
            part.steps, lambda step: isinstance(step, Exchange)
        ):
            if not is_exchange:
                with self._copies:
                    for step in steps:
                        self._copy_node(step)
                continue
            for step in steps:
                with self._copies:
                    args, kwargs = self._prepare(step)
                self._repeat(step, args, kwargs)
        structure, origins = part.results
        tensors = iter(part.tensors)
        with self._copies:
            results = [
                self._result(kind, key, next(tensors) if kind == "node" else None)
                for kind, key in origins
            ]
            for (kind, key), node in part.renewed:
                track_copy(self._from_outside(kind, key), self._nodes[node], self._tracer)
        return pytree.tree_unflatten(results, structure)

    def _node_from_outside(self, kind: str, key: Any) -> torch.fx.Node:
        operands = self._operands
        return operands.nodes[key] if kind == "argument" else operands.weight_nodes[key]

    def _from_outside(self, kind: str, key: Any) -> Any:
        operands = self._operands
        if kind == "reply":
            exchange, i = key
            return self._replies[exchange][i]
        found: Any = {
            "argument": operands.tensors,
            "object": operands.objects,
            "weight": operands.weights,
        }[kind]
        return found[key]

    def _bind(self, node: torch.fx.Node, new: torch.fx.Node) -> None:
        self._nodes[node] = new
        value, own = node.meta.get("val"), new.meta.get("val")
        if isinstance(value, torch.Tensor) and isinstance(own, torch.Tensor):
            self._copies.share(value, own)

    def _copy_node(self, node: Any) -> None:
        tracer, target = self._tracer, node.target
        if node.op == "get_attr":
            target = copy_constant(str(node.target), tracer)
        args, kwargs = (
            torch.fx.node.map_arg(given, lambda n: self._nodes.get(n, n))  # sizes are the same
            for given in (node.args, node.kwargs)
        )
        name = requested_name(node, tracer)
        new: torch.fx.Node = tracer.graph.create_node(node.op, target, args, kwargs, name=name)
        new.meta = self._placement.move(node.meta)
        if "val" in node.meta:
            new.meta["val"] = self._copy_value(node.meta["val"])
        self._nodes[node] = new

    def _copy_value(self, value: Any) -> Any:
        if isinstance(value, FakeTensor):
            if id(value) not in self._values:
                self._values[id(value)] = self._copies.copy(value)
            return self._values[id(value)]
        if isinstance(value, (tuple, list)):
            return type(value)(map(self._copy_value, value))
        return value

    def _result(self, kind: str, key: Any, tensor: FakeTensor | None) -> Any:
        if kind == "value":
            return key
        return self._from_outside(kind, key) if tensor is None else self._flow(tensor, key)

    def _flow(self, tensor: FakeTensor, node: torch.fx.Node) -> FakeTensor:
        """The tensor that Python code gets for a node of the part."""
        if id(tensor) not in self._values:
            copy = self._values[id(tensor)] = self._copies.copy_result(tensor)
            track_copy(copy, self._nodes[node], self._tracer)
        found: FakeTensor = self._values[id(tensor)]
        return found

    def _prepare(self, exchange: Any) -> tuple[Any, Any]:
        """The arguments with which an exchange is repeated."""
        leaves, structure = flatten(exchange.given)
        own = []
        for leaf in leaves:
            if type(leaf) is Own:
                own.append(self._attributes(leaf.attribute))
            elif isinstance(leaf, FakeTensor):
                own.append(self._given(leaf))
            else:
                own.append(leaf)
        found: tuple[Any, Any] = pytree.tree_unflatten(own, structure)
        return found

    def _given(self, tensor: FakeTensor) -> torch.Tensor:
        node = self._part.origins[id(tensor)]
        place = self._part.places.get(node)
        if place is not None:
            found: torch.Tensor = self._from_outside(*place)
            return found
        return self._flow(tensor, node)

    def _repeat(self, exchange: Any, args: Any, kwargs: Any) -> None:
        """Makes a call of an object's method.

        Raises:
            SpliceError: It returns something else than for the recorded call.
        """
        tracer, here = self._tracer, self._placement
        last = last_node(tracer.graph)
        stack = here.move_stack(exchange.stack)
        outside = tracer.module_stack
        tracer.module_stack = type(outside)(stack)
        try:
            held = self._operands.objects[exchange.object]
            reply = getattr(held, exchange.method)(*args, **kwargs)
        finally:
            tracer.module_stack = outside
        here.move_new_lines(last, tracer.graph, exchange.lines)
        expected, structure = flatten(exchange.reply)
        leaves, own_structure = flatten(reply)
        if structure != own_structure:
            raise SpliceError(f"{exchange.method} returns another structure")
        self._replies.append(leaves)
        for leaf, recorded in zip(leaves, expected, strict=True):
            self._accept(exchange, leaf, recorded)

    def _accept(self, exchange: Exchange, leaf: Any, recorded: Any) -> None:
        if not isinstance(recorded, FakeTensor):
            if not are_equal(leaf, recorded):
                raise SpliceError(f"{exchange.method} returns {leaf}, not {recorded}")
            return
        node = node_of(leaf, self._tracer) if type(leaf) is FakeTensor else None
        if node is None or describe_tensor(leaf) != describe_tensor(recorded):
            raise SpliceError(f"{exchange.method} returns another tensor")
        before = self._part.origins[id(recorded)]
        if self._nodes.setdefault(before, node) is not node:
            raise SpliceError(f"{exchange.method} returns another value")
        self._copies.share(recorded, leaf)


def describe_difference(part: Part, traced: Part, origin: Position, here: Position) -> str:
    """Returns the difference between a copy and the same call traced; empty if there is none."""
    placement = _Placement(origin, here)
    for i, (code, own_code) in enumerate(zip(part.form[0], traced.form[0], strict=False)):
        if code != own_code:
            return f"step {i} is {own_code}, and was {code}"
    for node, own in zip(part.nodes, traced.nodes, strict=False):
        moved = placement.move(node.meta)
        for key in ("nn_module_stack", "stack_trace", "torch_fn"):
            left, right = moved.get(key), own.meta.get(key)
            if key == "torch_fn" and left and right:  # functions of one name are counted together
                left, right = left[0].rpartition("_")[0], right[0].rpartition("_")[0]
            if left != right:
                return f"{key} of {own.name} is {right}, not {left}"
    if len(part.nodes) != len(traced.nodes):
        return f"it has {len(traced.nodes)} nodes, not {len(part.nodes)}"
    return "" if part.form == traced.form else "it returns other values"


class _Placement:
    """Changes what nodes record about their place from one call to another."""

    def __init__(self, origin: Position, here: Position) -> None:
        self._origin, self._here = origin, here
        self._texts: dict[str, str] = {}

    def move(self, meta: Mapping[str, Any]) -> dict[str, Any]:
        """Returns the metadata of a copy of a node with this metadata."""
        shared = (list, dict)  # later passes may extend them
        moved = {k: copy.copy(v) if isinstance(v, shared) else v for k, v in meta.items()}
        if "nn_module_stack" in meta:
            moved["nn_module_stack"] = self.move_stack(meta["nn_module_stack"])
        if self._origin.lines != self._here.lines and "stack_trace" in meta:
            moved["stack_trace"] = self._move_lines(meta["stack_trace"])
        if "torch_fn" in meta:
            moved["torch_fn"] = self._move_function(*meta["torch_fn"])
        return moved

    def move_stack(self, stack: Mapping[str, Any]) -> dict[str, Any]:
        """The calls of modules around a copy."""
        moved = dict(self._here.stack)
        for key, (fqn, kind) in list(stack.items())[self._origin.depth :]:
            path, _, count = key.partition("@")
            before = self._origin.calls.get(fqn, 0)
            new = self._move_path(fqn)
            calls = (int(count) if count else 0) - before + self._here.calls.get(new, 0)
            name = self._move_path(path)
            moved[f"{name}@{calls}" if calls else name] = (new, kind)
        return moved

    def _move_path(self, path: str) -> str:
        return self._here.path + path[len(self._origin.path) :]

    def _move_lines(self, text: str) -> str:
        if text not in self._texts and text.startswith(self._origin.lines):
            self._texts[text] = self._here.lines + text.removeprefix(self._origin.lines)
        return self._texts.get(text, text)

    def move_new_lines(
        self, last: torch.fx.Node | None, graph: torch.fx.Graph, recorded: str
    ) -> None:
        """Gives the nodes after ``last`` the lines of a call inside of the part."""
        lines = self._move_lines(recorded)
        for node in nodes_after(last, graph):
            trace = node.meta.get("stack_trace", "")
            if trace.startswith(self._here.lines):
                node.meta["stack_trace"] = lines + trace.removeprefix(self._here.lines)

    def _move_function(self, name: str, kind: str) -> tuple[str, str]:
        function, _, count = name.rpartition("_")
        before, now = self._origin.functions, self._here.functions
        return f"{function}_{int(count) - before.get(function, 0) + now.get(function, 0)}", kind
