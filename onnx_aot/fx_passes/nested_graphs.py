"""Finds the graphs passed to higher-order operators: branches, loop bodies, regions."""

from __future__ import annotations

import operator
from collections.abc import Iterator
from typing import Any

import torch
import torch.fx

from onnx_aot.torch_compat import OPERANDS, HigherOrderOperator, higher_order

__all__ = ["bodies", "body_of", "body_results", "every_body", "operands", "placeholders"]


def body_of(node: Any) -> torch.fx.GraphModule | None:
    """Returns the graph module that a ``get_attr`` node names, or None for other arguments."""
    if not isinstance(node, torch.fx.Node) or node.op != "get_attr":
        return None
    owner = node.graph.owning_module
    found = None if owner is None else operator.attrgetter(str(node.target))(owner)
    return found if isinstance(found, torch.fx.GraphModule) else None


def bodies(node: torch.fx.Node) -> list[torch.fx.GraphModule]:
    """Graph modules among a call's arguments, in order."""
    if not isinstance(node.target, HigherOrderOperator):
        return []
    found = (body_of(argument) for argument in node.all_input_nodes)
    return [body for body in found if body is not None]


def every_body(module: torch.fx.GraphModule) -> Iterator[torch.fx.GraphModule]:
    """Yields the bodies in a module's graph and in other bodies, once each, innermost first."""
    seen: set[int] = set()

    def walk_bodies(graph: torch.fx.Graph) -> Iterator[torch.fx.GraphModule]:
        for node in graph.nodes:
            body = body_of(node)
            if body is not None and id(body) not in seen:
                seen.add(id(body))
                yield from walk_bodies(body.graph)
                yield body

    if any(isinstance(child, torch.fx.GraphModule) for child in module.children()):
        yield from walk_bodies(module.graph)


def placeholders(body: torch.fx.GraphModule) -> list[torch.fx.Node]:
    """A body's parameters."""
    return [node for node in body.graph.nodes if node.op == "placeholder"]


def body_results(body: torch.fx.GraphModule) -> list[Any]:
    """Results of a body, nodes and constants, as a list even if there is only one."""
    results: Any = next(iter(reversed(body.graph.nodes))).args[0]
    return list(results) if isinstance(results, (list, tuple)) else [results]


def operands(node: torch.fx.Node) -> list[Any] | None:
    """Operands for the parameters of a call's bodies, or None if they are not known.

    For ``scan`` and ``map`` a body gets slices of some of them.
    """
    if node.target == higher_order.invoke_subgraph:
        return list(node.args[2:])
    target: Any = node.target
    positions = OPERANDS.get(target)
    if positions is None:
        return None
    arguments: Any = node.args
    return [item for position in positions for item in arguments[position]]
