"""Recognizes branches of the user's code that only validate data.

At ``if x.min() < 0: raise ValueError(...)`` a capture asks for a value that a graph does not have.
One way of the branch raises an error, or only writes a message, so the capture takes the other.
The source of the line that asks says which way that is.
"""

from __future__ import annotations

import ast
import builtins
import dataclasses
import dis
import functools
import io
import linecache
import logging
import os
import sys
import textwrap
import warnings
from collections.abc import Callable, Iterator, Sequence
from types import CodeType, FrameType
from typing import Any, Literal, NamedTuple

import torch

from onnx_aot.capture.sizes.guards import Location, find_user_frame
from onnx_aot.errors import PACKAGE
from onnx_aot.metadata.user_code import is_users_file, source_range
from onnx_aot.torch_compat import ASSERTING, TORCH_FOLDER, is_arithmetic, symbolic_expression

__all__ = ["Validation", "Validations", "describe_validations"]


@dataclasses.dataclass(eq=False)
class Validation:
    """A question of the capture that decides whether code runs that only validates.

    Attributes:
        answer: The answer with which that code does not run.
        raises: True if the code raises an error; False if it only writes a message.
        location: The user's line.
        lines: The first and the last line of the code that validates.
        text: Its source, in one line.
        others: Returns other conditions, any of which also avoids the code: sympy conditions, True
            or False. It raises if one cannot be evaluated, and is None once it was called.
        asserted: Whether the captured program asserts that the code does not run.
    """

    answer: bool
    raises: bool
    location: Location
    lines: tuple[int, int]
    text: str
    others: Callable[[], list[Any]] | None = None
    asserted: bool = False

    def contains(self, place: Location | None) -> bool:
        """True if a line belongs to the code that validates."""
        if place is None or place.file != self.location.file:
            return False
        return self.lines[0] <= place.line <= self.lines[1]


class Validations(list[Validation]):
    """The validations that a capture skipped, in order.

    Args:
        boundary: The code of the function that captures. Frames outside of it belong to the user's
            call of this package.
    """

    def __init__(self, boundary: CodeType) -> None:
        super().__init__()
        self._boundary = boundary

    def find(self) -> Validation | None:
        """Returns the validation that depends on the capture's present question, if there is one.

        It is not added. Nothing is found if the code of the line is not available, or if a caller
        catches the error.
        """
        asking = self._find_asking_frame(sys._getframe(1))
        if asking is None or not _is_model_code(asking.f_code):
            return None
        question = _find_question(asking)
        _, location = find_user_frame(asking, self._boundary)
        if question is None or location is None:
            return None
        if question.raises and self._is_caught(asking.f_back):
            return None
        lines, text = question.lines, question.text
        if is_users_file(asking.f_code.co_filename):
            location = dataclasses.replace(location, line=lines[0])
        else:  # a function of torch that validates
            lines, text = (location.line, location.line), location.text
        others = functools.partial(_evaluate_others, question.others, asking)
        return Validation(question.answer, question.raises, location, lines, text, others)

    def is_asked_by_model(self) -> bool:
        """True if the model's code asks the capture's present question, and not torch's."""
        asking = self._find_asking_frame(sys._getframe(1))
        return asking is not None and _is_model_code(asking.f_code)

    def decides_a_loop(self) -> bool:
        """True if the answer to the present question ends a ``while`` loop of the model, or not."""
        asking = self._find_asking_frame(sys._getframe(1))
        if asking is None or not _is_model_code(asking.f_code):
            return False
        tree = _parse(asking.f_code.co_filename)
        loops = (part for part in ast.walk(tree) if isinstance(part, ast.While))
        return any(_is_inside(asking.f_lineno, test) for loop in loops for test in _ends(loop))

    def reads_source(self) -> bool:
        """True if the source of the code that asks is available, so that ``find`` can tell."""
        asking = self._find_asking_frame(sys._getframe(1))
        return asking is not None and bool(_parse(asking.f_code.co_filename).body)

    def _find_asking_frame(self, frame: FrameType | None) -> FrameType | None:
        """Returns the innermost frame outside of the arithmetic of symbols."""
        while frame is not None and frame.f_code is not self._boundary:
            code = frame.f_code
            is_inner = code.co_filename.startswith(PACKAGE) or is_arithmetic(code.co_filename)
            if not is_inner or code.co_name == ASSERTING:
                return frame
            frame = frame.f_back
        return None

    def _is_caught(self, frame: FrameType | None) -> bool:
        """True if a function of the user that leads to the question catches errors."""
        while frame is not None and frame.f_code is not self._boundary:
            if is_users_file(frame.f_code.co_filename):
                places = _find_statements(_parse(frame.f_code.co_filename), frame.f_lineno)
                if any(place.caught for place in places[-1:]):
                    return True
            frame = frame.f_back
        return False


def describe_validations(validations: Sequence[Validation], kept: bool) -> str | None:
    """Returns a sentence about code of the model that is left out; None if there is none.

    Args:
        validations: What a capture skipped.
        kept: Whether the ONNX model has the assertions of the captured program.
    """
    left = [v for v in validations if not (kept and v.asserted)]
    if not left:
        return None
    shown: dict[str, None] = {}
    for each in left:
        does = "raises an error" if each.raises else "writes a message"
        shown[f"  {each.text} ({does}) at {each.location}"] = None
    advice = ""
    if any(each.raises for each in left):
        verb = "cannot keep these" if kept else "keeps those"
        advice = f"; runtime_checks=True {verb} that raise errors"
    return "\n".join(
        [f"the model checks its data, and the ONNX model leaves the checks out{advice}:", *shown]
    )


# --- the code that asks --------------------------------------------------------------------------

# Torch's code that is written like a model's; elsewhere an error may be how torch tries ways out.
_MODEL_FOLDERS = tuple(TORCH_FOLDER + name + os.sep for name in ("distributions", "nn"))


def _is_model_code(code: CodeType) -> bool:
    file = code.co_filename
    return is_users_file(file) or file.startswith(_MODEL_FOLDERS) or code.co_name == ASSERTING


class _Question(NamedTuple):
    """The parts of a ``Validation`` that follow from source code.

    Attributes:
        answer: As there.
        raises: As there.
        lines: As there.
        text: As there.
        others: Expressions, any of which also avoids the code if it has the given truth.
    """

    answer: bool
    raises: bool
    lines: tuple[int, int]
    text: str
    others: tuple[tuple[ast.expr, bool], ...]


class _Place(NamedTuple):
    """A statement, the statements that follow it in its block, and whether errors are caught."""

    statement: ast.stmt
    following: Sequence[ast.stmt]
    caught: bool


class _Leaf(NamedTuple):
    """An expression of a test whose truth is asked, the truth that is wanted, and ``others``."""

    expression: ast.expr
    wanted: bool
    others: tuple[tuple[ast.expr, bool], ...] = ()


def _find_question(frame: FrameType) -> _Question | None:
    for place in reversed(_find_statements(_parse(frame.f_code.co_filename), frame.f_lineno)):
        if not isinstance(place.statement, (ast.If, ast.Assert)):
            continue
        avoided = _find_avoided_way(place, frame)
        if avoided is None:
            continue
        found = _find_leaf(place.statement.test, avoided.passes_if, frame)
        if found is not None:
            return None if avoided.raises and place.caught else _choose_answer(avoided, found)
    return None


def _choose_answer(avoided: _Avoided, leaf: _Leaf) -> _Question | None:
    """The answer about the truth of a leaf, or about an element if it is ``any`` or ``all``."""
    expression, wanted, others = leaf
    if isinstance(expression, ast.Compare) and len(expression.ops) > 1 and not wanted:
        others = (*others, (expression, False))  # another link of the chain may be the false one
    function = _called_builtin(expression)
    every = {"any": False, "all": True}.get(function or "", wanted)
    if every != wanted and avoided.raises:
        return None  # one element decides, and it is not known which
    statement, last = avoided.statement, avoided.last
    word = "assert {}" if isinstance(statement, ast.Assert) else "if {}:"
    text = textwrap.shorten(word.format(ast.unparse(statement.test)), 100, placeholder=" ...")
    lines = statement.lineno, last.end_lineno or last.lineno
    return _Question(wanted, avoided.raises, lines, text, others)


class _Avoided(NamedTuple):
    """The way of a statement that only validates.

    Attributes:
        statement: The statement.
        passes_if: The truth of its test with which that way is not taken.
        raises: Whether the way raises an error; if not, it only writes.
        last: The last statement that belongs to it.
    """

    statement: ast.If | ast.Assert
    passes_if: bool
    raises: bool
    last: ast.stmt


def _find_avoided_way(place: _Place, frame: FrameType) -> _Avoided | None:
    statement = place.statement
    if isinstance(statement, ast.Assert):
        return _Avoided(statement, True, True, statement)
    assert isinstance(statement, ast.If)
    then, otherwise = _effect_of(statement.body, frame), _effect_of(statement.orelse, frame)
    if then == "raises":
        return _Avoided(statement, False, True, statement)
    if otherwise == "raises":
        return _Avoided(statement, True, True, statement)
    returns = isinstance(statement.body[-1], ast.Return) and not statement.orelse
    if returns and _effect_of(place.following, frame) == "raises":
        return _Avoided(statement, True, True, place.following[-1])
    if then == "writes" and otherwise == "writes":
        return _Avoided(statement, False, False, statement)
    return None


def _find_leaf(test: ast.expr, passes_if: bool, frame: FrameType) -> _Leaf | None:
    """The part of a test that the frame's present instruction asks for."""
    code = frame.f_code
    at, name = _find_instruction(code, frame.f_lasti, 1)
    jumps = name.startswith(("POP_JUMP", "JUMP_IF"))
    calls = name.startswith(("CALL", "PRECALL"))
    if not (jumps or calls or name in ("TO_BOOL", "COMPARE_OP")):
        return None
    leaves = list(_list_leaves(test, passes_if))
    if calls:
        leaves = [leaf for leaf in leaves if _called_builtin(leaf.expression) is not None]
    if hasattr(code, "co_positions"):
        if jumps:  # it has the position of the statement
            at, _ = _find_instruction(code, at - 2, -1)
        _, line, _, column = source_range(code, at) or (None,) * 4
        ends = ((leaf, leaf.expression) for leaf in leaves)
        return next(
            (f for f, e in ends if (e.end_lineno, e.end_col_offset) == (line, column)), None
        )
    return None if name.startswith("JUMP_IF") else _guess_leaf(test, passes_if, leaves, name)


def _guess_leaf(
    test: ast.expr, passes_if: bool, leaves: Sequence[_Leaf], name: str
) -> _Leaf | None:
    """The leaf that is asked for if only the line is known, as in Python 3.10.

    None if leaves need different answers, or the question may come from within one.

    Args:
        test: The test.
        passes_if: Its truth with which the code that validates does not run.
        leaves: The leaves that may be asked for.
        name: Name of the instruction.
    """
    if name == "CALL_FUNCTION":
        called = [part for part in ast.walk(test) if isinstance(part, ast.Call)]
        possible = len([call for call in called if isinstance(call.func, ast.Name)]) == 1
    else:
        possible = name.startswith("POP_JUMP") and not any(map(_has_choices, leaves))
    if not possible or len({leaf.wanted for leaf in leaves}) != 1:
        return None
    if len({leaf.others for leaf in leaves}) == 1:
        return leaves[0]
    return _Leaf(leaves[0].expression, leaves[0].wanted, ((test, passes_if),))


def _find_instruction(code: CodeType, at: int, step: Literal[1, -1]) -> tuple[int, str]:
    """The next instruction from an offset on, or the one before it, and its name."""
    while dis.opname[code.co_code[at]] in ("CACHE", "EXTENDED_ARG"):
        at += 2 * step
    return at, dis.opname[code.co_code[at]]


def _list_leaves(
    test: ast.expr, wanted: bool, others: tuple[tuple[ast.expr, bool], ...] = ()
) -> Iterator[_Leaf]:
    """Yields the expressions whose truth a test asks for one by one."""
    if isinstance(test, ast.UnaryOp) and isinstance(test.op, ast.Not):
        yield from _list_leaves(test.operand, not wanted, others)
    elif isinstance(test, ast.BoolOp):
        all_needed = isinstance(test.op, ast.And) == wanted
        for index, value in enumerate(test.values):
            later = () if all_needed else tuple((v, wanted) for v in test.values[index + 1 :])
            yield from _list_leaves(value, wanted, (*others, *later))
    else:
        yield _Leaf(test, wanted, others)


def _called_builtin(expression: ast.expr) -> str | None:
    """Name of the called builtin that asks for the truth of its argument, or None."""
    if isinstance(expression, ast.Call) and isinstance(expression.func, ast.Name):
        return expression.func.id if expression.func.id in ("all", "any", "bool") else None
    return None


def _has_choices(leaf: _Leaf) -> bool:
    """True if an expression itself asks for the truth of its parts."""
    asking = (ast.BoolOp, ast.IfExp, ast.comprehension, ast.Lambda)
    return any(isinstance(part, asking) for part in ast.walk(leaf.expression))


def _covers(node: ast.expr | ast.stmt, line: int) -> bool:
    return node.lineno <= line <= (node.end_lineno or node.lineno)


# --- what a branch does --------------------------------------------------------------------------


def _effect_of(
    statements: Sequence[ast.stmt], frame: FrameType
) -> Literal["raises", "writes"] | None:
    """Tells whether statements only raise an error or only write messages; None for others.

    An empty branch writes nothing. Local variables may be set on the way to an error.
    """
    sets_variables = False
    for statement in statements:
        if isinstance(statement, ast.Raise):
            return "raises"
        if isinstance(statement, ast.Assert) and isinstance(statement.test, ast.Constant):
            if not statement.test.value:
                return "raises"
        elif isinstance(statement, ast.If):
            ways = [_effect_of(way, frame) for way in (statement.body, statement.orelse)]
            if None in ways:
                return None
            if ways == ["raises", "raises"]:
                return "raises"
        elif isinstance(statement, (ast.Assign, ast.AnnAssign)):
            sets_variables = True
            targets = getattr(statement, "targets", None) or [getattr(statement, "target", None)]
            if not all(isinstance(target, ast.Name) for target in targets):
                return None
        elif not (isinstance(statement, (ast.Pass, ast.Assert)) or _writes(statement, frame)):
            return None
    return None if sets_variables else "writes"


def _ends(loop: ast.While) -> Iterator[ast.expr]:
    """The conditions that end a loop: its own, or that of an ``if`` that leaves ``while True``."""
    if not isinstance(loop.test, ast.Constant):
        yield loop.test
        return
    for part in ast.walk(loop):
        if isinstance(part, ast.If) and isinstance(part.body[-1], (ast.Break, ast.Return)):
            yield part.test


def _is_inside(line: int, part: ast.expr) -> bool:
    return part.lineno <= line <= (part.end_lineno or part.lineno)


def _writes(statement: ast.stmt, frame: FrameType) -> bool:
    """True if a statement only prints, warns or logs, or is a text."""
    if not isinstance(statement, ast.Expr):
        return False
    if isinstance(statement.value, ast.Constant):
        return True
    if not isinstance(statement.value, ast.Call):
        return False
    if any(isinstance(part, ast.NamedExpr) for part in ast.walk(statement.value)):
        return False
    function = _resolve(statement.value.func, frame)
    if function in (print, warnings.warn):
        return True
    owner = getattr(function, "__self__", None)
    if isinstance(owner, io.TextIOBase):
        return getattr(function, "__name__", "") in ("write", "flush")
    is_logger = isinstance(owner, (logging.Logger, logging.LoggerAdapter))
    is_logger = is_logger or type(owner).__name__ == "Logger"  # such as loguru's
    in_logging = getattr(function, "__module__", "") == "logging"
    return (is_logger or in_logging) and getattr(function, "__name__", "") in _LOG_METHODS


_LOG_METHODS = frozenset(
    {"critical", "debug", "error", "exception", "fatal", "info", "log", "warn", "warning"}
)


def _resolve(expression: ast.expr, frame: FrameType) -> Any:
    """The object that a dotted name stands for in a frame; None for other expressions."""
    if isinstance(expression, ast.Attribute):
        return getattr(_resolve(expression.value, frame), expression.attr, None)
    if isinstance(expression, ast.Name):
        for scope in (frame.f_locals, frame.f_globals, vars(builtins)):
            if expression.id in scope:
                return scope[expression.id]
    return None


# --- source --------------------------------------------------------------------------------------


def _parse(file: str) -> ast.Module:
    """The syntax tree of a file; an empty one if the source is not available."""
    return _parse_source("".join(linecache.getlines(file)))


@functools.lru_cache(maxsize=64)
def _parse_source(source: str) -> ast.Module:
    try:
        return ast.parse(source)
    except (SyntaxError, ValueError):
        return ast.Module([], [])


def _find_statements(tree: ast.Module, line: int) -> list[_Place]:
    """The statements around a line, the innermost last."""
    found: list[_Place] = []
    _collect_statements(tree.body, line, False, found)
    return found


def _collect_statements(
    block: Sequence[ast.stmt], line: int, caught: bool, found: list[_Place]
) -> None:
    for index, statement in enumerate(block):
        if not _covers(statement, line):
            continue
        found.append(_Place(statement, block[index + 1 :], caught))
        is_scope = isinstance(statement, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef))
        outside = caught and not is_scope
        inside = outside or _catches(statement)
        _collect_statements(getattr(statement, "body", ()), line, inside, found)
        for name in ("orelse", "finalbody"):
            _collect_statements(getattr(statement, name, ()), line, outside, found)
        for part in (*getattr(statement, "handlers", ()), *getattr(statement, "cases", ())):
            _collect_statements(part.body, line, outside, found)


def _catches(statement: ast.stmt) -> bool:
    """True if errors in the body of a statement may end there."""
    if isinstance(statement, (ast.With, ast.AsyncWith)):
        return any("suppress" in ast.unparse(item.context_expr) for item in statement.items)
    handlers = getattr(statement, "handlers", ())
    return any(not isinstance(handler.body[-1], ast.Raise) for handler in handlers)


# --- other conditions ----------------------------------------------------------------------------


def _evaluate_others(others: Sequence[tuple[ast.expr, bool]], frame: FrameType) -> list[Any]:
    scope = {**frame.f_globals, **frame.f_locals}
    values = [(_evaluate(expression, scope), wanted) for expression, wanted in others]
    return [value if wanted else _negate(value) for value, wanted in values]


def _evaluate(expression: ast.expr, scope: dict[str, Any]) -> Any:
    """The truth of an expression as a sympy condition, without asking whether it holds."""
    import sympy

    if isinstance(expression, ast.UnaryOp) and isinstance(expression.op, ast.Not):
        return _negate(_evaluate(expression.operand, scope))
    if isinstance(expression, ast.BoolOp):
        values = [_evaluate(value, scope) for value in expression.values]
        return (sympy.And if isinstance(expression.op, ast.And) else sympy.Or)(*values)
    if isinstance(expression, ast.Compare) and len(expression.ops) > 1:
        terms = [expression.left, *expression.comparators]
        links = [
            ast.copy_location(ast.Compare(left, [operator], [right]), expression)
            for left, operator, right in zip(terms, expression.ops, terms[1:], strict=False)
        ]
        return sympy.And(*(_evaluate(link, scope) for link in links))
    value = eval(compile(ast.Expression(expression), "<validation>", "eval"), scope)
    if isinstance(value, torch.Tensor):
        value = (value != 0).item()
    if isinstance(value, (torch.SymInt, torch.SymFloat)):
        value = value != 0
    return symbolic_expression(value) if isinstance(value, torch.SymBool) else bool(value)


def _negate(value: Any) -> Any:
    return not value if isinstance(value, bool) else ~value
