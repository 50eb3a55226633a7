"""Scripted modules."""

from __future__ import annotations

import torch

__all__ = ["is_scripted"]


def is_scripted(module: torch.nn.Module) -> bool:
    """Whether a module is a ``ScriptedModel``, which is imported when there is one."""
    return type(module).__name__ == "ScriptedModel" and hasattr(module, "_script")
