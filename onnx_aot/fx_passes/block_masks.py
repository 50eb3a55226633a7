"""Removes ``flex_attention``'s block masks and the nodes that only they need."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import torch
import torch.fx

from onnx_aot.fx_passes.functional_twins import written_nodes
from onnx_aot.fx_passes.nested_graphs import every_body
from onnx_aot.fx_passes.vmap import is_mark, is_marked_value

__all__ = ["drop_block_masks"]

BLOCK_MASK = 4
"""Position of the block mask among the arguments; its function is its last element."""


def drop_block_masks(program: torch.export.ExportedProgram) -> torch.export.ExportedProgram:
    """Keeps the mask function of each block mask, and drops the tensors that mark its zeros.

    These tensors save a GPU kernel work and do not change the result. The nodes that compute them
    are erased, with the marks of the ``vmap`` that they ran under.

    Before::

        mask = ge(arange(n), arange(n)); blocks = sum(view(mask))
        y = flex_attention(q, k, v, score_mod, (n, n, blocks, ..., mask_mod), scale)

    After::

        y = flex_attention(q, k, v, score_mod, (None, None, None, ..., mask_mod), scale)
    """
    modules = [*every_body(program.graph_module), program.graph_module]
    for module in modules:
        dropped: list[torch.fx.Node] = []
        for node in module.graph.nodes:
            if node.target == torch.ops.higher_order.flex_attention:
                mask: Any = node.args[BLOCK_MASK]
                dropped += [item for item in mask[:-1] if isinstance(item, torch.fx.Node)]
                node.update_arg(BLOCK_MASK, (*(None for _ in mask[:-1]), mask[-1]))
        if dropped:
            _erase_sources(module.graph, dropped)
    return program


def _erase_sources(graph: torch.fx.Graph, dropped: Iterable[torch.fx.Node]) -> None:
    """Erases nodes computed only for ``dropped``, and writes to tensors that nothing else reads."""
    sources = _collect_reachable(dropped, lambda node: node.all_input_nodes)
    erased = {
        node
        for node in _collect_reachable(sources, lambda node: node.users)
        if node.op == "call_function" and not _is_assertion(node)
    }
    waiting = list(erased)
    while waiting:
        node = waiting.pop()
        if node in erased and not (erased.issuperset(node.users) and _writes_only_to(node, erased)):
            erased.remove(node)
            waiting += [*node.all_input_nodes, *node.users]
    for node in reversed(graph.nodes):
        if node in erased:
            graph.erase_node(node)
    marks = [node for node in graph.nodes if is_mark(node)]
    if not any(is_marked_value(node) and node.users for node in marks):
        for node in reversed(marks):
            graph.erase_node(node)


def _collect_reachable(start: Iterable[torch.fx.Node], following: Any) -> set[torch.fx.Node]:
    found: set[torch.fx.Node] = set()
    waiting = [node for node in start if node.op == "call_function"]
    while waiting:
        node = waiting.pop()
        if node not in found:
            found.add(node)
            waiting += [other for other in following(node) if other.op == "call_function"]
    return found


def _writes_only_to(node: torch.fx.Node, nodes: set[torch.fx.Node]) -> bool:
    return nodes.issuperset(written_nodes(node))


def _is_assertion(node: torch.fx.Node) -> bool:
    """True if a node checks something that the user wrote; checks of mask types do not count."""
    name = str(node.target)
    return "_assert_" in name and "_assert_tensor_metadata" not in name
