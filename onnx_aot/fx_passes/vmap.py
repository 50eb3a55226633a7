"""Recognizes ``torch.vmap``, captured as marks around operators on smaller tensors."""

from __future__ import annotations

import torch.fx

from onnx_aot.torch_compat import is_vmap_mark, is_vmap_value

__all__ = ["is_mark", "is_marked_value"]


def is_mark(node: torch.fx.Node) -> bool:
    """True if a node marks where a function under ``vmap`` begins, ends, or gets its tensors."""
    return node.op == "call_function" and is_vmap_mark(node.target)


def is_marked_value(node: torch.fx.Node) -> bool:
    """True if a node passes a tensor to such a function, or takes one from it."""
    return is_mark(node) and is_vmap_value(node.target)
