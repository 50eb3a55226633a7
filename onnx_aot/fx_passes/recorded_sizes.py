"""Corrects sizes that torch's shape functions record wrongly."""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import Any

import torch
import torch.fx

from onnx_aot.fx_passes.nested_graphs import every_body
from onnx_aot.torch_compat import aten

__all__ = ["correct_recorded_sizes"]

INVERSE = 1  # result of unique_consecutive that has the shape of the input


def correct_recorded_sizes(program: torch.export.ExportedProgram) -> torch.export.ExportedProgram:
    """Gives results that are only returned the sizes that they have in eager PyTorch.

    Others have been captured with the recorded sizes: they stay, and the translation says so.

    Before::

        %unique = unique_consecutive(%x, dim = -1)      float32[s0, u0, s1], ...
        %loss = multilabel_margin_loss(%v, %t, 0)       float32[1]

    After::

        %unique = unique_consecutive(%x, dim = -1)      float32[s0, u0], ...
        %loss = multilabel_margin_loss(%v, %t, 0)       float32[]
    """
    for module in (program.graph_module, *every_body(program.graph_module)):
        for node in module.graph.nodes:
            correct = _CORRECTIONS.get(node.target)
            if correct is not None:
                correct(node)
    return program


def _correct_unique(node: torch.fx.Node) -> None:
    """Puts the number of runs along dim=-1 in its place, and not before that of the dimension."""
    rank = node.all_input_nodes[0].meta["val"].dim()
    values, inverse, counts = node.meta["val"]
    if not rank or values.dim() == rank or not _only_runs_are_read(node, rank):
        return
    values = values.new_empty(values.shape[:rank])
    counts = counts.new_empty(values.shape[-1:])
    node.meta["val"] = (values, inverse, counts)
    for part in node.users:
        part.meta["val"] = node.meta["val"][part.args[1]]


def _only_runs_are_read(node: torch.fx.Node, rank: int) -> bool:
    """True if nothing but the number of runs, which is where it belongs, is computed with."""
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


def _correct_margin_loss(node: torch.fx.Node) -> None:
    """Makes the loss of one sample without a batch a scalar."""
    one_sample = node.all_input_nodes[0].meta["val"].dim() < 2
    if one_sample and all(user.op == "output" for user in node.users):
        node.meta["val"] = node.meta["val"].new_empty(())


_CORRECTIONS: dict[Any, Callable[[torch.fx.Node], None]] = {
    aten.unique_consecutive.default: _correct_unique,
    aten.multilabel_margin_loss.default: _correct_margin_loss,
}
