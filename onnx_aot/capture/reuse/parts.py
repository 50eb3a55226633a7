"""Records the nodes that the call of a module adds to the graph, and compares two such parts."""

from __future__ import annotations

import dataclasses
import operator
from collections.abc import Iterator, Sequence
from typing import Any

import torch
import torch.fx

from onnx_aot.capture.reuse.exchanges import Exchange, Own, flatten, is_object
from onnx_aot.torch_compat import (
    FakeTensor,
    OpOverload,
    is_size_of_tensor,
    node_of,
    schema_of,
    storage_key,
)

__all__ = [
    "Operands",
    "Part",
    "UnsuitableError",
    "describe_operands",
    "describe_tensor",
    "record_part",
]

_SIZES = (torch.SymInt, torch.SymFloat, torch.SymBool)
_VALUES = (bool, int, float, complex, str, bytes, type(None), torch.dtype, torch.device)
_VALUES += (torch.layout, torch.memory_format, slice, type(Ellipsis))  # type: ignore[assignment]


class UnsuitableError(Exception):
    """A call that cannot be reused; the text says why."""


@dataclasses.dataclass(frozen=True)
class Operands:
    """Arguments and weights of a call of a module, as they were before the call.

    Attributes:
        tensors: The tensors among the arguments in order, each once.
        nodes: Their nodes.
        gradients: Which of them require a gradient.
        objects: Objects among the arguments, such as a cache.
        weights: Parameters and buffers of the module, by path.
        weight_nodes: Their nodes, by path.
        key: Everything else about the arguments that decides what is traced.
    """

    tensors: tuple[FakeTensor, ...]
    nodes: tuple[torch.fx.Node, ...]
    gradients: tuple[bool, ...]
    objects: tuple[Any, ...]
    weights: dict[str, torch.Tensor]
    weight_nodes: dict[str, torch.fx.Node]
    key: Any


def describe_operands(
    args: tuple[Any, ...], kwargs: dict[str, Any], weights: dict[str, torch.Tensor], tracer: Any
) -> Operands:
    """Describes what a call works on.

    Raises:
        UnsuitableError: An argument is neither a traced tensor, a number, a text, a container of
            those, nor an object whose methods can be watched.
    """
    leaves, structure = flatten((args, kwargs))
    numbers: dict[int, int] = {}
    memory: dict[int, int] = {}
    tensors: list[FakeTensor] = []
    key: list[Any] = []
    nodes, objects = [], []
    for leaf in leaves:
        if is_object(leaf):
            objects.append(leaf)
            key.append(("object", type(leaf)))
        elif not isinstance(leaf, torch.Tensor):
            key.append(_encode_value(leaf))
        else:
            if id(leaf) not in numbers:
                node = node_of(leaf, tracer) if type(leaf) is FakeTensor else None
                if node is None or not isinstance(leaf, FakeTensor):
                    raise UnsuitableError(f"an argument is a {type(leaf).__name__} with values")
                numbers[id(leaf)] = len(tensors)
                tensors.append(leaf)
                nodes.append(node)
            shared = memory.setdefault(storage_key(leaf), len(memory))
            key.append((numbers[id(leaf)], shared, describe_tensor(leaf)))
    if len({id(held) for held in objects}) < len(objects):
        raise UnsuitableError("two arguments are one object")
    found = {name: node_of(tensor, tracer) for name, tensor in weights.items()}
    same: dict[int, int] = {}  # which of the tensors are one and the same
    tied = tuple(same.setdefault(id(held), len(same)) for held in (*tensors, *weights.values()))
    kinds = tuple((n, type(w), w.dtype, w.device, w.requires_grad) for n, w in weights.items())
    sizes = tuple(tuple(map(_expression, w.shape)) for w in weights.values())
    return Operands(
        tuple(tensors),
        tuple(nodes),
        tuple(tensor.requires_grad for tensor in tensors),
        tuple(objects),
        weights,
        {name: node for name, node in found.items() if node is not None},
        (structure, tuple(key), tied, kinds, sizes),
    )


def _encode_value(value: Any) -> Any:
    if isinstance(value, _SIZES):
        return ("size", value.node.expr)
    if isinstance(value, _VALUES):
        return (type(value).__name__, repr(value))
    raise UnsuitableError(f"an argument is an object of class {type(value).__name__}")


def describe_tensor(tensor: torch.Tensor) -> Any:
    """Type, device, sizes and strides.

    Raises:
        UnsuitableError: The tensor is sparse.
    """
    if tensor.layout is not torch.strided:
        raise UnsuitableError("an argument is a sparse tensor")
    numbers = (*tensor.shape, *tensor.stride(), tensor.storage_offset())
    return (tensor.dtype, tensor.device, tensor.dim(), tuple(map(_expression, numbers)))


def _expression(number: Any) -> Any:
    return number.node.expr if isinstance(number, _SIZES) else number


@dataclasses.dataclass(frozen=True)
class Part:
    """Steps and results of one call of a module.

    Attributes:
        steps: The nodes that it added to the graph, without those that only read sizes of tensors,
            and its exchanges with objects, in order.
        places: What nodes from outside stand for: ``("argument", 0)``, ``("weight", "fc.bias")``,
            ``("reply", (0, 1))``.
        results: The results: the structure, and for each leaf its origin and value.
        tensors: Traced tensors among the results that it computed.
        renewed: Tensors from outside whose node is one of the part from then on: ``x.float()`` may
            return ``x``.
        origins: The nodes of tensors in exchanges, by the id of the tensor.
        form: What two parts have in common if they are equal: steps, results, renewed tensors.
    """

    steps: tuple[torch.fx.Node | Exchange, ...]
    places: dict[torch.fx.Node, Any]
    results: tuple[Any, tuple[Any, ...]]
    tensors: tuple[FakeTensor, ...]
    renewed: tuple[tuple[Any, torch.fx.Node], ...]
    origins: dict[int, torch.fx.Node]
    form: tuple[Any, ...]

    @property
    def nodes(self) -> list[torch.fx.Node]:
        """The nodes among the steps."""
        return [step for step in self.steps if isinstance(step, torch.fx.Node)]


def record_part(
    nodes: Sequence[torch.fx.Node],
    exchanges: Sequence[Exchange],
    operands: Operands,
    result: Any,
    tracer: Any,
) -> Part:
    """Records a call that has just been traced.

    Args:
        nodes: The nodes that it added.
        exchanges: Its exchanges with objects among its arguments.
        operands: What it worked on.
        result: What it returned.
        tracer: The tracer.

    Raises:
        UnsuitableError: The call did something that a copy would not repeat.
    """
    recorder = _Recorder(operands, tracer)
    steps = tuple(_merge(nodes, exchanges))
    for step in steps:
        recorder.add(step)
    results, encoded, tensors = recorder.describe_results(result)
    renewed = tuple(recorder.find_renewed())
    numbered = tuple((place, recorder.numbers[node]) for place, node in renewed)
    form = (tuple(recorder.codes), encoded, numbered)
    return Part(steps, recorder.places, results, tensors, renewed, recorder.origins, form)


def _merge(
    nodes: Sequence[torch.fx.Node], exchanges: Sequence[Exchange]
) -> Iterator[torch.fx.Node | Exchange]:
    """Puts exchanges where they took place, without the nodes that they added."""
    counts: dict[torch.fx.Node | None, int] = {node: i + 1 for i, node in enumerate(nodes)}
    done = 0
    for exchange in exchanges:
        begin, end = counts.get(exchange.first, 0), counts.get(exchange.last, 0)
        yield from (node for node in nodes[done:begin] if not _is_size(node))
        yield exchange
        done = end
    yield from (node for node in nodes[done:] if not _is_size(node))


def _is_size(node: torch.fx.Node) -> bool:
    """True for nodes that each part shares with those before it."""
    return isinstance(node.meta.get("val"), _SIZES) and is_size_of_tensor(node)


class _Recorder:
    """Encodes the steps of a part so that equal steps of two parts have equal codes.

    Attributes:
        places: What nodes from outside stand for.
        numbers: The nodes of the part, in order.
        codes: The codes of the steps.
        origins: The nodes of tensors in exchanges, by the id of the tensor.
    """

    def __init__(self, operands: Operands, tracer: Any) -> None:
        self._operands, self._tracer = operands, tracer
        self.places: dict[torch.fx.Node, Any] = {}
        for name, node in operands.weight_nodes.items():
            self.places.setdefault(node, ("weight", name))
        for i, node in enumerate(operands.nodes):
            self.places.setdefault(node, ("argument", i))
        self.numbers: dict[torch.fx.Node, int] = {}
        self.codes: list[Any] = []
        self.origins: dict[int, torch.fx.Node] = {}
        self._replies: dict[int, Any] = {}  # by the id of a tensor
        self._exchanges = 0
        self._memory: dict[int, Any] = {}
        for node, place in self.places.items():
            self._note_memory(node, place)

    def _note_memory(self, node: torch.fx.Node, place: Any) -> None:
        for tensor in _tensors(node.meta.get("val")):
            self._memory.setdefault(storage_key(tensor), place)

    def add(self, step: torch.fx.Node | Exchange) -> None:
        """Encodes a step.

        Raises:
            UnsuitableError: A copy of it would not do the same.
        """
        if isinstance(step, Exchange):
            self.codes.append(self._describe_exchange(step))
        else:
            self.codes.append(self._describe_node(step))

    def _describe_node(self, node: torch.fx.Node) -> Any:
        self._check(node)
        arguments = self._encode((node.args, node.kwargs))
        self.numbers[node] = len(self.numbers)
        constant = self._constant(node) if node.op == "get_attr" else None
        target = "constant" if node.op == "get_attr" else node.target
        value = self._encode_meta(node.meta.get("val"))
        return (node.op, target, arguments, constant, value)

    def _describe_exchange(self, exchange: Exchange) -> Any:
        leaves, structure = flatten(exchange.given)
        given = tuple(self._encode_given(leaf) for leaf in leaves)
        replies, form = flatten(exchange.reply)
        codes = []
        for i, leaf in enumerate(replies):
            if not isinstance(leaf, torch.Tensor):
                codes.append(_encode_value(leaf))
                continue
            node = node_of(leaf, self._tracer) if type(leaf) is FakeTensor else None
            if node is None:
                raise UnsuitableError(f"{exchange.method} returns a tensor with values")
            self.origins[id(leaf)] = node
            place = ("reply", (self._exchanges, i))
            if node not in self.numbers and node not in self.places:
                self.places[node] = place
                self._note_memory(node, place)
            self._replies[id(leaf)] = place
            codes.append((self._encode_node(node), self._encode_meta(leaf)))
        self._exchanges += 1
        name = (exchange.object, exchange.method)
        return ("call", name, structure, given, form, tuple(codes))

    def _encode_given(self, leaf: Any) -> Any:
        if type(leaf) is Own:
            return ("own", leaf.attribute)
        if not isinstance(leaf, torch.Tensor):
            return _encode_value(leaf)
        node = node_of(leaf, self._tracer) if type(leaf) is FakeTensor else None
        if node is None:
            raise UnsuitableError("an object gets a tensor with values")
        self.origins[id(leaf)] = node
        return (self._encode_node(node), self._encode_meta(leaf))

    def find_renewed(self) -> Iterator[tuple[Any, torch.fx.Node]]:
        """Yields the tensors from outside that have a node of the part now."""
        operands = self._operands
        before: list[tuple[Any, torch.Tensor, torch.fx.Node]] = [
            (("weight", name), operands.weights[name], node)
            for name, node in operands.weight_nodes.items()
        ]
        for i, (given, node) in enumerate(zip(operands.tensors, operands.nodes, strict=True)):
            before.append((("argument", i), given, node))
        for place, tensor, node in before:
            now = node_of(tensor, self._tracer)
            if now is not None and now is not node and now in self.numbers:
                yield place, now
            elif now is not node:
                raise UnsuitableError("an operand was replaced")

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
        if node in self.numbers:
            return ("node", self.numbers[node])
        if node in self.places:
            return self.places[node]
        value = node.meta.get("val")
        if isinstance(value, _SIZES):
            return ("size", value.node.expr)
        raise UnsuitableError("it uses a tensor that is neither an argument nor its own weight")

    def _encode_meta(self, value: Any) -> Any:
        if isinstance(value, FakeTensor):
            if value.layout != torch.strided:
                raise UnsuitableError("it has a sparse tensor")
            key = storage_key(value)
            memory = self._memory.setdefault(key, len(self._memory))
            return (memory, describe_tensor(value))
        if isinstance(value, (tuple, list)):
            return tuple(map(self._encode_meta, value))
        if isinstance(value, _SIZES):
            return ("size", value.node.expr)
        if value is None or isinstance(value, _VALUES):
            return repr(value)
        raise UnsuitableError(f"it has a value of class {type(value).__name__}")

    def describe_results(self, result: Any) -> tuple[Any, Any, tuple[FakeTensor, ...]]:
        """Finds the origin of each result.

        Raises:
            UnsuitableError: A result is an object that a copy could not make.
        """
        leaves, structure = flatten(result)
        operands = self._operands
        given: dict[int, tuple[str, Any]] = dict(self._replies)
        given |= {id(tensor): ("weight", name) for name, tensor in operands.weights.items()}
        for kind, values in (("argument", operands.tensors), ("object", operands.objects)):
            given |= {id(value): (kind, i) for i, value in enumerate(values)}
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
                number, code = self.numbers[node], self._encode_meta(value)
                encoded.append(("node", number, value.requires_grad, code))
            else:
                origins.append(("value", leaf))
                encoded.append(_encode_value(leaf))
        return (structure, tuple(origins)), (structure, tuple(encoded)), tuple(tensors)

    def _find_origin(self, tensor: torch.Tensor) -> tuple[torch.fx.Node, FakeTensor]:
        node = node_of(tensor, self._tracer) if type(tensor) is FakeTensor else None
        if node is None or node not in self.numbers or not isinstance(tensor, FakeTensor):
            raise UnsuitableError("it returns a tensor that it did not compute")
        return node, tensor


_LARGEST_CONSTANT = 64


def _tensors(value: Any) -> Iterator[FakeTensor]:
    if isinstance(value, FakeTensor):
        yield value
    elif isinstance(value, (tuple, list)):
        for item in value:
            yield from _tensors(item)
