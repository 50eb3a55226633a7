"""Finds values that a function holds in none of its variables while it calls another one."""

from __future__ import annotations

import ast
import functools
import itertools
import linecache
from collections.abc import Iterator, Sequence
from types import CodeType

from onnx_aot.metadata.user_code import source_range

__all__ = ["may_hold_values"]

_DECIDING = (ast.Call, ast.IfExp, ast.BoolOp, ast.Await, ast.Yield, ast.YieldFrom)
_COLLECTING = (ast.ListComp, ast.SetComp, ast.DictComp, ast.GeneratorExp)
_ONE_AT_A_TIME = (ast.BoolOp, ast.IfExp)
_FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda)

_ITERATING = frozenset({"range", "enumerate", "zip", "reversed", "list", "tuple", "sorted"})
_ITERATING_METHODS = frozenset({"items", "values", "keys", "unbind", "split", "chunk", "children"})


@functools.lru_cache(maxsize=4096)
def may_hold_values(code: CodeType, instruction: int) -> bool:
    """True if a function may hold results of calls that no variable has, while it calls another.

    In ``f(x) * g(x)``, no variable has the result of ``f`` while ``g`` runs. In ``f(g(x))``, the
    parameter of ``f`` has that of ``g``. The list of a comprehension, and the variables of a
    generator in ``for``, are in no variable either.

    Args:
        code: The function.
        instruction: The instruction that runs, as ``frame.f_lasti`` has it.
    """
    path = _find_path(code, instruction)
    if not path:
        return True
    for node, inner in itertools.pairwise(path):
        if isinstance(node, _COLLECTING):
            return True
        if isinstance(node, (ast.For, ast.AsyncFor)) and isinstance(inner, ast.stmt):
            if not _is_plain_iterable(node.iter):
                return True
            continue
        if isinstance(node, ast.stmt) and isinstance(inner, (ast.stmt, ast.ExceptHandler)):
            continue
        if isinstance(node, _ONE_AT_A_TIME):
            continue
        parts = list(_list_parts(node))
        before = parts[: parts.index(inner)]
        if any(isinstance(inside, _DECIDING) for part in before for inside in ast.walk(part)):
            return True
    return False


def _is_plain_iterable(node: ast.expr) -> bool:
    """True if a loop is over a container, or over an iterator without variables."""
    for part in ast.walk(node):
        if isinstance(part, _COLLECTING):
            return False
        if isinstance(part, ast.Call):
            called = part.func
            plain = isinstance(called, ast.Name) and called.id in _ITERATING
            method = isinstance(called, ast.Attribute) and called.attr in _ITERATING_METHODS
            if not plain and not method:
                return False
    return True


def _find_path(code: CodeType, instruction: int) -> Sequence[ast.AST]:
    """The nodes from the function down to the instruction; none if they are not known."""
    place, tree = source_range(code, instruction), _parse(code.co_filename)
    if place is None or tree is None:
        return ()
    line, last, column, end = place
    path: list[ast.AST] = [tree]
    while True:
        parts = (p for p in _list_parts(path[-1]) if _contains(p, (line, column), (last, end)))
        part = next(parts, None)
        if part is None:
            break
        path.append(part)
    functions = [i for i, node in enumerate(path) if isinstance(node, _FUNCTIONS)]
    return path[functions[-1] :] if functions else ()


def _list_parts(node: ast.AST) -> Iterator[ast.AST]:
    """The parts of a node that have a place in the source."""
    for part in ast.iter_child_nodes(node):
        if isinstance(part, (ast.withitem, ast.arguments, ast.comprehension)):
            yield from _list_parts(part)
        else:
            yield part


def _contains(node: ast.AST, begin: tuple[int, int], end: tuple[int, int]) -> bool:
    if not isinstance(node, (ast.stmt, ast.expr, ast.keyword, ast.ExceptHandler, ast.match_case)):
        return False
    if isinstance(node, ast.match_case):
        return any(_contains(part, begin, end) for part in node.body)
    return (node.lineno, node.col_offset) <= begin and end <= (
        node.end_lineno or 0,
        node.end_col_offset or 0,
    )


@functools.lru_cache(maxsize=256)
def _parse(file: str) -> ast.Module | None:
    try:
        return ast.parse("".join(linecache.getlines(file)))
    except SyntaxError:
        return None
