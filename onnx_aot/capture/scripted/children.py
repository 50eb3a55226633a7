"""Scripted modules inside of modules that are not."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

import torch

__all__ = ["is_scripted", "scripted_children_replaced"]


def is_scripted(module: torch.nn.Module) -> bool:
    """Whether a module is a ``ScriptedModel``, which is imported when there is one."""
    return type(module).__name__ == "ScriptedModel" and hasattr(module, "_script")


@contextlib.contextmanager
def scripted_children_replaced(module: torch.nn.Module) -> Iterator[None]:
    """Puts modules that can be captured in the places of scripted ones, for the duration."""
    before: list[tuple[torch.nn.Module, str, torch.nn.Module]] = []
    for parent in list(module.modules()):
        if isinstance(parent, torch.jit.ScriptModule):
            continue
        for name, child in parent._modules.items():
            if isinstance(child, torch.jit.ScriptModule):
                before.append((parent, name, child))
    if before:
        from onnx_aot.capture.scripted.module import ScriptedModel
    try:
        for parent, name, child in before:
            parent._modules[name] = ScriptedModel(child)
        yield
    finally:
        for parent, name, child in before:
            parent._modules[name] = child
