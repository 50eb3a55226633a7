"""Functionalizes the bodies of higher-order operators."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
import torch.fx

from onnx_aot.errors import FunctionalizationError
from onnx_aot.fx_passes.functionalize import functionalize_with_state
from onnx_aot.fx_passes.nested_graphs import (
    bodies,
    body_results,
    every_body,
    operands,
    placeholders,
)
from onnx_aot.metadata.keys import WRITTEN
from onnx_aot.torch_compat import higher_order

__all__ = ["functionalize_bodies"]


NEW_VALUES = "onnx_aot_new_values"
"""In a body's ``meta``: new values of the parameters that it writes to, by position."""

RETURNS_NEW_VALUES = "onnx_aot_returns_new_values"
"""In a body's ``meta``: it returns these new values."""


def functionalize_bodies(program: torch.export.ExportedProgram) -> torch.export.ExportedProgram:
    """Rewrites in-place operators inside branches, loop bodies and regions.

    The new values of parameters that a body writes to become further results of the body and of
    the call. The call gets ``written``, the positions of these parameters, and ``functionalize``
    makes the results the new values of the call's operands.

    Before::

        branch(a):  add_ = add_(a, 1); return (sin(add_),)
        other(a):   return (cos(a),)
        cond = cond(p, branch, other, (x,))

    After::

        branch(a):  add = add(a, 1); return (sin(add), add)
        other(a):   return (cos(a), a)
        cond = cond(p, branch, other, (x,), written=(0,))

    Raises:
        FunctionalizationError: A body writes in a way that has no functional form here.
    """
    found = list(every_body(program.graph_module))
    for body in found:
        _declare_writes(body)
        body.graph, body.meta[NEW_VALUES] = functionalize_with_state(body.graph)
    if found:
        _declare_writes(program.graph_module)
    return program


def _declare_writes(module: torch.fx.GraphModule) -> None:
    """Adds the values that bodies write to the results of the graph's calls."""
    for node in module.graph.nodes:
        called = bodies(node)
        positions = sorted({p for body in called for p in body.meta.get(NEW_VALUES, ())})
        if positions:
            _refuse_unshared_writes(node, called, positions)
            _return_new_values(node, called, tuple(positions))


def _refuse_unshared_writes(
    node: torch.fx.Node, called: Sequence[torch.fx.GraphModule], positions: Sequence[int]
) -> None:
    """Checks that bodies write only to operands that every step gets, and conditions to none.

    Raises:
        FunctionalizationError: A body writes to another operand.
    """
    given = operands(node)
    count = 0 if given is None else len(given)
    writable = range(count)
    if node.target == higher_order.map_impl:  # the new value of each slice is collected
        writable = range(len(_list(node, 1)))
    elif node.target == higher_order.scan:
        writable = range(count - len(_list(node, 3)), count)
    elif node.target == higher_order.while_loop:
        by_condition = called[0].meta.get(NEW_VALUES)
        writable = range(0 if by_condition else len(_list(node, 2)), 0 if by_condition else count)
    for position in positions:
        if position not in writable:
            name = placeholders(called[-1])[position].name
            raise FunctionalizationError(
                f"a function that is passed to {node.target} writes to its parameter {name} in "
                "place; write to a clone() and return it"
            )


def _list(node: torch.fx.Node, position: int) -> Sequence[Any]:
    return node.args[position]  # type: ignore[return-value]


def _return_new_values(
    node: torch.fx.Node, called: Sequence[torch.fx.GraphModule], positions: tuple[int, ...]
) -> None:
    returning = called[1:] if node.target == higher_order.while_loop else called
    for body in returning:
        if RETURNS_NEW_VALUES in body.meta:  # a body that is called twice
            continue
        body.meta[RETURNS_NEW_VALUES] = True
        parameters, values = placeholders(body), body.meta[NEW_VALUES]
        added = [values.get(position, parameters[position]) for position in positions]
        output = next(iter(reversed(body.graph.nodes)))
        output.args = ((*body_results(body), *added),)
    given = operands(node)
    assert given is not None
    kwargs = {k: v for k, v in node.kwargs.items() if k != "mutated_arg_indices"}
    node.kwargs = {**kwargs, WRITTEN: positions}
    added_values = [given[position].meta["val"] for position in positions]
    node.meta["val"] = (*node.meta["val"], *added_values)
