"""Computes equal expressions once."""

from __future__ import annotations

from typing import Any

import onnx_ir as ir

from onnx_aot.graph.traversal import all_graphs
from onnx_aot.metadata.keys import APART

__all__ = ["eliminate_common_subexpressions"]

# Equal inputs do not give equal outputs.
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
    """Nodes of the same operator, attributes and inputs become the first of them.

    Before::

        a = Shape(x)
        b = Shape(x)
        c = Concat(a, b)

    After::

        a = Shape(x)
        c = Concat(a, a)

    Nodes with subgraphs, of other domains than ONNX's, with random results, or with attributes
    that are a function's, stay, and so do nodes that produce a graph output. Nodes are visited
    once, in order.

    Returns:
        How many nodes were removed.
    """
    removed = 0
    for graph in all_graphs(model):
        seen: dict[Any, ir.Node] = {}
        dead = []
        for node in graph:
            key = _key(node)
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


def _key(node: ir.Node) -> Any:
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
    # by id, which inputs that are left out have too: hashing a value calls Python
    inputs = tuple(map(id, node.inputs))
    apart = node.meta.data.get(APART)
    return (node.op_type, inputs, tuple(attributes), len(node.outputs), apart)
