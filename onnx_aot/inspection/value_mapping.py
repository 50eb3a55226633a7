"""Pairs captured values with the ONNX values that hold them, and finds the nodes in between."""

from __future__ import annotations

import dataclasses
import operator
from collections.abc import Collection, Iterable, Iterator, Sequence
from typing import Any

import onnx_ir as ir
import torch
import torch.fx
from torch.export.graph_signature import OutputKind

from onnx_aot import dtypes
from onnx_aot.metadata.keys import ORIGINAL_NAME

__all__ = ["Pair", "Slice", "Slices", "extract_slice", "paired_values", "takes_apart"]


@dataclasses.dataclass(frozen=True)
class Pair:
    """One value of the captured graph and the ONNX value or values that hold it.

    Attributes:
        node: The captured node.
        index: Index among the node's results; None if the node has one result.
        name: Name of the value in the captured graph.
        values: One value of the main graph; two for complex values inside the graph, the real and
            the imaginary part.
    """

    node: torch.fx.Node
    index: int | None
    name: str
    values: tuple[ir.Value, ...]

    @property
    def onnx_name(self) -> str:
        """Name of the ONNX value; for complex values in two parts, the name of the real part."""
        return str(self.values[0].name)

    def select_from(self, result: Any) -> Any:
        """Picks this value from the result of its node."""
        if self.index is None or not isinstance(result, (list, tuple)):
            return result
        return result[self.index]

    def split_parts(self, result: Any) -> tuple[torch.Tensor, ...]:
        """Converts PyTorch's result to the form in which the ONNX values hold it."""
        tensor = result if isinstance(result, torch.Tensor) else torch.tensor(result)
        found: tuple[torch.Tensor, ...] = (tensor,)
        if tensor.is_complex():
            together = torch.view_as_real(tensor.resolve_conj())
            found = (together,) if len(self.values) == 1 else together.unbind(-1)
        return tuple(map(_as_declared, self.values, found))

    def join_parts(self, parts: Sequence[torch.Tensor]) -> torch.Tensor:
        """Joins ONNX Runtime's parts of a complex value; model outputs are complex already."""
        return parts[0] if len(parts) == 1 else torch.complex(*parts)


def _as_declared(value: ir.Value, tensor: torch.Tensor) -> torch.Tensor:
    if value.dtype is None:
        return tensor
    tensor = tensor.detach().to(dtypes.to_torch(value.dtype))
    is_number = tensor.dim() == 0 and value.shape is not None and len(value.shape) == 1
    return tensor.reshape(1) if is_number else tensor


def paired_values(
    graph: ir.Graph, captured: torch.export.ExportedProgram, other: Collection[str] = ()
) -> list[Pair]:
    """Pairs every captured value that the ONNX model still has, in execution order.

    An ONNX value has the name of its captured node, or records it in its metadata. This holds after
    fusion too: a replacement takes over the name. Outputs are paired by their order.

    Args:
        graph: The main graph.
        captured: The program that it was translated from.
        other: Names that stand for different values in the two graphs, and are not paired.
    """
    outputs = _outputs_by_node(graph, captured)
    returned = {value for values in outputs.values() for value in values}
    by_name: dict[str, list[ir.Value]] = {}
    for node in graph:
        for value in node.outputs:
            if value.name and isinstance(value.type, ir.TensorType) and value not in returned:
                original = value.metadata_props.get(ORIGINAL_NAME, value.name)
                by_name.setdefault(original, []).append(value)
    found = []
    for fx_node in captured.graph.nodes:
        for index, names in _named_results(fx_node):
            values = [value for name in names for value in outputs.get(name, ())]
            for name in names:
                if name not in other:
                    found += _pair_complex(fx_node, index, names[0], by_name, name)
                    values = by_name.pop(name, []) + values
            found += [Pair(fx_node, index, names[0], (value,)) for value in values]
    return found


def _outputs_by_node(
    graph: ir.Graph, captured: torch.export.ExportedProgram
) -> dict[str, list[ir.Value]]:
    """Outputs of the ONNX graph, by the names of the captured nodes that return them."""
    (output,) = captured.graph.find_nodes(op="output")
    specs = captured.graph_signature.output_specs
    pairs = zip(output.args[0], specs, strict=True)
    # the model's results come first, then the state it writes; None and strings stay in Python
    in_order = sorted(pairs, key=lambda pair: pair[1].kind != OutputKind.USER_OUTPUT)
    delivered = [node for node, _ in in_order if node is not None and not isinstance(node, str)]
    found: dict[str, list[ir.Value]] = {}
    if len(delivered) == len(graph.outputs):
        for node, value in zip(delivered, graph.outputs, strict=True):
            if isinstance(node, torch.fx.Node):
                found.setdefault(node.name, []).append(value)
    return found


def _pair_complex(
    node: torch.fx.Node,
    index: int | None,
    called: str,
    by_name: dict[str, list[ir.Value]],
    name: str,
) -> list[Pair]:
    real, imaginary = (by_name.pop(f"{name}.{part}", []) for part in ("real", "imag"))
    return [Pair(node, index, called, pair) for pair in zip(real, imaginary, strict=False)]


def _named_results(node: torch.fx.Node) -> Iterator[tuple[int | None, list[str]]]:
    """Yields the index of each result of a node and its possible names, the captured one first."""
    if node.op == "output" or (node.op == "call_function" and takes_apart(node)):
        return
    recorded = node.meta.get("val")
    if not isinstance(recorded, (list, tuple)):
        yield None, [node.name]
        return
    users: dict[int, list[str]] = {}
    for user in node.users:
        if user.target is operator.getitem and isinstance(user.args[1], int):
            users.setdefault(user.args[1], []).append(user.name)
    for index in range(len(recorded)):
        yield index, [*users.get(index, []), f"{node.name}__{index}"]


def takes_apart(node: torch.fx.Node) -> bool:
    """True if a node only selects one of several results of another node, which owns the value."""
    source = node.args[0] if node.target is operator.getitem else None
    return isinstance(source, torch.fx.Node) and isinstance(source.meta.get("val"), (list, tuple))


@dataclasses.dataclass(frozen=True)
class Slice:
    """The part of a graph that computes values from others.

    Attributes:
        outputs: The values that it computes.
        nodes: Its nodes, in execution order.
        inputs: The values that it reads: paired values, and inputs of the graph.
        initializers: The weights and constants that it reads.
    """

    outputs: tuple[ir.Value, ...]
    nodes: tuple[ir.Node, ...]
    inputs: tuple[ir.Value, ...]
    initializers: tuple[ir.Value, ...]


class Slices:
    """Cuts a graph into slices at paired values."""

    def __init__(self, graph: ir.Graph, pairs: Iterable[Pair]) -> None:
        self._ends = {value for pair in pairs for value in pair.values}
        self._positions = {node: position for position, node in enumerate(graph)}

    def slice_before(self, *pairs: Pair) -> Slice:
        """Returns the slice that computes paired values from the nearest other ones before them."""
        outputs = dict.fromkeys(value for pair in pairs for value in pair.values)
        nodes: set[ir.Node] = set()
        inputs: dict[ir.Value, None] = {}
        initializers: dict[ir.Value, None] = {}
        pending = [value.producer() for value in outputs]
        while pending:
            node = pending.pop()
            if node is None or node in nodes:
                continue
            nodes.add(node)
            for value in _values_read_by(node):
                if value.is_initializer():
                    initializers[value] = None
                elif value.producer() is None or (value in self._ends and value not in outputs):
                    inputs[value] = None
                else:
                    pending.append(value.producer())
        in_order = sorted(nodes, key=self._positions.__getitem__)
        return Slice(tuple(outputs), tuple(in_order), tuple(inputs), tuple(initializers))


def _values_read_by(node: ir.Node) -> Iterator[ir.Value]:
    """Yields the values that a node and its subgraphs read from the node's graph."""
    for value in node.inputs:
        if value is not None:
            yield value
    for attribute in node.attributes.values():
        if attribute.type == ir.AttributeType.GRAPH:
            for inner in ir.traversal.RecursiveGraphIterator(attribute.as_graph()):
                for value in inner.inputs:
                    if value is not None and value.graph is node.graph:
                        yield value


def extract_slice(model: ir.Model, piece: Slice) -> ir.Model:
    """Builds a model from a slice; weights are shared, not copied.

    Args:
        model: The model that the slice is from; it is not changed.
        piece: The slice. Its inputs and outputs, with their names, are those of the new model.
    """
    graph = ir.GraphView(
        piece.inputs,
        piece.outputs,
        nodes=piece.nodes,
        initializers=piece.initializers,
        opset_imports=model.graph.opset_imports,
        name=model.graph.name,
    ).clone()
    functions = tuple(model.functions.values())
    return ir.Model(graph, ir_version=model.ir_version, functions=functions)
