"""Runs captured graphs in PyTorch."""

from __future__ import annotations

from typing import Any

import torch
import torch.fx
from torch.export.graph_signature import InputKind, OutputKind
from torch.fx import Node

from onnx_aot.torch_compat import (
    ASSERTIONS,
    MAY_COPY,
    HigherOrderOperator,
    OpOverload,
    pytree,
    schema_of,
    storage_key,
)

__all__ = [
    "WithoutAssertions",
    "is_recorded_copy",
    "may_write_weights",
    "run_graph",
    "written_arguments",
]


def is_recorded_copy(node: Node) -> bool:
    """True if a capture took the result of ``reshape`` or ``contiguous`` for a copy."""
    if node.target not in MAY_COPY:
        return False
    given = node.args[0]
    source = given.meta.get("val") if isinstance(given, Node) else None
    result = node.meta.get("val")
    if not isinstance(source, torch.Tensor) or not isinstance(result, torch.Tensor):
        return False
    return source.layout == torch.strided and storage_key(source) != storage_key(result)


class WithoutAssertions(torch.fx.Interpreter):
    """Runs a captured graph as the ONNX model does.

    Nodes that check something are left out, and what the capture took for a copy is one.
    """

    def run_node(self, n: torch.fx.Node) -> Any:
        """Runs a node."""
        if n.target in ASSERTIONS:
            return None
        result = super().run_node(n)
        return result.clone() if is_recorded_copy(n) else result


def may_write_weights(program: torch.export.ExportedProgram) -> bool:
    """True unless no operator of a captured graph writes to a parameter or to a view of one."""
    specs = program.graph_signature.input_specs
    weights = {spec.arg.name for spec in specs if spec.kind == InputKind.PARAMETER}
    for node in program.graph.nodes:
        if isinstance(node.target, HigherOrderOperator):
            return True
        if weights & {_base_of(one).name for one in written_arguments(node)}:
            return True
    return False


def written_arguments(node: Node) -> list[Node]:
    """Returns the arguments that an operator writes to, as its schema says."""
    found: list[Node] = []
    if not isinstance(node.target, OpOverload):
        return found
    for position, argument in enumerate(schema_of(node.target).arguments):
        if argument.alias_info is not None and argument.alias_info.is_write:
            given = node.args[position] if position < len(node.args) else None
            leaves = pytree.tree_leaves(node.kwargs.get(argument.name, given))
            found += [leaf for leaf in leaves if isinstance(leaf, Node)]
    return found


def _base_of(node: Node) -> Node:
    """The node at which a chain of first arguments begins; views have what they view there."""
    while node.args and isinstance(node.args[0], Node):
        node = node.args[0]
    return node


def run_graph(
    program: torch.export.ExportedProgram,
    leaves: list[Any],
    writes_weights: bool,
    interpreter: type[WithoutAssertions] = WithoutAssertions,
) -> tuple[list[Any], bool]:
    """Runs a captured graph on the leaves of its inputs, and on copies of its weights if it writes.

    Args:
        program: The capture.
        leaves: The leaves of its inputs.
        writes_weights: Whether it may write to a weight, as ``may_write_weights`` says.
        interpreter: What runs the graph.

    Returns:
        The leaves of its outputs, and whether it draws random numbers. Operators do not tell:
        dropout draws none in evaluation.
    """
    signature = program.graph_signature
    remaining = iter(leaves)
    given = []
    for spec in signature.input_specs:
        if spec.kind == InputKind.USER_INPUT:
            value = next(remaining)
        else:
            name = str(spec.target)
            value = program.state_dict.get(name, program.constants.get(name))
        if isinstance(value, torch.Tensor) and (writes_weights or spec.kind != InputKind.PARAMETER):
            value = value.clone()
        given.append(value)
    run = interpreter(program.graph_module, garbage_collect_values=True)
    with torch.random.fork_rng(devices=[]), torch.no_grad():
        state = torch.get_rng_state()
        results = run.run(*given, enable_io_processing=False)
        is_random = not torch.equal(torch.get_rng_state(), state)
    kinds = [spec.kind for spec in signature.output_specs]
    outputs = [r for r, k in zip(results, kinds, strict=True) if k == OutputKind.USER_OUTPUT]
    return outputs, is_random
