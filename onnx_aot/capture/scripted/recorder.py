"""Records nested FX graphs from calls on fake tensors and symbolic numbers."""

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
    """One graph, of the whole model or of a body.

    Attributes:
        graph: The graph, to which nodes are added.
        parent: The enclosing scope.
        inputs: Placeholders for the leaves that it reads from enclosing scopes.
        modules: The bodies of its branches and loops, by the names that its nodes use.
        written: Keys of the storages that it writes to.
    """

    def __init__(self, parent: Scope | None) -> None:
        self.graph = torch.fx.Graph()
        self.parent = parent
        self.inputs: dict[Leaf, torch.fx.Node] = {}
        self.modules: dict[str, torch.fx.GraphModule] = {}
        self.written: set[int] = set()
        self._by_tensor: dict[int, torch.fx.Node] = {}

    def placeholder(self, name: str, val: Any) -> Leaf:
        """Adds an input to the graph, after the existing ones."""
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
        """Makes an input stand for a leaf of an enclosing scope and for others of its tensor."""
        self.inputs[leaf] = placeholder.node
        self._by_tensor[id(leaf.val)] = placeholder.node

    def node_of(self, leaf: Leaf) -> torch.fx.Node:
        """The node of a leaf in this graph; leaves of enclosing scopes become inputs."""
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
        """Adds a node for a body."""
        name = f"body_{len(self.modules)}"
        self.modules[name] = module
        return self.graph.create_node("get_attr", name)


def constant_number(value: Any) -> Any:
    """Converts a symbolic number to a Python one if it is the same for all inputs."""
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
        scope: The current graph.
        stack_trace: The user's line that the next nodes come from.
        stale: Keys of storages of tensors that may have been written under another name: which
            tensor a branch or loop returns is known only when the model runs.
    """

    def __init__(self, mode: FakeTensorMode) -> None:
        self.mode = mode
        self.scope = Scope(None)
        self.stack_trace = ""
        self.stale: set[int] = set()
        self._alike: dict[int, set[int]] = {}
        self._alive: list[torch.Tensor] = []  # because their storages' keys are in use

    def call(self, target: Any, *args: Any, **kwargs: Any) -> Any:
        """Calls an operator and records it; several results are a tuple or list of leaves."""
        values = _map((args, kwargs), lambda leaf: leaf.val)
        kernel = KERNELS.get(target, target)  # this call is below torch.export's lookup
        with torch.no_grad():
            val = kernel(*values[0], **values[1])
            if val is NotImplemented:  # a kernel for a few cases
                val = target(*values[0], **values[1])
            val = constant_number(val)
        if not isinstance(val, (torch.Tensor, *SYMBOLIC, tuple, list)):
            return val
        return self.record(target, val, *args, **kwargs)

    def item(self, tensor: Leaf) -> Any:
        """The element of a tensor, as a symbolic number."""
        return self.call(aten._local_scalar_dense.default, tensor)

    def record(self, target: Any, val: Any, *args: Any, **kwargs: Any) -> Any:
        """Adds a node with the given recorded result."""
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
        return self._wrap_result(val, node)

    def _wrap_result(self, val: Any, node: torch.fx.Node) -> Any:
        if isinstance(val, (list, tuple)):
            items = []
            for index, item in enumerate(val):
                part = self.scope.graph.call_function(operator.getitem, (node, index))
                part.meta["val"] = item
                items.append(self._wrap_result(item, part))
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
        """Notes that the memory of a tensor is written in the current scope."""
        key = storage(leaf.val)
        self.scope.written.add(key)
        self.stale |= self._alike.get(key, set())

    def may_be(self, val: Any, others: Iterable[Any]) -> None:
        """Notes that a tensor may be one of others, depending on the model's inputs."""
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
        """Makes a fake tensor without recording a node."""
        with self.mode, torch.no_grad():
            return torch.empty(list(shape), dtype=dtype)

    def new_size(self) -> Any:
        """Makes an unbacked symbolic int for a size."""
        return new_symbol(self.mode, int)

    def new_symbol(self, kind: type) -> Any:
        """Makes an unbacked symbolic int, float or bool."""
        return new_symbol(self.mode, kind)

    def fresh(self, val: Any) -> Any:
        """Another recorded value of the same type and sizes, with its own memory."""
        if isinstance(val, torch.Tensor):
            return self.empty(val.shape, val.dtype)
        return val


def storage(tensor: torch.Tensor) -> int:
    """Key that tensors with the same memory share."""
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
