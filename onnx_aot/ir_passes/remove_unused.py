"""Removes nodes, initializers and weight inputs that no output depends on."""

from __future__ import annotations

import onnx_ir as ir

from onnx_aot.graph.traversal import all_graphs
from onnx_aot.metadata.keys import INPUT_KIND, STATE

__all__ = ["remove_unused"]


def remove_unused(model: ir.Model) -> int:
    """Removes nodes whose outputs are not read, from the last node to the first.

    Subgraphs are visited before the graphs around them, whose values they read.

    Before::

        a = Add(x, y)
        b = Mul(x, 2)       no reader
        output a

    After::

        a = Add(x, y)
        output a

    Returns:
        The number of removed nodes.
    """
    removed = 0
    for graph in reversed(all_graphs(model)):
        dead = []
        for node in reversed(graph):
            if any(value.uses() or value.is_graph_output() for value in node.outputs):
                continue
            _release(node)
            dead.append(node)
        graph.remove(dead)
        removed += len(dead)
    initializers = model.graph.initializers
    for name in [
        name
        for name, value in initializers.items()
        if not value.uses() and not value.is_graph_output() and not value.is_graph_input()
    ]:
        del initializers[name]
    _remove_unread_weights(model.graph)
    return removed


def _remove_unread_weights(graph: ir.Graph) -> None:
    """Removes unread weight inputs; keeps user inputs, and state whose new value is an output."""
    state = {value.metadata_props.get(STATE) for value in graph.outputs}
    for value in list(graph.inputs):
        is_weight = value.metadata_props.get(INPUT_KIND) in ("PARAMETER", "BUFFER")
        if is_weight and not value.uses() and value.name not in state:
            graph.inputs.remove(value)


def _release(node: ir.Node) -> None:
    """Disconnects the inputs of a node and of the nodes in its subgraphs."""
    for index in range(len(node.inputs)):
        node.replace_input_with(index, None)
    for attribute in node.attributes.values():
        if attribute.type == ir.AttributeType.GRAPH:
            for inner in attribute.as_graph():
                _release(inner)
