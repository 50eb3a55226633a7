"""Drops the new values that the model writes to buffers, parameters and inputs."""

from __future__ import annotations

from collections.abc import Iterable

import torch
import torch.fx
from torch.export.graph_signature import ExportGraphSignature, OutputKind

from onnx_aot import torch_compat
from onnx_aot.metadata.keys import DROPPED_STATE

__all__ = ["drop_state"]

STATE_KINDS = frozenset(
    {
        OutputKind.BUFFER_MUTATION,
        OutputKind.PARAMETER_MUTATION,
        OutputKind.USER_INPUT_MUTATION,
    }
)


def drop_state(program: torch.export.ExportedProgram) -> list[str]:
    """Removes the outputs that are new values of state, and the nodes that only they need.

    Edits a functionalized program in place; the values that the model returns do not change.

    Before::

        add = add(%count, 1)
        output add (BUFFER_MUTATION of count), relu

    After::

        output relu

    Returns:
        Names of the buffers, parameters and inputs whose new values were left out.
    """
    specs = program.graph_signature.output_specs
    dropped = [str(spec.target) for spec in specs if spec.kind in STATE_KINDS]
    if not dropped:
        return []
    graph = program.graph_module.graph
    output = next(iter(reversed(graph.nodes)))
    pairs = list(zip(output.args[0], specs, strict=True))
    state = [value for value, spec in pairs if spec.kind in STATE_KINDS]
    kept = [(value, spec) for value, spec in pairs if spec.kind not in STATE_KINDS]
    output.args = (tuple(value for value, _ in kept),)
    _erase_unread(graph, (value for value in state if isinstance(value, torch.fx.Node)))
    signature = ExportGraphSignature(
        list(program.graph_signature.input_specs), [spec for _, spec in kept]
    )
    torch_compat.set_graph_signature(program, signature)
    program.graph_module.meta[DROPPED_STATE] = dropped
    return dropped


def _erase_unread(graph: torch.fx.Graph, nodes: Iterable[torch.fx.Node]) -> None:
    """Erases the nodes that nothing reads, then the nodes that only those read."""
    waiting = list(nodes)
    erased: set[torch.fx.Node] = set()
    while waiting:
        node = waiting.pop()
        if node.op == "placeholder" or node.users or node in erased:
            continue
        waiting.extend(node.all_input_nodes)
        graph.erase_node(node)
        erased.add(node)
