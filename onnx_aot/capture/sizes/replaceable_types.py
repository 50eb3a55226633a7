"""Tells in which modules ``int`` and ``float`` may be replaced by functions that keep sizes."""

from __future__ import annotations

import ast
import functools
import linecache
from collections.abc import Iterator
from typing import Any

__all__ = ["is_replaceable"]


def is_replaceable(module: dict[str, Any], name: str) -> bool:
    """True if a module does not give a type to torch, or compare it: ``dtype=int``, ``is int``.

    False if its source is not available.

    Args:
        module: The namespace of the module.
        name: ``int`` or ``float``.
    """
    lines = linecache.getlines(module.get("__file__") or "", module)
    return bool(lines) and _is_replaceable("".join(lines), name)


@functools.lru_cache(maxsize=64)
def _is_replaceable(source: str, name: str) -> bool:
    try:
        tree = ast.parse(source)
    except SyntaxError:
        return False
    needs_type = (part for node in ast.walk(tree) for part in _find_needing_type(node))
    return not any(isinstance(part, ast.Name) and part.id == name for part in needs_type)


def _find_needing_type(node: ast.AST) -> Iterator[ast.AST]:
    """Yields parts of a node for which a replacement of a type may not do."""
    if isinstance(node, ast.keyword) and node.arg == "dtype":
        yield node.value
    elif isinstance(node, ast.Compare):
        for operand in (node.left, *node.comparators):  # type(x) in (int, float)
            yield from getattr(operand, "elts", [operand])
    elif isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
        yield from node.args
