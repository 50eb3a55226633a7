"""Regions that are compiled once: local functions of the model, one for all equal regions."""

from __future__ import annotations

import operator
from collections.abc import Hashable, Sequence
from typing import Any

import onnx_ir as ir
import torch
import torch.fx

from onnx_aot.builder.builder import Builder
from onnx_aot.ops.control.callable_bodies import Body, flatten_items, rebuild_items
from onnx_aot.ops.registry import register

__all__: list[str] = []

SMALL = 64
"""Largest number of elements for which a constant is compared by its contents."""


@register(torch.ops.higher_order.invoke_subgraph)
def invoke_subgraph(
    op: Builder,
    subgraph: Body,
    identifier: str | None,
    *operands: Any,
    written: Sequence[int] = (),
) -> list[Any]:
    """``nested_compile_region``: a call of a local function.

    Regions are equal if their graphs are, regardless of the names of sizes; numbers that are known
    at export are part of the function.
    """
    recorded, parameters = list(op.result), subgraph.parameters
    numbers = tuple(v if isinstance(v, (int, float)) else None for v in operands)
    given = [(v, p) for v, p, n in zip(operands, parameters, numbers, strict=True) if n is None]
    values = flatten_items(op, [v for v, _ in given], [p for _, p in given])

    def run_subgraph(inner: Sequence[ir.Value]) -> list[ir.Value]:
        items = iter(rebuild_items(inner, [p if v is not None else None for v, p in given]))
        arguments = [next(items) if number is None else number for number in numbers]
        return flatten_items(op, subgraph(*arguments), recorded)

    key = (structural_key(subgraph.module), numbers)
    return rebuild_items(op.function("region", key, values, run_subgraph), recorded)


def structural_key(module: torch.fx.GraphModule) -> Hashable:
    """Key that is equal for graphs that compute the same from parameters of the same types."""
    names: dict[torch.fx.Node, str] = {}
    symbols: dict[str, str] = {}
    parts: list[Hashable] = []
    for node in _by_use(module.graph):
        names[node] = f"%{len(names)}"
        target: Hashable = node.target if node.op == "call_function" else None
        if node.op == "get_attr":
            held = operator.attrgetter(str(node.target))(module)
            target = (
                structural_key(held)
                if isinstance(held, torch.fx.GraphModule)
                else _constant_key(held)
            )
        arguments = torch.fx.map_arg((node.args, node.kwargs), names.__getitem__)
        parts.append((node.op, target, repr(arguments), _type_key(node.meta.get("val"), symbols)))
    return tuple(parts)


def _by_use(graph: torch.fx.Graph) -> list[torch.fx.Node]:
    """Parameters, then each node after its inputs: torch's own order of size lookups varies."""
    nodes = list(graph.nodes)
    ordered = dict.fromkeys(node for node in nodes if node.op == "placeholder")
    roots = [node for node in nodes if not node.users and node not in ordered]
    waiting = [(node, False) for node in reversed(roots)]
    while waiting:
        node, is_ready = waiting.pop()
        if node in ordered:
            continue
        if is_ready:
            ordered[node] = None
        else:
            waiting.append((node, True))
            waiting += [(source, False) for source in reversed(node.all_input_nodes)]
    return list(ordered)


def _constant_key(constant: Any) -> Hashable:
    """Key that is equal for equal small tensors, which every trace of a function creates anew."""
    if isinstance(constant, torch.Tensor) and constant.numel() <= SMALL:
        return (constant.dtype, tuple(constant.shape), repr(constant.tolist()))
    return id(constant)


def _type_key(recorded: Any, symbols: dict[str, str]) -> Hashable:
    """Types and shapes, with symbolic sizes numbered in order of appearance."""
    if isinstance(recorded, (list, tuple)):
        return tuple(_type_key(item, symbols) for item in recorded)
    if isinstance(recorded, torch.Tensor):
        return (recorded.dtype, tuple(_type_key(size, symbols) for size in recorded.shape))
    if isinstance(recorded, (torch.SymInt, torch.SymFloat, torch.SymBool)):
        return (type(recorded), symbols.setdefault(str(recorded), f"size {len(symbols)}"))
    return repr(recorded)
