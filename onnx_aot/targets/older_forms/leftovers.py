"""Removes constants that nodes read as inputs and that have become attributes."""

from __future__ import annotations

import onnx_ir as ir

from onnx_aot.graph.traversal import all_graphs
from onnx_aot.metadata.keys import INPUT_KIND

__all__ = ["remove_unread_constants"]


def remove_unread_constants(model: ir.Model) -> None:
    """Removes initializers and Constant nodes that nothing reads, except weights."""
    initializers = model.graph.initializers
    for name, value in list(initializers.items()):
        is_kept = INPUT_KIND in value.metadata_props or value.is_graph_input()
        if not (is_kept or value.uses() or value.is_graph_output()):
            del initializers[name]
    for graph in all_graphs(model):
        for node in graph:
            if node.op_type != "Constant":
                continue
            value = node.outputs[0]
            if not (value.uses() or value.is_graph_output()):
                graph.remove(node, safe=True)
