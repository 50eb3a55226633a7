"""Which modules a node was called in, from the metadata that an export writes on it."""

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

    Of the captured node that comes last: its name and its operator.
    """

    path: str
    class_name: str


def scopes_of(node: ir.Node) -> list[Scope]:
    """The modules around a node, the model itself first, and then the captured node.

    The model's path is empty. Nodes without metadata, or with some that cannot be read, have none.
    """
    paths = _texts(node.metadata_props, NAME_SCOPES)
    classes = _texts(node.metadata_props, CLASS_HIERARCHY)
    if len(classes) != len(paths):
        classes = [""] * len(paths)
    pairs = zip(paths, classes, strict=True)
    return [Scope(p, c) for p, c in pairs if not p.startswith(NO_MODULE)]


def inner_scopes(scopes: Sequence[Scope], outer: Sequence[Scope]) -> Sequence[Scope]:
    """The modules around a node of a body that are not around the node that has the body.

    Args:
        scopes: The modules around the node, to which the one that has the body may belong.
        outer: The scopes of the node that has the body, itself last; none in the main graph.
    """
    shared = 0
    while shared < min(len(scopes), len(outer)) and scopes[shared].path == outer[shared].path:
        shared += 1
    return scopes[shared:]


def relative_name(path: str, around: Sequence[str]) -> str:
    """A module's path without that of the module around it."""
    for outer in reversed(around):
        if path.startswith(outer + "."):
            return path[len(outer) + 1 :]
    return path


def _texts(properties: Mapping[str, str], key: str) -> list[str]:
    """A list that is written as Python writes it."""
    written = properties.get(key)
    if not written:
        return []
    try:
        found = ast.literal_eval(written)
    except (ValueError, SyntaxError, MemoryError, RecursionError):  # of another program's files
        return []
    return [str(text) for text in found] if isinstance(found, list) else []
