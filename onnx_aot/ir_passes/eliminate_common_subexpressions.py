"""Computes equal expressions once."""

from __future__ import annotations

from typing import Any

import onnx_ir as ir

from onnx_aot.graph.traversal import all_graphs
from onnx_aot.metadata.keys import APART

__all__ = ["eliminate_common_subexpressions"]

# Operators whose outputs differ even for equal inputs.
RANDOM = frozenset(
    {
        "Bernoulli",
        "Dropout",
        "Multinomial",
        "RandomNormal",
        "RandomNormalLike",
        "RandomUniform",
        "RandomUniformLike",
    }
)

UNCOMPARED = frozenset({ir.AttributeType.GRAPH, ir.AttributeType.GRAPHS, ir.AttributeType.TENSOR})


def eliminate_common_subexpressions(model: ir.Model) -> int:
    """Replaces nodes with equal operator, attributes and inputs by the first of them.

    Before::

        a = Shape(x)
        b = Shape(x)
        c = Concat(a, b)

    After::

        a = Shape(x)
        c = Concat(a, a)

    Kept are nodes with subgraphs, tensor attributes or references to a function's attributes,
    nodes of domains other than ONNX's, nodes with random results, and nodes that produce a graph
    output. Nodes are visited once, in order.

    Returns:
        The number of removed nodes.
    """
    removed = 0
    for graph in all_graphs(model):
        seen: dict[Any, ir.Node] = {}
        dead = []
        for node in graph:
            key = _expression_key(node)
            if key is None:
                continue
            first = seen.setdefault(key, node)
            if first is node:
                continue
            if any(value.is_graph_output() for value in node.outputs):
                continue
            for old, new in zip(node.outputs, first.outputs, strict=True):
                old.replace_all_uses_with(new)
            for index in range(len(node.inputs)):
                node.replace_input_with(index, None)
            dead.append(node)
        graph.remove(dead)
        removed += len(dead)
    return removed


def _expression_key(node: ir.Node) -> Any:
    if node.domain or node.op_type in RANDOM:
        return None
    attributes = []
    for attribute in node.attributes.data.values():
        if attribute.type in UNCOMPARED or attribute.is_ref():
            return None
        value = attribute.value
        attributes.append((attribute.name, tuple(value) if isinstance(value, list) else value))
    if len(attributes) > 1:
        attributes.sort()
    # by id, which omitted inputs (None) have too; hashing a value would call Python code
    inputs = tuple(map(id, node.inputs))
    apart = node.meta.data.get(APART)
    return (node.op_type, inputs, tuple(attributes), len(node.outputs), apart)
