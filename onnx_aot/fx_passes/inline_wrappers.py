"""Inlines bodies that are called once and unchanged into the graph around them.

These are grad-mode and autocast regions, checkpoints, ``autograd.Function`` and wrappers of a
function for a compiler.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
import torch.fx
from torch.export.graph_signature import ExportGraphSignature

from onnx_aot import torch_compat
from onnx_aot.fx_passes.nested_graphs import body_of, every_body
from onnx_aot.fx_passes.output_specs import rename_outputs
from onnx_aot.torch_compat import (
    ARGUMENTS_IN_A_TUPLE,
    AUTOCAST_BEGINS,
    AUTOCAST_ENABLED,
    AUTOCAST_ENDS,
    WRAPPERS,
    HigherOrderOperator,
    OpOverload,
    aten,
    higher_order,
    schema_of,
)

__all__ = ["cast_in_autocast", "inline_wrappers"]


def inline_wrappers(program: torch.export.ExportedProgram) -> torch.export.ExportedProgram:
    """Replaces calls of wrapped bodies by the bodies, at any depth of nesting.

    Gradient mode has no meaning in ONNX. In an autocast region the recorded types are those of the
    computation, so operands are cast to them.

    Before::

        out = wrap_with_set_grad_enabled(False, body, x)     body(a): b = cos(a); return (b,)
        y = out[0]

    After::

        b = cos(x)
        y = b
    """
    for body in list(every_body(program.graph_module)):
        inline_wrappers_in(body)
    if inline_wrappers_in(program.graph_module):
        # the program may return the result of a wrapper
        returned: Any = next(iter(reversed(program.graph_module.graph.nodes))).args[0]
        inputs = list(program.graph_signature.input_specs)
        outputs = rename_outputs(program, returned)
        torch_compat.set_graph_signature(program, ExportGraphSignature(inputs, outputs))
    return program


def _inline(module: Any, call: torch.fx.Node) -> None:
    target: Any = call.target
    position = next(i for i, arg in enumerate(call.args) if _is_body(arg))
    reference: Any = call.args[position]
    body: Any = module.get_submodule(reference.target)
    inline_wrappers_in(body)
    autocast = target is higher_order.wrap_with_autocast and call.args[AUTOCAST_ENABLED]
    arguments = iter(_body_arguments(call, position))
    references = [node for node in call.all_input_nodes if body_of(node) is not None]
    values: dict[torch.fx.Node, Any] = {}
    returned: Any = None
    graph = module.graph
    with graph.inserting_before(call):
        for node in body.graph.nodes:
            if node.op == "placeholder":
                values[node] = next(arguments)
            elif node.op == "get_attr":
                values[node] = _move_attribute(module, body, node)
            elif node.op == "call_function":
                copied = graph.node_copy(node, lambda n: values[n])
                values[node] = copied
                if autocast:
                    _cast_operands(graph, copied)
                    for inner in _find_bodies(copied):
                        _cast_in(inner.graph)
            elif node.op == "output":
                returned = torch.fx.map_arg(node.args[0], lambda n: values[n])
    if target is higher_order.autograd_function_apply:
        returned = returned[0]  # the rest is saved for the backward pass
    _replace_uses(call, returned)
    graph.erase_node(call)
    for unread in references:
        if not unread.users:
            graph.erase_node(unread)


def _body_arguments(call: torch.fx.Node, position: int) -> Sequence[Any]:
    """Arguments that the body gets."""
    following: Any = call.args[position + 1 :]
    if call.target is higher_order.autograd_function_apply:  # the body of the backward pass
        following = following[1:]
    elif call.target in ARGUMENTS_IN_A_TUPLE:
        following = following[0]
    return following  # type: ignore[no-any-return]


def _is_body(argument: Any) -> bool:
    return isinstance(argument, torch.fx.Node) and body_of(argument) is not None


def inline_wrappers_in(module: Any) -> bool:
    """Inlines the wrappers in a graph module, such as a body; returns True if there were any."""
    wrappers = [
        node
        for node in module.graph.nodes
        if node.op == "call_function" and node.target in WRAPPERS
    ]
    for node in wrappers:
        _inline(module, node)
    _end_autocast(module.graph)
    return bool(wrappers)


def _move_attribute(module: torch.fx.GraphModule, body: Any, node: torch.fx.Node) -> torch.fx.Node:
    """Moves a body's own submodule or tensor to the outer module, under a free name."""
    name = base = str(node.target).replace(".", "_")
    number = 0
    while hasattr(module, name):
        number += 1
        name = f"{base}_{number}"
    target = body
    for part in str(node.target).split("."):
        target = getattr(target, part)
    setattr(module, name, target)
    moved = module.graph.get_attr(name)
    moved.meta = dict(node.meta)
    return moved


def _replace_uses(call: torch.fx.Node, returned: Any) -> None:
    """Replaces the results of a wrapper: a tuple that is read by getitem, or one value."""
    if isinstance(returned, (list, tuple)):
        for user in list(call.users):
            index: Any = user.args[1]
            item = returned[index]
            if isinstance(item, torch.fx.Node):
                user.replace_all_uses_with(item)
            else:
                _replace_by_constant(user, item)
            user.graph.erase_node(user)
    else:
        call.replace_all_uses_with(returned)


def _replace_by_constant(node: torch.fx.Node, constant: Any) -> None:
    for user in list(node.users):
        user.args = torch.fx.map_arg(user.args, lambda n: constant if n is node else n)
        user.kwargs = torch.fx.map_arg(user.kwargs, lambda n: constant if n is node else n)


# --- autocast ------------------------------------------------------------------------------------


def _cast_operands(graph: torch.fx.Graph, node: torch.fx.Node) -> None:
    """Casts floating operands to the floating type that the node was recorded to compute in.

    Autocast casts below the level that the capture records, so the graph shows float32 operands
    with a bfloat16 result. Pointwise operators are left to the promotion rule, and conversions
    change the type themselves.
    """
    recorded = node.meta.get("val")
    results = recorded if isinstance(recorded, (list, tuple)) else [recorded]
    dtypes = {value.dtype for value in results if isinstance(value, torch.Tensor)}
    computed = [dtype for dtype in dtypes if dtype.is_floating_point]
    if len(computed) != 1:  # broadcast_tensors keeps the type of each operand
        return
    if isinstance(node.target, HigherOrderOperator) or _is_conversion(node):
        return
    if torch.Tag.pointwise in getattr(node.target, "tags", ()):
        return
    (dtype,) = computed

    def cast(operand: torch.fx.Node) -> torch.fx.Node:
        value = operand.meta.get("val")
        if not isinstance(value, torch.Tensor) or not value.dtype.is_floating_point:
            return operand
        if value.dtype == dtype:
            return operand
        with graph.inserting_before(node):
            made = graph.call_function(aten._to_copy.default, (operand,), {"dtype": dtype})
        made.meta = {**node.meta, "val": value.to(dtype)}
        return made

    node.args = torch.fx.map_arg(node.args, cast)
    node.kwargs = torch.fx.map_arg(node.kwargs, cast)


def cast_in_autocast(program: torch.export.ExportedProgram) -> torch.export.ExportedProgram:
    """Casts operands in a program that was captured in an autocast region.

    Before::

        y = linear(x, weight)                  # float32, float32; recorded as bfloat16

    After::

        a = _to_copy(x, dtype=bfloat16); b = _to_copy(weight, dtype=bfloat16)
        y = linear(a, b)
    """
    _cast_in(program.graph_module.graph)
    return program


def _end_autocast(graph: torch.fx.Graph) -> None:
    """Casts in autocast regions without a wrapper, such as around ``cond``; erases their marks."""
    regions: dict[torch.fx.Node, tuple[Any, bool]] = {}  # kind of device, and the switch
    for node in list(graph.nodes):
        name = str(getattr(node.target, "__name__", "")) if node.op == "call_function" else ""
        if name == AUTOCAST_BEGINS:
            regions[node] = node.args[0], bool(node.args[AUTOCAST_ENABLED])
        elif name == AUTOCAST_ENDS:
            opened: Any = node.args[0]
            del regions[opened]
            graph.erase_node(node)
            graph.erase_node(opened)
        # the last region of each kind of device counts
        elif node.op == "call_function" and any(dict(regions.values()).values()):
            _cast_operands(graph, node)
            for inner in _find_bodies(node):
                _cast_in(inner.graph)


def _cast_in(graph: torch.fx.Graph) -> None:
    """Casts operands in the body of an operator such as ``cond``, and in bodies inside it."""
    for node in list(graph.nodes):
        if node.op == "call_function":
            _cast_operands(graph, node)
            for inner in _find_bodies(node):
                _cast_in(inner.graph)


def _find_bodies(node: torch.fx.Node) -> list[torch.fx.GraphModule]:
    """The bodies of a call, also of one that stands for a loop of Python."""
    found = (body_of(argument) for argument in node.all_input_nodes)
    return [body for body in found if body is not None]


def _is_conversion(node: torch.fx.Node) -> bool:
    if not isinstance(node.target, OpOverload):
        return True
    takes_dtype = any(argument.name == "dtype" for argument in schema_of(node.target).arguments)
    return takes_dtype or node.target in (aten.type_as.default, aten.to.other)
