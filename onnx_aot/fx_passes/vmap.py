"""``torch.vmap``, which a capture records by marks around operators on smaller tensors."""

from __future__ import annotations

import torch.fx

__all__ = ["is_mark", "is_marked_value"]

MODULE = "torch._functorch.predispatch"
VALUES = ("_add_batch_dim", "_remove_batch_dim")


def is_mark(node: torch.fx.Node) -> bool:
    """Whether a node says where a function under ``vmap`` begins, ends, or gets its tensors."""
    return node.op == "call_function" and getattr(node.target, "__module__", "") == MODULE


def is_marked_value(node: torch.fx.Node) -> bool:
    """Whether a node gives a tensor to such a function, or takes one from it."""
    return is_mark(node) and getattr(node.target, "__name__", "") in VALUES
