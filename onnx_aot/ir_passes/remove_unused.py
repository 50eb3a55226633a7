"""Removes nodes and initializers that no output depends on."""

from __future__ import annotations

import onnx_ir as ir

__all__ = ["remove_unused"]


def remove_unused(model: ir.Model) -> int:
    """Removes, from the last node to the first, nodes whose outputs nobody reads.

    Before::

        a = Add(x, y)
        b = Mul(x, 2)       no reader
        output a

    After::

        a = Add(x, y)
        output a

    Returns:
        How many nodes were removed.
    """
    removed = 0
    for graph in model.graphs():
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
    return removed


def _release(node: ir.Node) -> None:
    """Lets go of what a node reads, the nodes of its subgraphs included."""
    for index in range(len(node.inputs)):
        node.replace_input_with(index, None)
    for attribute in node.attributes.values():
        if attribute.type == ir.AttributeType.GRAPH:
            for inner in attribute.as_graph():
                _release(inner)
