"""Records the nodes that the call of a module adds to the graph, and compares two such parts."""

from __future__ import annotations

import dataclasses
import operator
from collections.abc import Iterator, Sequence
from typing import Any

import torch
import torch.fx

from onnx_aot.torch_compat import (
    FakeTensor,
    OpOverload,
    is_size_of_tensor,
    node_of,
    pytree,
    schema_of,
    storage_key,
)

__all__ = ["Arguments", "Part", "UnsuitableError", "describe_arguments", "record_part"]

_SIZES = (torch.SymInt, torch.SymFloat, torch.SymBool)
_VALUES = (bool, int, float, complex, str, bytes, type(None), torch.dtype, torch.device)
_VALUES += (torch.layout, torch.memory_format, slice, type(Ellipsis))  # type: ignore[assignment]


class UnsuitableError(Exception):
    """A call that cannot be reused; the text says why."""


@dataclasses.dataclass(frozen=True)
class Arguments:
    """Arguments of a call.

    Attributes:
        tensors: The tensors in order, each once.
        nodes: Their nodes.
        gradients: Which of the tensors require a gradient.
        key: Everything else about the arguments that decides what is traced.
    """

    tensors: tuple[FakeTensor, ...]
    nodes: tuple[torch.fx.Node, ...]
    gradients: tuple[bool, ...]
    key: Any


def describe_arguments(args: tuple[Any, ...], kwargs: dict[str, Any], tracer: Any) -> Arguments:
    """Describes the arguments of a call.

    Raises:
        UnsuitableError: An argument is neither a traced tensor, a number, a text, nor a container
            of those.
    """
    leaves, structure = pytree.tree_flatten((args, kwargs))
    numbers: dict[int, int] = {}
    memory: dict[int, int] = {}
    tensors: list[FakeTensor] = []
    nodes, key = [], []
    for leaf in leaves:
        if not isinstance(leaf, torch.Tensor):
            key.append(_encode_value(leaf))
            continue
        if id(leaf) not in numbers:
            node = node_of(leaf, tracer) if type(leaf) is FakeTensor else None
            if node is None or not isinstance(leaf, FakeTensor):
                raise UnsuitableError(f"an argument is a {type(leaf).__name__} with values")
            numbers[id(leaf)] = len(tensors)
            tensors.append(leaf)
            nodes.append(node)
        shared = memory.setdefault(storage_key(leaf), len(memory))
        key.append((numbers[id(leaf)], shared, _describe_tensor(leaf)))
    gradients = tuple(tensor.requires_grad for tensor in tensors)
    return Arguments(tuple(tensors), tuple(nodes), gradients, (structure, tuple(key)))


def _encode_value(value: Any) -> Any:
    if isinstance(value, _SIZES):
        return ("size", value.node.expr)
    if isinstance(value, _VALUES):
        return (type(value).__name__, repr(value))
    raise UnsuitableError(f"an argument is an object of class {type(value).__name__}")


def _describe_tensor(tensor: torch.Tensor) -> Any:
    if tensor.layout is not torch.strided:
        raise UnsuitableError("an argument is a sparse tensor")
    numbers = (*tensor.shape, *tensor.stride(), tensor.storage_offset())
    return (tensor.dtype, tensor.device, tensor.dim(), tuple(map(_expression, numbers)))


def _expression(number: Any) -> Any:
    return number.node.expr if isinstance(number, _SIZES) else number


@dataclasses.dataclass(frozen=True)
class Part:
    """The nodes that one call of a module added to the graph.

    Attributes:
        nodes: The nodes in order, without those that only read sizes of tensors.
        places: What nodes from outside stand for: ``("argument", 0)``, ``("weight", "fc.bias")``.
        results: The results: the structure, and for each leaf its origin and value.
        tensors: Traced tensors among the results.
        form: What two parts have in common if they are equal.
    """

    nodes: tuple[torch.fx.Node, ...]
    places: dict[torch.fx.Node, Any]
    results: tuple[Any, tuple[Any, ...]]
    tensors: tuple[FakeTensor, ...]
    form: Any


def record_part(
    nodes: Sequence[torch.fx.Node],
    arguments: Arguments,
    weights: dict[str, torch.Tensor],
    result: Any,
    tracer: Any,
) -> Part:
    """Records a call that has just been traced.

    Args:
        nodes: The nodes that it added.
        arguments: Its arguments.
        weights: Parameters and buffers of the module, by path.
        result: What it returned.
        tracer: The tracer.

    Raises:
        UnsuitableError: The call did something that a copy would not repeat.
    """
    places: dict[torch.fx.Node, Any] = {}
    for name, tensor in weights.items():
        node = node_of(tensor, tracer)
        if node is not None:
            places.setdefault(node, ("weight", name))
    for i, node in enumerate(arguments.nodes):
        places.setdefault(node, ("argument", i))
    recorder = _Recorder(places, tracer)
    kept = [node for node in nodes if not _is_size(node)]
    form = tuple(recorder.describe(node) for node in kept)
    results, encoded, tensors = recorder.describe_results(result, arguments, weights)
    return Part(tuple(kept), places, results, tensors, (form, encoded))


def _is_size(node: torch.fx.Node) -> bool:
    """True for nodes that each part shares with those before it."""
    return isinstance(node.meta.get("val"), _SIZES) and is_size_of_tensor(node)


class _Recorder:
    def __init__(self, places: dict[torch.fx.Node, Any], tracer: Any) -> None:
        self._places, self._tracer = places, tracer
        self._numbers: dict[torch.fx.Node, int] = {}
        self._memory: dict[int, Any] = {}
        for node, place in places.items():
            for tensor in _tensors(node.meta.get("val")):
                self._memory.setdefault(storage_key(tensor), place)

    def describe(self, node: torch.fx.Node) -> Any:
        """Encodes a node so that equal nodes of two parts have equal codes.

        Raises:
            UnsuitableError: A copy of the node would not do the same.
        """
        self._check(node)
        arguments = self._encode((node.args, node.kwargs))
        self._numbers[node] = len(self._numbers)
        constant = self._constant(node) if node.op == "get_attr" else None
        target = "constant" if node.op == "get_attr" else node.target
        value = self._encode_meta(node.meta.get("val"))
        return (node.op, target, arguments, constant, value)

    def _check(self, node: torch.fx.Node) -> None:
        if node.op == "get_attr":
            return
        target = node.target
        if node.op != "call_function":
            raise UnsuitableError(f"it has a node of kind {node.op}")
        if node.meta.get("unbacked_bindings") or "eager_input_vals" in node.meta:
            raise UnsuitableError("it has a size that depends on data")
        if isinstance(target, OpOverload):
            self._check_writes(node, target)
        elif target is not operator.getitem and not isinstance(node.meta.get("val"), _SIZES):
            raise UnsuitableError(f"it has a node of {getattr(target, '__name__', target)}")

    def _check_writes(self, node: torch.fx.Node, target: OpOverload) -> None:
        schema = schema_of(target)
        if not schema.is_mutable:
            return
        for i, argument in enumerate(schema.arguments):
            if argument.alias_info is None or not argument.alias_info.is_write:
                continue
            given = node.args[i] if i < len(node.args) else node.kwargs.get(argument.name)
            for written in given if isinstance(given, (list, tuple)) else (given,):
                tensors = _tensors(written.meta.get("val")) if written is not None else ()
                if any(isinstance(self._memory.get(storage_key(t)), tuple) for t in tensors):
                    raise UnsuitableError(f"{target} writes to a tensor from outside")

    def _constant(self, node: torch.fx.Node) -> Any:
        value = getattr(self._tracer.root, str(node.target), None)
        if not isinstance(value, torch.Tensor) or isinstance(value, FakeTensor):
            raise UnsuitableError("it has a submodule of the graph")
        if type(value) is not torch.Tensor or value.numel() > _LARGEST_CONSTANT:
            raise UnsuitableError("it has a constant from outside")
        return (value.dtype, value.device, tuple(value.shape), repr(value.tolist()))

    def _encode(self, value: Any) -> Any:
        if isinstance(value, torch.fx.Node):
            return self._encode_node(value)
        if isinstance(value, (tuple, list)):
            return (type(value).__name__, *map(self._encode, value))
        if isinstance(value, dict):
            return {key: self._encode(item) for key, item in value.items()}
        if isinstance(value, _VALUES):
            return (type(value).__name__, repr(value))
        raise UnsuitableError(f"it has an argument of class {type(value).__name__}")

    def _encode_node(self, node: torch.fx.Node) -> Any:
        if node in self._numbers:
            return ("node", self._numbers[node])
        if node in self._places:
            return self._places[node]
        value = node.meta.get("val")
        if isinstance(value, _SIZES):
            return ("size", value.node.expr)
        raise UnsuitableError("it uses a tensor that is neither an argument nor its own weight")

    def _encode_meta(self, value: Any) -> Any:
        if isinstance(value, FakeTensor):
            key = storage_key(value)
            memory = self._memory.setdefault(key, len(self._memory))
            return (memory, _describe_tensor(value))
        if isinstance(value, (tuple, list)):
            return tuple(map(self._encode_meta, value))
        if isinstance(value, _SIZES):
            return ("size", value.node.expr)
        if value is None or isinstance(value, _VALUES):
            return repr(value)
        raise UnsuitableError(f"it has a value of class {type(value).__name__}")

    def describe_results(
        self, result: Any, arguments: Arguments, weights: dict[str, torch.Tensor]
    ) -> tuple[Any, Any, tuple[FakeTensor, ...]]:
        """Finds the origin of each result.

        Raises:
            UnsuitableError: A result is an object that a copy could not make.
        """
        leaves, structure = pytree.tree_flatten(result)
        given: dict[int, tuple[str, Any]] = {
            id(tensor): ("argument", i) for i, tensor in enumerate(arguments.tensors)
        }
        given |= {id(tensor): ("weight", name) for name, tensor in weights.items()}
        origins: list[tuple[str, Any]] = []
        encoded: list[Any] = []
        tensors: list[FakeTensor] = []
        for leaf in leaves:
            if id(leaf) in given:
                origins.append(given[id(leaf)])
                encoded.append(given[id(leaf)])
            elif isinstance(leaf, torch.Tensor):
                node, value = self._find_origin(leaf)
                tensors.append(value)
                origins.append(("node", node))
                number, code = self._numbers[node], self._encode_meta(value)
                encoded.append(("node", number, value.requires_grad, code))
            else:
                origins.append(("value", leaf))
                encoded.append(_encode_value(leaf))
        return (structure, tuple(origins)), (structure, tuple(encoded)), tuple(tensors)

    def _find_origin(self, tensor: torch.Tensor) -> tuple[torch.fx.Node, FakeTensor]:
        node = node_of(tensor, self._tracer) if type(tensor) is FakeTensor else None
        if node is None or node not in self._numbers or not isinstance(tensor, FakeTensor):
            raise UnsuitableError("it returns a tensor that it did not compute")
        return node, tensor


_LARGEST_CONSTANT = 64


def _tensors(value: Any) -> Iterator[FakeTensor]:
    if isinstance(value, FakeTensor):
        yield value
    elif isinstance(value, (tuple, list)):
        for item in value:
            yield from _tensors(item)
