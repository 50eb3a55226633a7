"""``torch.vmap``, which a capture records by marks around operators on smaller tensors."""

from __future__ import annotations

import torch
import torch.fx

from onnx_aot.errors import FunctionalizationError

__all__ = ["is_mark", "is_marked_value", "refuse_marks"]

MODULE = "torch._functorch.predispatch"
VALUES = ("_add_batch_dim", "_remove_batch_dim")


def is_mark(node: torch.fx.Node) -> bool:
    """Whether a node says where a function under ``vmap`` begins, ends, or gets its tensors."""
    return node.op == "call_function" and getattr(node.target, "__module__", "") == MODULE


def is_marked_value(node: torch.fx.Node) -> bool:
    """Whether a node gives a tensor to such a function, or takes one from it."""
    return is_mark(node) and getattr(node.target, "__name__", "") in VALUES


def refuse_marks(program: torch.export.ExportedProgram) -> torch.export.ExportedProgram:
    """Hands programs with marks to torch, whose ``run_decompositions`` takes them apart.

    Raises:
        FunctionalizationError: The program has marks.
    """
    if any(is_mark(node) for node in program.graph.nodes):
        raise FunctionalizationError("torch.vmap is recorded by marks, not by operators")
    return program
