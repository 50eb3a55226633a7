"""Records FX graphs, one inside the other, from calls on fake tensors and symbolic numbers."""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import torch
import torch.fx

from onnx_aot import torch_compat
from onnx_aot.capture.patches.kernel_sizes import KERNELS
from onnx_aot.capture.scripted.values import Cell, Leaf
from onnx_aot.errors import CaptureError
from onnx_aot.torch_compat import (
    FakeTensorMode,
    OpOverload,
    aten,
    new_symbol,
    schema_of,
    storage_key,
)

__all__ = ["Recorder", "Scope", "constant_number"]


SYMBOLIC = (torch.SymInt, torch.SymFloat, torch.SymBool)


class Scope:
    """One graph: of the whole model, or of a body.

    Attributes:
        graph: It is written here.
        parent: The scope around it.
        inputs: What it reads of the scopes around it, as placeholders.
        modules: The bodies of its branches and loops, by the names that its nodes have for them.
        written: The storages that it writes to.
    """

    def __init__(self, parent: Scope | None) -> None:
        self.graph = torch.fx.Graph()
        self.parent = parent
        self.inputs: dict[Leaf, torch.fx.Node] = {}
        self.modules: dict[str, torch.fx.GraphModule] = {}
        self.written: set[int] = set()
        self._by_tensor: dict[int, torch.fx.Node] = {}

    def placeholder(self, name: str, val: Any) -> Leaf:
        """A new input of the graph, after those that there are."""
        there = [node for node in self.graph.nodes if node.op == "placeholder"]
        last = there[-1:]
        first = next(iter(self.graph.nodes), None)
        if last:
            where = self.graph.inserting_after(last[0])
        elif first is not None:
            where = self.graph.inserting_before(first)
        else:
            where = self.graph.inserting_after(None)
        with where:
            node = self.graph.placeholder(f"{name}_{len(there)}")
        node.meta["val"] = val
        return Leaf(val, node, self)

    def carry(self, leaf: Leaf, placeholder: Leaf) -> None:
        """Makes an input stand for a leaf of the scopes around, also for others of its tensor."""
        self.inputs[leaf] = placeholder.node
        self._by_tensor[id(leaf.val)] = placeholder.node

    def node_of(self, leaf: Leaf) -> torch.fx.Node:
        """The node that a leaf is in this graph."""
        if leaf.scope is self:
            return leaf.node
        node = self.inputs.get(leaf)
        if node is None:
            if self.parent is None:
                raise AssertionError("a value of a body is read outside of it")
            self.parent.node_of(leaf)
            node = self._by_tensor.get(id(leaf.val))
            if node is None:
                node = self.placeholder("outer", leaf.val).node
                self._by_tensor[id(leaf.val)] = node
            self.inputs[leaf] = node
        return node

    def attach(self, module: torch.fx.GraphModule) -> torch.fx.Node:
        """A node for a body."""
        name = f"body_{len(self.modules)}"
        self.modules[name] = module
        return self.graph.create_node("get_attr", name)


def constant_number(value: Any) -> Any:
    """A symbolic number as a Python one where it is the same for all inputs."""
    if isinstance(value, SYMBOLIC):
        expression = torch_compat.symbolic_expression(value)
        kinds = {torch.SymInt: "is_Integer", torch.SymFloat: "is_Float"}
        kind = kinds.get(type(value))
        if kind is not None and getattr(expression, kind, False):
            return int(expression) if kind == "is_Integer" else float(expression)
        if isinstance(value, torch.SymBool) and str(expression) in ("True", "False"):
            return str(expression) == "True"
    return value


class Recorder:
    """Runs operators on recorded values and writes a node for each.

    Attributes:
        scope: The graph that is written to.
        stack_trace: Where in the user's code the next nodes come from.
        stale: The storages of tensors that may have been written under another name: which one a
            branch or loop gives back is known only when the model runs.
    """

    def __init__(self, mode: FakeTensorMode) -> None:
        self.mode = mode
        self.scope = Scope(None)
        self.stack_trace = ""
        self.stale: set[int] = set()
        self._alike: dict[int, set[int]] = {}
        self._alive: list[torch.Tensor] = []  # whose storages have numbers that are in use

    def call(self, target: Any, *args: Any, **kwargs: Any) -> Any:
        """The result of a call: leaves, in a tuple or a list where there are several."""
        values = _map((args, kwargs), lambda leaf: leaf.val)
        kernel = KERNELS.get(target, target)  # below where torch.export looks for them
        with torch.no_grad():
            val = constant_number(kernel(*values[0], **values[1]))
        if not isinstance(val, (torch.Tensor, *SYMBOLIC, tuple, list)):
            return val
        return self.record(target, val, *args, **kwargs)

    def item(self, tensor: Leaf) -> Any:
        """The element of a tensor, as a symbolic number."""
        return self.call(aten._local_scalar_dense.default, tensor)

    def record(self, target: Any, val: Any, *args: Any, **kwargs: Any) -> Any:
        """A node whose recorded result is given."""
        if self.stale:
            _map((args, kwargs), self._refuse_stale)
        scope = self.scope
        node_args, node_kwargs = _map((args, kwargs), scope.node_of)
        node = scope.graph.call_function(target, node_args, node_kwargs)
        node.meta["val"] = val
        if self.stack_trace:
            node.meta["stack_trace"] = self.stack_trace
        if isinstance(target, OpOverload) and schema_of(target).is_mutable:
            self._note_writes(target, args, kwargs)
        return self._wrapped(val, node)

    def _wrapped(self, val: Any, node: torch.fx.Node) -> Any:
        if isinstance(val, (list, tuple)):
            items = []
            for index, item in enumerate(val):
                part = self.scope.graph.call_function(operator.getitem, (node, index))
                part.meta["val"] = item
                items.append(self._wrapped(item, part))
            return items if isinstance(val, list) else tuple(items)
        if val is None:
            return None
        return Leaf(val, node, self.scope)

    def _note_writes(self, target: OpOverload, args: Any, kwargs: Any) -> None:
        for position, argument in enumerate(schema_of(target).arguments):
            if argument.alias_info is None or not argument.alias_info.is_write:
                continue
            given = args[position] if position < len(args) else kwargs.get(argument.name)
            for leaf in given if isinstance(given, (list, tuple)) else [given]:
                if isinstance(leaf, Leaf):
                    self.mark_written(leaf)

    def mark_written(self, leaf: Leaf) -> None:
        """Says that the memory of a tensor is written in the present scope."""
        key = storage(leaf.val)
        self.scope.written.add(key)
        self.stale |= self._alike.get(key, set())

    def may_be(self, val: Any, others: Iterable[Any]) -> None:
        """Says that a tensor may be one of others, depending on what the model is given."""
        for other in others:
            if isinstance(val, torch.Tensor) and isinstance(other, torch.Tensor):
                one, two = storage(val), storage(other)
                self._alive += [val, other]
                self._alike.setdefault(one, set()).add(two)
                self._alike.setdefault(two, set()).add(one)

    def _refuse_stale(self, leaf: Leaf) -> None:
        if isinstance(leaf.val, torch.Tensor) and storage(leaf.val) in self.stale:
            raise CaptureError(
                "a tensor is read that may have been written in place under another name, which "
                "depends on the way that a branch went or on whether a loop ran. Write x = x + 1 "
                "instead of x += 1, or clone() it before"
            )

    def empty(self, shape: Sequence[Any], dtype: torch.dtype) -> torch.Tensor:
        """A fake tensor, which is not recorded."""
        with self.mode, torch.no_grad():
            return torch.empty(list(shape), dtype=dtype)

    def new_size(self) -> Any:
        """A symbolic int that is at least 0."""
        return new_symbol(self.mode, int)

    def new_symbol(self, kind: type) -> Any:
        """A symbolic int, float or bool of which nothing is known."""
        return new_symbol(self.mode, kind)

    def fresh(self, val: Any) -> Any:
        """Another recorded value of the same type and sizes, with memory of its own."""
        if isinstance(val, torch.Tensor):
            return self.empty(val.shape, val.dtype)
        return val


def storage(tensor: torch.Tensor) -> int:
    """What tensors that share memory have in common."""
    return storage_key(tensor)


def _map(value: Any, function: Callable[[Leaf], Any]) -> Any:
    if isinstance(value, Leaf):
        return function(value)
    if isinstance(value, Cell):
        return _map(value.content, function)
    if isinstance(value, (list, tuple)):
        mapped = [_map(item, function) for item in value]
        return mapped if isinstance(value, list) else tuple(mapped)
    if isinstance(value, dict):
        return {key: _map(item, function) for key, item in value.items()}
    return value
