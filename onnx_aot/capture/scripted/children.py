"""Recognizes scripted modules without importing their interpreter."""

from __future__ import annotations

import torch

__all__ = ["is_scripted"]


def is_scripted(module: torch.nn.Module) -> bool:
    """True if a module is a ``ScriptedModel``, a class that is imported only when needed."""
    return type(module).__name__ == "ScriptedModel" and hasattr(module, "_script")
