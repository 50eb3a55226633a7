"""Access to the registries of an ``nn.Module``, whose entries no public method replaces."""

from __future__ import annotations

from collections.abc import MutableMapping
from typing import Any

import torch

__all__ = ["REGISTRIES", "has_hooks", "registered_in"]

REGISTRIES = frozenset({"_parameters", "_buffers", "_modules"})
"""Attributes in which a module keeps its parameters, buffers and submodules."""


def registered_in(module: torch.nn.Module, kind: str) -> MutableMapping[str, Any]:
    """Returns a module's own ``"parameters"``, ``"buffers"`` or ``"modules"``, by name."""
    held: MutableMapping[str, Any] = vars(module)[f"_{kind}"]
    return held


_HOOKS = ("_forward_hooks", "_forward_pre_hooks", "_backward_hooks", "_backward_pre_hooks")


def has_hooks(module: torch.nn.Module) -> bool:
    """True if functions run before or after a module, one of its submodules, or all modules."""
    everywhere = vars(torch.nn.modules.module)
    if any(everywhere.get(f"_global{name}") for name in _HOOKS):
        return True
    return any(vars(part).get(name) for part in module.modules() for name in _HOOKS)
