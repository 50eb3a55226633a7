"""Access to the registries of an ``nn.Module``, whose entries no public method replaces."""

from __future__ import annotations

from collections.abc import MutableMapping
from typing import Any

import torch

__all__ = ["REGISTRIES", "registered_in"]

REGISTRIES = frozenset({"_parameters", "_buffers", "_modules"})
"""Attributes in which a module keeps its parameters, buffers and submodules."""


def registered_in(module: torch.nn.Module, kind: str) -> MutableMapping[str, Any]:
    """Returns a module's own ``"parameters"``, ``"buffers"`` or ``"modules"``, by name."""
    held: MutableMapping[str, Any] = vars(module)[f"_{kind}"]
    return held
