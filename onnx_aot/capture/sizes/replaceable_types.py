"""Tells in which modules ``int`` and ``float`` may be replaced by functions that keep sizes."""

from __future__ import annotations

import ast
import functools
import inspect
import sys
from collections.abc import Iterator

__all__ = ["is_replaceable"]


@functools.cache
def is_replaceable(module: str, name: str) -> bool:
    """True if a module does not give a type to torch, or compare it: ``dtype=int``, ``is int``.

    False if its source is not available.
    """
    try:
        tree = ast.parse(inspect.getsource(sys.modules[module]))
    except (KeyError, OSError, SyntaxError, TypeError):
        return False
    needs_type = (part for node in ast.walk(tree) for part in _find_needing_type(node))
    return not any(isinstance(part, ast.Name) and part.id == name for part in needs_type)


def _find_needing_type(node: ast.AST) -> Iterator[ast.AST]:
    """Yields parts of a node for which a replacement of a type may not do."""
    if isinstance(node, ast.keyword) and node.arg == "dtype":
        yield node.value
    elif isinstance(node, ast.Compare):
        yield from (node.left, *node.comparators)
    elif isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
        yield from node.args
