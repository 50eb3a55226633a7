"""Adds a copy of a recorded part to the graph, as if the module's call had been traced."""

from __future__ import annotations

import dataclasses
from collections import Counter
from collections.abc import Mapping
from typing import Any

import torch
import torch.fx

from onnx_aot.capture.reuse.parts import Arguments, Part
from onnx_aot.torch_compat import (
    FakeTensor,
    OpOverload,
    TensorCopies,
    node_of,
    pytree,
    track_copy,
)

__all__ = ["Position", "describe_difference", "splice"]


@dataclasses.dataclass(frozen=True)
class Position:
    """Where in the model a call takes place.

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


def splice(
    part: Part,
    origin: Position,
    here: Position,
    arguments: Arguments,
    weights: Mapping[str, torch.Tensor],
    tracer: Any,
) -> Any:
    """Adds a copy of a part to the graph, and returns what the call would have returned.

    Args:
        part: The recorded part.
        origin: Where it was recorded.
        here: Where it is added.
        arguments: The arguments of this call, which have the key of the recorded one's.
        weights: The module's parameters and buffers, by path.
        tracer: The tracer.
    """
    with TensorCopies() as copies:
        nodes: dict[torch.fx.Node, torch.fx.Node] = {}
        for node, (kind, key) in part.places.items():
            tensor = arguments.tensors[key] if kind == "argument" else weights[key]
            new = arguments.nodes[key] if kind == "argument" else node_of(tensor, tracer)
            if new is not None:
                nodes[node] = new
                if isinstance(node.meta.get("val"), torch.Tensor):
                    copies.share(node.meta["val"], new.meta["val"])
        placement = _Placement(origin, here)
        values: dict[int, Any] = {}
        for node in part.nodes:
            nodes[node] = _copy_node(node, nodes, values, copies, placement, tracer)
        structure, origins = part.results
        results = [
            _copy_result(origin, leaf, nodes, arguments, weights, copies)
            for origin, leaf in zip(origins, _leaves(part), strict=True)
        ]
        for (kind, key), result in zip(origins, results, strict=True):
            if kind == "node":
                track_copy(result, nodes[key], tracer)
    return pytree.tree_unflatten(results, structure)


def describe_difference(part: Part, traced: Part, origin: Position, here: Position) -> str:
    """What differs between the copy of a part and the same call traced; empty if nothing does."""
    placement = _Placement(origin, here)
    for i, (node, own) in enumerate(zip(part.nodes, traced.nodes, strict=False)):
        if part.form[0][i] != traced.form[0][i]:
            return f"node {i} is {own.format_node()}, and was {node.format_node()}"
        moved = placement.move(node.meta)
        for key in ("nn_module_stack", "stack_trace", "torch_fn"):
            if moved.get(key) != own.meta.get(key):
                return f"{key} of {own.name} is {own.meta.get(key)}, not {moved.get(key)}"
    if len(part.nodes) != len(traced.nodes):
        return f"it has {len(traced.nodes)} nodes, not {len(part.nodes)}"
    return "" if part.form == traced.form else "it returns other values"


def _leaves(part: Part) -> list[Any]:
    tensors = iter(part.tensors)
    return [next(tensors) if kind == "node" else None for kind, _ in part.results[1]]


def _copy_result(
    origin: tuple[str, Any],
    leaf: Any,
    nodes: Mapping[torch.fx.Node, torch.fx.Node],
    arguments: Arguments,
    weights: Mapping[str, torch.Tensor],
    copies: TensorCopies,
) -> Any:
    kind, key = origin
    if kind == "argument":
        return arguments.tensors[key]
    if kind == "weight":
        return weights[key]
    return copies.copy_result(leaf) if kind == "node" else key


def _copy_node(
    node: torch.fx.Node,
    nodes: dict[torch.fx.Node, torch.fx.Node],
    values: dict[int, Any],
    copies: TensorCopies,
    placement: _Placement,
    tracer: Any,
) -> torch.fx.Node:
    def find(given: torch.fx.Node) -> torch.fx.Node:
        return nodes.get(given, given)  # sizes are the same nodes

    target = node.target
    if node.op == "get_attr":
        target = tracer.get_fresh_qualname("_tensor_constant")
        setattr(tracer.root, target, getattr(tracer.root, str(node.target)).clone())
    args = torch.fx.node.map_arg(node.args, find)
    kwargs = torch.fx.node.map_arg(node.kwargs, find)
    new: torch.fx.Node = tracer.graph.create_node(
        node.op, target, args, kwargs, name=_base_name(node, tracer)
    )
    new.meta = placement.move(node.meta)
    if "val" in node.meta:
        new.meta["val"] = _copy_value(node.meta["val"], values, copies)
    return new


def _base_name(node: torch.fx.Node, tracer: Any) -> str | None:
    """The name that torch would ask for; None for one made from the target."""
    if not isinstance(node.target, OpOverload):
        return None
    name: str = tracer.graph._target_to_str(node.target.overloadpacket.__name__)
    rest = node.name.removeprefix(name)
    return name if rest != node.name and (not rest or rest[1:].isdigit()) else None


def _copy_value(value: Any, values: dict[int, Any], copies: TensorCopies) -> Any:
    if isinstance(value, FakeTensor):
        if id(value) not in values:
            values[id(value)] = copies.copy(value)
        return values[id(value)]
    if isinstance(value, (tuple, list)):
        return type(value)(_copy_value(item, values, copies) for item in value)
    return value


class _Placement:
    """Changes what nodes record about their place from one call to another."""

    def __init__(self, origin: Position, here: Position) -> None:
        self._origin, self._here = origin, here
        self._stacks: dict[int, dict[str, Any]] = {}
        self._texts: dict[str, str] = {}

    def move(self, meta: Mapping[str, Any]) -> dict[str, Any]:
        """What a copy of a node with this metadata records."""
        moved = dict(meta)
        if "nn_module_stack" in meta:
            moved["nn_module_stack"] = self._move_stack(meta["nn_module_stack"])
        if self._origin.lines != self._here.lines and "stack_trace" in meta:
            moved["stack_trace"] = self._move_lines(meta["stack_trace"])
        if "torch_fn" in meta:
            moved["torch_fn"] = self._move_function(*meta["torch_fn"])
        return moved

    def _move_stack(self, stack: Mapping[str, Any]) -> dict[str, Any]:
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
        if text not in self._texts:
            self._texts[text] = self._here.lines + text.removeprefix(self._origin.lines)
        return self._texts[text]

    def _move_function(self, name: str, kind: str) -> tuple[str, str]:
        function, _, count = name.rpartition("_")
        before, now = self._origin.functions, self._here.functions
        return f"{function}_{int(count) - before.get(function, 0) + now.get(function, 0)}", kind
