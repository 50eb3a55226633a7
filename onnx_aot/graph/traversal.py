"""Walks over the nodes and graphs of a model, subgraphs included."""

from __future__ import annotations

from collections.abc import Iterator

import onnx_ir as ir

__all__ = ["WITH_GRAPHS", "all_graphs", "all_nodes", "subgraphs"]

WITH_GRAPHS = frozenset({"If", "Loop", "Scan", "SequenceMap"})
"""ONNX's own operators that have graphs among their attributes."""


def subgraphs(node: ir.Node) -> Iterator[ir.Graph]:
    """Yields the graphs among the attributes of a node."""
    if node.op_type not in WITH_GRAPHS and not node.domain:
        return
    for attribute in node.attributes.values():
        if attribute.type == ir.AttributeType.GRAPH:
            yield attribute.as_graph()


def all_nodes(graph: ir.Graph) -> Iterator[ir.Node]:
    """Yields nodes in order, each before those of its subgraphs; the graph may change meanwhile."""
    for node in graph:
        yield node
        if node.op_type in WITH_GRAPHS or node.domain:
            for inner in subgraphs(node):
                yield from all_nodes(inner)


def all_graphs(model: ir.Model) -> list[ir.Graph]:
    """Returns the main graph and the graphs of functions, each before its subgraphs."""
    found: list[ir.Graph] = []
    for root in (model.graph, *(function.graph for function in model.functions.values())):
        found.append(root)
        for node in all_nodes(root):
            if node.op_type in WITH_GRAPHS or node.domain:
                found.extend(subgraphs(node))
    return found
