"""Reads the modules around a node from the metadata that an export writes on it."""

from __future__ import annotations

import ast
from collections.abc import Mapping, Sequence
from typing import NamedTuple

import onnx_ir as ir

from onnx_aot.metadata.keys import CLASS_HIERARCHY, NAME_SCOPES
from onnx_aot.torch_compat import NO_MODULE

__all__ = ["Scope", "inner_scopes", "relative_name", "scopes_of"]


class Scope(NamedTuple):
    """A module around a node: its path in the model, and the qualified name of its class.

    The last scope of a node is the captured node itself, with its name and its operator.
    """

    path: str
    class_name: str


def scopes_of(node: ir.Node) -> list[Scope]:
    """The modules around a node, the model itself first, and last the captured node.

    The model's path is empty. Nodes without readable metadata have no scopes.
    """
    paths = _parse_texts(node.metadata_props, NAME_SCOPES)
    classes = _parse_texts(node.metadata_props, CLASS_HIERARCHY)
    if len(classes) != len(paths):
        classes = [""] * len(paths)
    pairs = zip(paths, classes, strict=True)
    return [Scope(p, c) for p, c in pairs if not p.startswith(NO_MODULE)]


def inner_scopes(scopes: Sequence[Scope], outer: Sequence[Scope]) -> Sequence[Scope]:
    """The modules around a node of a body that are not also around the node that has the body.

    Args:
        scopes: The scopes around the node, which may include the node that has the body.
        outer: The scopes of the node that has the body, itself last; empty in the main graph.
    """
    shared = 0
    while shared < min(len(scopes), len(outer)) and scopes[shared].path == outer[shared].path:
        shared += 1
    return scopes[shared:]


def relative_name(path: str, around: Sequence[str]) -> str:
    """A module's path without the path of the innermost module around it."""
    for outer in reversed(around):
        if path.startswith(outer + "."):
            return path[len(outer) + 1 :]
    return path


def _parse_texts(properties: Mapping[str, str], key: str) -> list[str]:
    """Parses metadata that is a list of texts as a Python literal; empty if it cannot be read."""
    written = properties.get(key)
    if not written:
        return []
    try:
        found = ast.literal_eval(written)
    except (ValueError, SyntaxError, MemoryError, RecursionError):  # files of other programs
        return []
    return [str(text) for text in found] if isinstance(found, list) else []
