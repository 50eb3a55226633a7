"""Completes what a captured graph knows about the uses of its values."""

from __future__ import annotations

import torch

from onnx_aot.fx_passes.nested_graphs import every_body

__all__ = ["complete_users"]


def complete_users(program: torch.export.ExportedProgram) -> torch.export.ExportedProgram:
    """Adds each node to the users of its arguments, if it is missing there.

    Torch 2.13 forgets a user where it splits a graph at ``with torch.no_grad():`` that has a size
    that depends on data. Such a node cannot be erased, and its argument seems to be unused.

    Before::

        size = sym_size(index, 0)       size is not in index.users

    After: it is.
    """
    for module in (*every_body(program.graph_module), program.graph_module):
        for node in module.graph.nodes:
            for given in node.all_input_nodes:
                given.users.setdefault(node)
    return program
