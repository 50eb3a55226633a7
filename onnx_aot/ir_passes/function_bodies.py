"""Turns nodes of a graph into the body of a function: finds inputs and outputs, compares bodies."""

from __future__ import annotations

import ast
import dataclasses
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import onnx_ir as ir

from onnx_aot.graph.constants import constant_node
from onnx_aot.metadata.keys import (
    CAPTURED_NODE,
    CLASS_HIERARCHY,
    INPUT_KIND,
    NAME_SCOPES,
    NAMESPACE,
)

__all__ = [
    "Region",
    "detach",
    "find_region",
    "key_of",
    "make_function",
    "modules_written",
    "with_inner",
]

LARGEST_CONSTANT = 1024
"""Bytes. Larger constants become inputs of a function, like weights, so that calls can share it."""


@dataclasses.dataclass(frozen=True)
class Region:
    """Nodes that one call of a function can stand for.

    Attributes:
        nodes: The nodes in the graph's order.
        inputs: Values of the graph around them that they read, in the order of the first read.
        constants: Small constants that they read, in the same order.
        outputs: Their values that are read outside.
        readers: Outside nodes between them that depend on their values, directly or indirectly.
    """

    nodes: tuple[ir.Node, ...]
    inputs: tuple[ir.Value, ...]
    constants: tuple[ir.Value, ...]
    outputs: tuple[ir.Value, ...]
    readers: tuple[ir.Node, ...]


def find_region(span: Sequence[ir.Node], members: set[ir.Node]) -> Region | None:
    """Returns the region of members, without sizes used elsewhere that do not depend on members.

    Args:
        span: The graph's nodes from the first member to the last.
        members: The nodes of one module call.

    Returns:
        None if an outside node reads a member and is read by a member, or if nothing is left.
    """
    members = set(with_inner(members - _find_hoisted_sizes(span, members)))
    nodes = tuple(node for node in span if node in members)
    readers: dict[ir.Node, None] = {}
    for node in span:
        producers = {value.producer() for value in read_values(node)}
        if node in members:
            if any(producer in readers for producer in producers):
                return None
        elif any(producer in members or producer in readers for producer in producers):
            readers[node] = None
    if not nodes:
        return None
    read = dict.fromkeys(v for n in nodes for v in read_values(n) if v.producer() not in members)
    constants = tuple(value for value in read if _is_small_constant(value))
    outputs = tuple(v for n in nodes for v in n.outputs if _is_read_outside(v, members))
    inputs = tuple(value for value in read if value not in constants)
    return Region(nodes, inputs, constants, outputs, tuple(readers))


def _find_hoisted_sizes(span: Sequence[ir.Node], members: set[ir.Node]) -> set[ir.Node]:
    """Nodes for INT64 sizes of rank 0 or 1, computed from outside values and read outside."""
    free: dict[ir.Node, None] = {}
    for node in span:
        if node in members and all(map(_is_size, node.outputs)):
            producers = {value.producer() for value in read_values(node)} & members
            if producers <= free.keys():
                free[node] = None
    staying = set(with_inner(members))
    hoisted: set[ir.Node] = set()
    for node in reversed(free):
        if any(_is_read_outside(value, staying) for value in node.outputs):
            staying.remove(node)
            hoisted.add(node)
    return hoisted


def _is_size(value: ir.Value) -> bool:
    rank = None if value.shape is None else len(value.shape)
    return value.dtype == ir.DataType.INT64 and rank is not None and rank <= 1


def _is_read_outside(value: ir.Value, members: set[ir.Node]) -> bool:
    return value.is_graph_output() or any(node not in members for node in value.consumers())


def with_inner(nodes: Iterable[ir.Node]) -> Iterator[ir.Node]:
    """Yields the nodes and the nodes of their subgraphs."""
    for node in nodes:
        yield node
        for graph in subgraphs(node):
            yield from with_inner(graph)


def _is_small_constant(value: ir.Value) -> bool:
    tensor = value.const_value
    if tensor is None or value.is_graph_input() or INPUT_KIND in value.metadata_props:
        return False
    return tensor.nbytes <= LARGEST_CONSTANT


def subgraphs(node: ir.Node) -> Iterator[ir.Graph]:
    for attribute in node.attributes.values():
        if attribute.type == ir.AttributeType.GRAPH:
            yield attribute.as_graph()


def read_values(node: ir.Node) -> Iterator[ir.Value]:
    """Yields the values that a node and its subgraphs read, except values of the subgraphs."""
    for value in node.inputs:
        if value is not None:
            yield value
    for graph in subgraphs(node):
        own = set(graph.inputs)
        for inner in graph:
            yield from (value for value in read_values(inner) if value not in own)
            own.update(inner.outputs)


# --- equality ------------------------------------------------------------------------------------


def key_of(region: Region) -> Any:
    """Returns a key that is equal for regions with the same computation and the same outputs."""
    names: dict[ir.Value | None, Any] = {None: None}
    names.update((value, ("input", i)) for i, value in enumerate(region.inputs))
    names.update((value, _tensor_key(value.const_value)) for value in region.constants)
    nodes = _nodes_key(region.nodes, names)
    return (nodes, tuple(names[value] for value in region.outputs))


def _nodes_key(nodes: Sequence[ir.Node] | ir.Graph, names: dict[ir.Value | None, Any]) -> Any:
    keys = []
    for node in nodes:
        attributes = sorted((a.name, _attribute_key(a, names)) for a in node.attributes.values())
        inputs = tuple(names[value] for value in node.inputs)
        keys.append((node.domain, node.op_type, inputs, tuple(attributes), len(node.outputs)))
        for value in node.outputs:
            names[value] = len(names)
    return tuple(keys)


def _attribute_key(attribute: ir.Attr, names: dict[ir.Value | None, Any]) -> Any:
    if attribute.type == ir.AttributeType.GRAPH:
        graph = attribute.as_graph()
        for value in graph.inputs:
            names[value] = len(names)
        nodes = _nodes_key(graph, names)
        return repr((nodes, [names[value] for value in graph.outputs]))
    if attribute.type == ir.AttributeType.TENSOR:
        return repr(_tensor_key(attribute.as_tensor()))
    return repr(attribute.value)


def _tensor_key(tensor: Any) -> Any:
    return ("constant", tensor.dtype, tuple(tensor.shape), tensor.tobytes())


# --- functions -----------------------------------------------------------------------------------


def make_function(
    graph: ir.Graph, region: Region, domain: str, name: str, path: str
) -> ir.Function:
    """Moves a region's nodes out of the graph into a function.

    Values keep their names; those of inputs lose the module's path if they begin with it.
    """
    taken = {value.name for node in region.nodes for value in node.outputs}
    inner: dict[ir.Value, ir.Value] = {}
    for value in region.inputs:
        short = str(value.name).removeprefix(f"{path.partition('@')[0]}.")
        shown = short if short not in taken else str(value.name)
        taken.add(shown)
        inner[value] = ir.Value(name=shown, type=value.type, shape=value.shape)
    inputs = list(inner.values())
    constants = []
    for value in region.constants:
        made = ir.Value(name=value.name, type=value.type, shape=value.shape)
        assert value.const_value is not None
        constants.append(constant_node(made, value.const_value))
        inner[value] = made
    graph.remove(region.nodes)
    for node in region.nodes:
        _read_instead(node, inner)
    for node in with_inner(region.nodes):
        _make_path_relative(node.metadata_props, path)
    domains = {node.domain for node in region.nodes if node.domain}
    opsets = {"": graph.opset_imports[""], **{d: graph.opset_imports.get(d, 1) for d in domains}}
    body = ir.Graph(
        inputs, region.outputs, nodes=[*constants, *region.nodes], opset_imports=opsets, name=name
    )
    return ir.Function(domain, name, graph=body, attributes=[])


def _make_path_relative(properties: dict[str, str], path: str) -> None:
    """Makes a node's module path relative to the module, because the function serves all calls."""
    if NAME_SCOPES not in properties:
        return
    paths = ast.literal_eval(properties[NAME_SCOPES])
    classes = ast.literal_eval(properties[CLASS_HIERARCHY])
    start = paths.index(path) + 1
    inner = [p.removeprefix(f"{path}.") for p in paths[start:]]
    properties.update(modules_written(inner, classes[start:]))
    properties.pop(CAPTURED_NODE, None)


def modules_written(paths: Sequence[str], classes: Sequence[str]) -> dict[str, str]:
    """Returns the metadata of a node in these modules; the last entry is the node itself."""
    named = zip(paths, classes, strict=True)
    return {
        NAMESPACE: "/".join(f"{path}: {class_name}" for path, class_name in named),
        CLASS_HIERARCHY: repr(list(classes)),
        NAME_SCOPES: repr(list(paths)),
    }


def _read_instead(node: ir.Node, values: dict[ir.Value, ir.Value]) -> None:
    for index, value in enumerate(node.inputs):
        if value in values:
            node.replace_input_with(index, values[value])
    for graph in subgraphs(node):
        for inner in graph:
            _read_instead(inner, values)


def detach(node: ir.Node) -> None:
    """Disconnects the inputs of a node and of the nodes in its subgraphs."""
    for index in range(len(node.inputs)):
        node.replace_input_with(index, None)
    for graph in subgraphs(node):
        for inner in graph:
            detach(inner)
