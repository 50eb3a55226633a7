"""Corrects the sizes that torch.export records for ``unique_consecutive`` along ``dim=-1``."""

from __future__ import annotations

import operator

import torch
import torch.fx

from onnx_aot.fx_passes.nested_graphs import every_body
from onnx_aot.torch_compat import aten

__all__ = ["correct_unique_sizes"]

VALUES, INVERSE, COUNTS = range(3)


def correct_unique_sizes(program: torch.export.ExportedProgram) -> torch.export.ExportedProgram:
    """Gives the results of ``unique_consecutive(dim=-1)`` the sizes that they have.

    torch records the number of runs before the last dimension instead of in its place, and that
    dimension's size for the counts. Results that others compute with have been captured with those
    sizes: they stay, and the translation raises an error.

    Before::

        %unique = unique_consecutive(%x, dim = -1)      float32[s0, u0, s1], ...

    After::

        %unique = unique_consecutive(%x, dim = -1)      float32[s0, u0], ...
    """
    for module in (program.graph_module, *every_body(program.graph_module)):
        for node in module.graph.nodes:
            if node.target is aten.unique_consecutive.default:
                _correct(node)
    return program


def _correct(node: torch.fx.Node) -> None:
    rank = node.all_input_nodes[0].meta["val"].dim()
    values, inverse, counts = node.meta["val"]
    if not rank or values.dim() == rank or not _only_returned(node, rank):
        return
    values = values.new_empty(values.shape[:rank])
    counts = counts.new_empty(values.shape[-1:])
    node.meta["val"] = (values, inverse, counts)
    for part in node.users:
        part.meta["val"] = node.meta["val"][part.args[1]]


def _only_returned(node: torch.fx.Node, rank: int) -> bool:
    """True if nothing but the number of runs, which is in its place, is read of the results."""
    return all(
        part.target is operator.getitem
        and (
            part.args[1] == INVERSE
            or user.op == "output"
            or (user.target is aten.sym_size.int and user.args[1] == rank - 1)
        )
        for part in node.users
        for user in part.users
    )
