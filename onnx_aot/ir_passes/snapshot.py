"""Records the state of a model, so that it can be restored when a pass fails midway."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from typing import Any

import onnx_ir as ir

from onnx_aot.graph.traversal import all_nodes, subgraphs

__all__ = ["Snapshot"]


@dataclasses.dataclass(frozen=True)
class _GraphState:
    graph: ir.Graph
    nodes: tuple[ir.Node, ...]
    inputs: tuple[ir.Value, ...]
    outputs: tuple[ir.Value, ...]
    initializers: dict[str, ir.Value]
    imports: dict[str, int]


class Snapshot:
    """Nodes with their inputs, attributes and output names, and the interfaces of all graphs.

    Neither tensors nor nodes are copied: a snapshot takes about a microsecond per node.
    """

    def __init__(self, model: ir.Model) -> None:
        self._model = model
        self._functions = dict(model.functions)
        self._graphs: list[_GraphState] = []
        self._nodes: list[tuple[ir.Node, Any, dict[str, ir.Attr], list[str | None]]] = []
        for root in (model.graph, *(function.graph for function in model.functions.values())):
            self._record_graph(root)

    def _record_graph(self, graph: ir.Graph) -> None:
        nodes = tuple(graph)
        interface = (tuple(graph.inputs), tuple(graph.outputs), dict(graph.initializers))
        self._graphs.append(_GraphState(graph, nodes, *interface, dict(graph.opset_imports)))
        for node in nodes:
            attributes = dict(node.attributes.data)  # .data: items() of a UserDict is slow
            names = [value.name for value in node.outputs]
            self._nodes.append((node, node.inputs, attributes, names))
            for inner in subgraphs(node):
                self._record_graph(inner)

    def restore(self) -> None:
        """Restores the model, except types, shapes and metadata of values."""
        known = {node for node, *_ in self._nodes}
        for node in _iterate_nodes(self._model):
            if node not in known:
                for index in range(len(node.inputs)):
                    node.replace_input_with(index, None)
        for state in self._graphs:
            state.graph.remove(list(state.graph))
            state.graph.outputs.clear()
            state.graph.inputs.clear()
            state.graph.initializers.clear()
        for node, inputs, attributes, names in self._nodes:
            for value, name in zip(node.outputs, names, strict=True):
                value.name = name
            node.attributes.clear()
            node.attributes.update(attributes)
            node.resize_inputs(len(inputs))
            for index, value in enumerate(inputs):
                if node.inputs[index] is not value:
                    node.replace_input_with(index, value)
        self._restore_graphs()

    def _restore_graphs(self) -> None:
        for state in self._graphs:
            graph = state.graph
            graph.inputs.extend(state.inputs)
            for value in state.initializers.values():
                graph.initializers.add(value)
            graph.extend(state.nodes)
            graph.outputs.extend(state.outputs)
            graph.opset_imports.clear()
            graph.opset_imports.update(state.imports)
        self._model.functions.clear()
        self._model.functions.update(self._functions)


def _iterate_nodes(model: ir.Model) -> Iterator[ir.Node]:
    for root in (model.graph, *(function.graph for function in model.functions.values())):
        yield from all_nodes(root)
