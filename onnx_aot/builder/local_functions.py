"""Implements ``op.function``: local functions of the model, made from Python functions."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator, Sequence
from contextlib import contextmanager

import onnx_ir as ir

from onnx_aot.builder.graph_builder import GraphBuilder
from onnx_aot.builder.subgraphs import make_subgraph
from onnx_aot.errors import TranslationError
from onnx_aot.graph.constants import constant_node
from onnx_aot.graph.opset_range import built_opset
from onnx_aot.graph.traversal import subgraphs

__all__ = ["DOMAIN", "call_function"]

DOMAIN = "pkg.onnx_aot"
"""Domain of these local functions."""


def call_function(
    op: GraphBuilder,
    name: str,
    key: Hashable,
    operands: Sequence[ir.Value],
    body: Callable[[Sequence[ir.Value]], Sequence[ir.Value]],
) -> list[ir.Value]:
    """Emits the call for ``Builder.function``, and the function itself at the first call."""
    state = op.state
    function = state.functions_by_key.get(key)
    if function is None:
        function = _make_function(op, name, operands, body)
        if not _has_random_nodes(function):  # random: each call needs its own seeds
            state.functions_by_key[key] = function
    state.functions[function.identifier()] = function
    results = [ir.Value() for _ in function.outputs]
    for result, output in zip(results, function.outputs, strict=True):
        result.type = output.type
    op.add_node(ir.Node(DOMAIN, function.name, list(operands), outputs=results))
    state.domains.use(DOMAIN, 1)
    return results


def _make_function(
    op: GraphBuilder,
    name: str,
    operands: Sequence[ir.Value],
    body: Callable[[Sequence[ir.Value]], Sequence[ir.Value]],
) -> ir.Function:
    known = (*op.state.functions.values(), *op.state.functions_by_key.values())
    taken = {function.name for function in known}
    unique, number = name, 0
    while unique in taken:
        number += 1
        unique = f"{name}_{number}"
    inputs = [
        ir.Value(name=f"{unique}.input_{index}", type=value.type, shape=value.shape)
        for index, value in enumerate(operands)
    ]
    with _hide_outer_values(op):
        graph = make_subgraph(op, unique, inputs, lambda: body(inputs))
    _own_constants(op, graph, unique)
    for value in _iterate_values(graph):
        if value.shape is not None:  # another call may have other sizes
            sizes = [size if isinstance(size, int) else None for size in value.shape.dims]
            value.shape = ir.Shape(sizes)
    domains = {node.domain for node in ir.traversal.RecursiveGraphIterator(graph)}
    graph.opset_imports[""] = built_opset(op.opset)
    graph.opset_imports.update({d: op.state.domains.version_of(d) for d in domains if d})
    return ir.Function(DOMAIN, unique, graph=graph, attributes=())


@contextmanager
def _hide_outer_values(op: GraphBuilder) -> Iterator[None]:
    """Hides from the body everything known about values outside it."""
    state = op.state
    held = state.sizes.values, state.sizes.sources, state.last_check, state.conditions
    state.sizes.values, state.sizes.sources = {}, {}
    state.last_check, state.conditions = None, set()
    try:
        yield
    finally:
        state.sizes.values, state.sizes.sources, state.last_check, state.conditions = held


def _own_constants(op: GraphBuilder, graph: ir.Graph, name: str) -> None:
    """Turns constants of the main graph that a function reads into nodes of the function."""
    made: dict[ir.Value, ir.Value] = {}
    own = set(_iterate_values(graph))
    for node in ir.traversal.RecursiveGraphIterator(graph):
        for index, value in enumerate(node.inputs):
            if value is None or value in own:
                continue
            if op.literal(value) is None:
                raise TranslationError(
                    f"the function {name} reads {value.name} from outside, which ONNX "
                    "functions cannot; give it to the region as an argument",
                    code="OA404",
                )
            if value not in made:
                made[value] = ir.Value(name=value.name, type=value.type, shape=value.shape)
            node.replace_input_with(index, made[value])
    for outer, inner in made.items():
        assert outer.const_value is not None
        graph.insert_before(graph[0], constant_node(inner, outer.const_value))


def _iterate_values(graph: ir.Graph) -> Iterator[ir.Value]:
    """Yields all values that a graph and its subgraphs define."""
    yield from graph.inputs
    for node in graph:
        yield from node.outputs
        for inner in subgraphs(node):
            yield from _iterate_values(inner)


def _has_random_nodes(function: ir.Function) -> bool:
    nodes = ir.traversal.RecursiveGraphIterator(function.graph)
    return any("seed" in node.attributes for node in nodes)
