"""Turns modules into local functions of the model, with one call per call of a module."""

from __future__ import annotations

import ast
import collections
from collections.abc import Mapping
from typing import Any

import onnx_ir as ir

from onnx_aot.graph.opset_range import FUNCTIONS_SINCE
from onnx_aot.ir_passes.function_bodies import (
    Region,
    detach,
    find_region,
    key_of,
    make_function,
    modules_written,
    with_inner,
)
from onnx_aot.metadata.keys import APART, CLASS_HIERARCHY, FX_NODE, NAME_SCOPES
from onnx_aot.metadata.module_calls import ModuleCall

__all__ = ["keep_calls_apart", "modules_as_functions"]

Calls = Mapping[str, tuple[ModuleCall, ...]]


def keep_calls_apart(model: ir.Model, calls: Calls, wanted: frozenset[str]) -> None:
    """Marks the nodes of different calls, so that earlier passes do not merge them."""
    for node in model.graph:
        around = _find_enclosing_calls(node, calls, wanted)
        if around:
            node.meta[APART] = around


def _find_enclosing_calls(
    node: ir.Node, calls: Calls, wanted: frozenset[str]
) -> tuple[ModuleCall, ...]:
    around = calls.get(node.meta.get(FX_NODE, ""), ())
    return tuple(call for call in around if call.class_name in wanted)


def modules_as_functions(
    model: ir.Model,
    calls: Calls,
    wanted: frozenset[str],
) -> list[str]:
    """Replaces the nodes of each call of a wanted module by a function call.

    Calls that consist of the same nodes share a function: weights are its inputs. The function of
    a module calls the functions of the modules inside it.

    Before::

        a = MatMul(x, blocks.0.weight)
        b = Relu(a)
        c = MatMul(b, blocks.1.weight)
        d = Relu(c)

    After::

        b = my_model.Block(x, blocks.0.weight)      Block(x, w): Relu(MatMul(x, w))
        d = my_model.Block(b, blocks.1.weight)

    Args:
        model: Changed in place.
        calls: The module calls around each FX node, outermost first, by the node's name.
        wanted: Names of classes.

    Returns:
        The calls that stay as they are: an outside node depends on one of the module's values and
        is read by the module again, or no node of the module is left.
    """
    around = {node: _find_enclosing_calls(node, calls, wanted) for node in model.graph}
    functions: dict[Any, ir.Function] = {}
    left = []
    for depth in reversed(range(max(map(len, around.values()), default=0))):
        left += _replace_at(model.graph, around, depth, functions)
    for function in functions.values():
        model.functions[function.identifier()] = function
        model.opset_imports[function.domain] = 1
        model.ir_version = max(model.ir_version or 0, FUNCTIONS_SINCE)
    return left


def _replace_at(
    graph: ir.Graph,
    around: dict[ir.Node, tuple[ModuleCall, ...]],
    depth: int,
    functions: dict[Any, ir.Function],
) -> list[str]:
    """Replaces calls that are ``depth`` wanted modules deep; returns those that it leaves."""
    members: dict[ModuleCall, list[ir.Node]] = collections.defaultdict(list)
    for node in graph:
        if len(around[node]) > depth:
            members[around[node][depth]].append(node)
    places = _Places(graph)
    left = []
    for scope, nodes in members.items():
        region = find_region(places.nodes_between(nodes[0], nodes[-1]), set(nodes))
        if region is None:
            left.append(str(scope))
            continue
        call = _replace_region(graph, region, scope, functions)
        around[call] = around[nodes[0]][:depth]
        places.record_replacement(region, call)
    return left


class _Places:
    """The graph's nodes in order, kept up to date while calls replace nodes."""

    def __init__(self, graph: ir.Graph) -> None:
        self._graph = graph
        self._list()

    def _list(self) -> None:
        self._nodes = list(self._graph)
        self._index = {node: index for index, node in enumerate(self._nodes)}

    def nodes_between(self, first: ir.Node, last: ir.Node) -> list[ir.Node]:
        between = self._nodes[self._index[first] : self._index[last] + 1]
        return [node for node in between if node.graph is self._graph]

    def record_replacement(self, region: Region, call: ir.Node) -> None:
        if region.readers:  # they were moved
            self._list()
        else:
            self._nodes[self._index[region.nodes[-1]]] = call


def _replace_region(
    graph: ir.Graph, region: Region, scope: ModuleCall, functions: dict[Any, ir.Function]
) -> ir.Node:
    """Replaces a region's nodes by a call, and creates the function if it does not exist yet."""
    key = (scope.class_name, key_of(region))
    domain, _, name = scope.class_name.rpartition(".")
    known = functions.get(key)
    if known is None:
        same = sum(other[0] == scope.class_name for other in functions)
        name = name if same == 0 else f"{name}_{same + 1}"
    else:
        name = known.name
    outputs = []
    for inner in region.outputs:
        outer = ir.Value(name=inner.name, type=inner.type, shape=inner.shape)
        outer.metadata_props.update(inner.metadata_props)
        outputs.append(outer)
    last = region.nodes[-1]
    call = ir.Node(domain, name, region.inputs, outputs=outputs, name=f"node_{scope}")
    call.meta[FX_NODE] = last.meta.get(FX_NODE)
    call.metadata_props.update(_of_module(last.metadata_props, scope))
    graph.insert_after(last, call)
    for node in reversed(region.readers):
        graph.remove(node)
        graph.insert_after(call, node)
    members = set(with_inner(region.nodes))
    for inner, outer in zip(region.outputs, outputs, strict=True):
        _hand_over(graph, inner, outer, members)
    if known is None:
        functions[key] = make_function(graph, region, domain, name, scope.path)
    else:
        for node in region.nodes:
            detach(node)
        graph.remove(region.nodes)
    return call


def _hand_over(graph: ir.Graph, inner: ir.Value, outer: ir.Value, members: set[ir.Node]) -> None:
    """Makes all outside readers use the call's output."""
    for user, index in list(inner.uses()):
        if user not in members:
            user.replace_input_with(index, outer)
    for index, output in enumerate(graph.outputs):
        if output is inner:
            graph.outputs[index] = outer


def _of_module(properties: Mapping[str, str], scope: ModuleCall) -> dict[str, str]:
    """Returns the metadata of a node of the module, reduced to the module as a whole."""
    if NAME_SCOPES not in properties:
        return {}
    paths = ast.literal_eval(properties[NAME_SCOPES])
    count = paths.index(scope.path) + 1
    classes = ast.literal_eval(properties[CLASS_HIERARCHY])[:count]
    return modules_written(paths[:count], classes)
