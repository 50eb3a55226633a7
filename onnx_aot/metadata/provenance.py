"""Finds the line of the user's code that an FX node comes from."""

from __future__ import annotations

import dataclasses
import functools
import os
import types
from typing import Any

import torch
import torch.fx

from onnx_aot.errors import SourceLocation
from onnx_aot.torch_compat import FRAME, TORCH_FOLDER, OpOverload

__all__ = ["location", "place", "stack_trace", "target_name"]

_PACKAGES = os.path.dirname(os.path.dirname(torch.__file__))
_USER, _PROMPT, _TORCH, _GENERATED = "user", "prompt", "torch", "generated"


def target_name(target: Any) -> str:
    """Name of a node's target, as torch.onnx writes it; a Python function by its qualified name.

    ``str(function)`` contains an address, which differs between runs.
    """
    if isinstance(target, types.FunctionType):
        return f"{target.__module__}.{target.__qualname__}"
    return _operator_name(target) if isinstance(target, OpOverload) else str(target)


_operator_name = functools.cache(str)


def stack_trace(node: torch.fx.Node) -> str:
    """The recorded stack, outermost call first, or an empty string."""
    return node.meta.get("stack_trace") or ""


def location(node: torch.fx.Node) -> SourceLocation | None:
    """The user's line that a node comes from, or None.

    This is the innermost recorded line of a file outside torch; else one without a file, typed at
    a prompt; else, for nodes that torch adds, such as the look-up of a size, the line of the first
    reader; else, for a module of torch that is exported alone, torch's line.
    """
    own = _parse_frames(node)
    readers = [frame for user in reversed(node.users) for frame in _parse_frames(user)]
    for frames, origin in ((own, _USER), (own, _PROMPT), (readers, _USER), (own, _TORCH)):
        found = [frame for frame in frames if _classify_origin(frame.file) == origin]
        if found:
            return found[-1]
    return None


def place(node: torch.fx.Node) -> SourceLocation | None:
    """The user's line that a node comes from, with the module and the node, or None."""
    found = location(node)
    if found is None:
        return None
    scopes = [scope for scope, _ in (node.meta.get("nn_module_stack") or {}).values() if scope]
    return dataclasses.replace(found, module=scopes[-1] if scopes else "", node=node.name)


def _parse_frames(node: torch.fx.Node) -> list[SourceLocation]:
    return [
        SourceLocation(
            match["file"], int(match["line"]), match["function"] or "", match["code"] or ""
        )
        for match in FRAME.finditer(stack_trace(node))
    ]


def _classify_origin(file: str) -> str:
    if file.startswith("<"):
        return _GENERATED if file.startswith("<eval_with_key>") else _PROMPT
    if file.startswith(TORCH_FOLDER):
        return _TORCH
    # some of torch's passes record their own lines, with a path relative to the installation
    added = not os.path.isabs(file) and os.path.exists(os.path.join(_PACKAGES, file))
    return _GENERATED if added else _USER
