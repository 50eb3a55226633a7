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
from onnx_aot.metadata.user_code import add_caller, is_users_file
from onnx_aot.torch_compat import FRAME, TORCH_FOLDER, OpOverload

__all__ = ["location", "place", "stack_trace", "target_name"]

_PACKAGES = os.path.dirname(os.path.dirname(torch.__file__))


def target_name(target: Any) -> str:
    """Name of a node's target, as torch.onnx writes it; a Python function by its qualified name.

    ``str(function)`` contains an address, which differs between runs.
    """
    if isinstance(target, types.FunctionType):
        return f"{target.__module__}.{target.__qualname__}"
    return _operator_name(target) if isinstance(target, OpOverload) else str(target)


_operator_name = functools.cache(str)


def stack_trace(node: torch.fx.Node) -> str:
    """The recorded stack, outermost call first, or an empty string.

    For a node that torch adds, such as the look-up of a size, it is that of the first reader.
    """
    own = _recorded_stack(node)
    if _lines_of_user(own):
        return own
    readers = map(_recorded_stack, node.users)
    return next((trace for trace in readers if _lines_of_user(trace)), own)


def location(node: torch.fx.Node) -> SourceLocation | None:
    """The user's line that a node comes from, or None.

    This is the innermost recorded line of the user's code. For a module of torch that is exported
    alone, it is torch's line.
    """
    trace = stack_trace(node)
    lines = _lines_of_user(trace)
    if lines:
        return add_caller(lines[::-1])
    torchs = [line for line in _parse_trace(trace) if line.file.startswith(TORCH_FOLDER)]
    return torchs[-1] if torchs else None


def place(node: torch.fx.Node) -> SourceLocation | None:
    """The user's line that a node comes from, with the module and the node, or None."""
    found = location(node)
    if found is None:
        return None
    scopes = [scope for scope, _ in (node.meta.get("nn_module_stack") or {}).values() if scope]
    return dataclasses.replace(found, module=scopes[-1] if scopes else "", node=node.name)


def _recorded_stack(node: torch.fx.Node) -> str:
    return node.meta.get("stack_trace") or ""


@functools.lru_cache(maxsize=4096)
def _lines_of_user(trace: str) -> tuple[SourceLocation, ...]:
    """The lines of a stack that are the user's code, in order."""
    return tuple(line for line in _parse_trace(trace) if _is_users(line.file))


def _parse_trace(trace: str) -> list[SourceLocation]:
    return [
        SourceLocation(
            match["file"], int(match["line"]), match["function"] or "", match["code"] or ""
        )
        for match in FRAME.finditer(trace)
    ]


def _is_users(file: str) -> bool:
    # some of torch's passes record their own lines, with a path relative to the installation
    is_relative = not file.startswith("<") and not os.path.isabs(file)
    added = is_relative and os.path.exists(os.path.join(_PACKAGES, file))
    return not added and is_users_file(file)
