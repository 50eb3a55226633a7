"""Lets a program write new keys and values into the buffers that hold the earlier ones."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import TYPE_CHECKING, Any

import onnx_ir as ir

if TYPE_CHECKING:
    from onnx_aot.program.program import ONNXProgram

__all__ = [
    "attention_nodes",
    "in_place",
    "read_lengths_of_mask",
    "states_not_in_place",
    "writes_in_place",
]

RULE = "shared_cache"
OPERATOR = ("com.microsoft", "GroupQueryAttention")
LENGTH = 2
"""Axis of the positions in keys and values."""


def in_place(optimize: bool | str | Collection[str]) -> set[str] | None:
    """Returns names of optimizations with the operator that writes into a cache.

    None without those that recognize attention: ``optimize`` is False or ``"safe"``.
    """
    from onnx_aot.ir_passes import names_of_passes

    if optimize is False or isinstance(optimize, str):
        return None
    names = names_of_passes() if optimize is True else optimize
    return {*names, RULE} - {"attention_of_heads"}  # it would take the same attention first


def writes_in_place(options: Mapping[str, Any]) -> bool:
    """True if options of an export request the operator that writes into a cache."""
    optimize = options.get("optimize", True)
    return not isinstance(optimize, (bool, str)) and RULE in optimize


def attention_nodes(program: ONNXProgram) -> list[ir.Node]:
    """Returns the nodes of that operator."""
    return [node for node in program.model.graph if (node.domain, node.op_type) == OPERATOR]


def states_not_in_place(program: ONNXProgram) -> list[str]:
    """Returns the names of states whose buffers nodes read in another way than that operator.

    Reading how many tokens they hold is no other way: see ``read_lengths_of_mask``.
    """
    return [str(state.name) for state in _states(program) if not _is_in_place(state)]


def read_lengths_of_mask(program: ONNXProgram) -> None:
    """Lets nodes take the number of earlier tokens from the mask, not from the size of a buffer."""
    graph = program.model.graph
    given = {str(value.name): value for value in graph.inputs}
    for state in _states(program):
        for node in [node for node in state.consumers() if node.op_type == "Shape"]:
            sizes = [
                ir.node("Shape", [given[name]], {"start": 1, "end": 2})
                for name in ("attention_mask", "input_ids")
            ]
            earlier = ir.node("Sub", [size.outputs[0] for size in sizes])
            for made in (*sizes, earlier):
                made.outputs[0].type = node.outputs[0].type
                made.outputs[0].shape = ir.Shape([1])
            graph.insert_before(node, [*sizes, earlier])
            old, new = node.outputs[0], earlier.outputs[0]
            new.name = f"{old.name}.Sub"
            for user, index in list(old.uses()):
                user.replace_input_with(index, new)
            graph.remove(node, safe=True)
    program.release()


def _states(program: ONNXProgram) -> list[ir.Value]:
    inputs = program.model.graph.inputs
    return [value for value in inputs if str(value.name).startswith("past_key_values.")]


def _is_in_place(state: ir.Value) -> bool:
    readers = [node for node in state.consumers() if not _reads_length(node)]
    if len(readers) != 1 or (readers[0].domain, readers[0].op_type) != OPERATOR:
        return False
    return not any(value.consumers() for value in readers[0].outputs[1:])


def _reads_length(node: ir.Node) -> bool:
    axes = node.attributes.get_int("start", 0), node.attributes.get_int("end", -1)
    return node.op_type == "Shape" and not node.domain and axes == (LENGTH, LENGTH + 1)
