"""Explains captures that fail because the model needs values of its data: places and fixes.

A graph has no values while it is captured. Both sides of ``if x.sum() > 0`` are captured where they
can be joined (``capture/branches/``); other questions have no answer. Draft export
continues with the values of the example, and so reaches every such place.
"""

from __future__ import annotations

import ast
import contextlib
import dataclasses
import linecache
import re
from collections.abc import Collection, Iterator, Sequence

from onnx_aot.capture.error_hints import UnjoinableError
from onnx_aot.capture.sizes.guards import (
    Decision,
    Location,
    is_question,
    lines_of_error,
    with_line,
)
from onnx_aot.errors import reference
from onnx_aot.torch_compat import WHILE_LOOP

__all__ = ["NeedsData", "describe_data_dependent", "describe_larger", "describe_way"]


@dataclasses.dataclass(frozen=True)
class NeedsData:
    """Explanation of a capture that failed because the model needs values of its data.

    Attributes:
        message: Every place with its fix.
        cause: The cause in one sentence.
        locations: The places.
        fix: The fix for the first place.
        codes: Codes of the pages that explain the places, at least one.
    """

    message: str
    cause: str
    locations: tuple[Location, ...]
    fix: str
    codes: tuple[str, ...]


@dataclasses.dataclass(frozen=True)
class Branching:
    """Branches on data that were captured on both sides.

    Attributes:
        locations: Their places.
        reason: Why the sides cannot be joined in one model; None if they can.
        fix: An edit after which they can.
        way: Lines about the branches after which the capture failed.
    """

    locations: Collection[Location | None]
    reason: str | None = None
    fix: str | None = None
    way: Sequence[str] = ()

    def are_right_at(self, location: Location) -> bool:
        """True if a place needs no fix."""
        return self.reason is None and location in self.locations

    def find_fix(self, location: Location) -> str | None:
        """The fix for a place; None if it is not one of the branches."""
        return self.fix if location in self.locations else None


def describe_data_dependent(
    decisions: Sequence[Decision],
    missing: Sequence[str],
    complete: bool,
    branches: Branching | None = None,
) -> NeedsData | None:
    """Describes every place with its fix; None if no place is known.

    Args:
        decisions: The decisions of the capture.
        missing: Custom operators without a fake kernel.
        complete: Whether draft export reached the end of the model.
        branches: Branches on data that were captured on both sides, if there are any.
    """
    branches = branches or Branching(())
    wanted = ("assumed",) if complete else ("undecided", "both")
    places: dict[Location, Decision] = {}
    for decision in decisions:
        location = decision.location
        if location is None or decision.validates or branches.are_right_at(location):
            continue
        if decision.kind in wanted:
            places.setdefault(location, decision)
    if not complete:  # the capture failed at the last one
        places = dict(list(places.items())[-1:])
    if not places and not missing:
        return None
    lines = []
    fixes = [
        (branches.find_fix(place) or _fix_for(places[place])) + _describe_sizes(places[place])
        for place in places
    ]
    if places:
        count = f"{len(places)} places" if len(places) > 1 else "one place"
        lines.append(f"it needs values of its data, which a graph does not have, in {count}:")
        for number, (location, fix) in enumerate(zip(places, fixes, strict=True), 1):
            where = with_line(location, "     ")
            lines += [f"  {number}. {where[0].strip()}", *where[1:], f"     fix: {fix}"]
        if branches.reason is not None:
            lines.append(f"Both sides cannot be one model: {branches.reason}.")
            if branches.fix is not None and not any(map(branches.find_fix, places)):
                lines.append(f"  fix: {branches.fix}")  # no place has shown it
        lines += branches.way
        if not complete:
            lines.append("There may be more places behind this one.")
    if missing:
        lines.append("custom operators have no fake kernel, which says what shape they return:")
        for operator in missing:
            name = "::".join(operator.split(".")[:2])
            fixes.append(f"write one, @torch.library.register_fake({name!r})")
            lines += [f"  {name}", f"     fix: {fixes[-1]}"]
    found = [_choose_code(decision) for decision in places.values()]
    codes = tuple(dict.fromkeys([*found, *(["OA112"] if missing else [])]))
    lines += [reference(code) for code in codes[1:]]  # the error itself names the first
    if places:
        cause = f"the model{lines[0].removeprefix('it').removesuffix(':')}"
    else:
        cause = f"custom operators have no fake kernel: {', '.join(missing)}"
    return NeedsData("\n".join(lines), cause, tuple(places), fixes[0], codes)


def describe_way(decisions: Sequence[Decision], error: BaseException) -> list[str]:
    """The branches on data that led to a failure, and how to leave out the way that they went.

    Branches whose code has the line that failed, or that called it, the outermost first; if there
    is none, the last one before the failure.
    """
    asked = [d for d in decisions if d.kind == "both" and not d.validates]
    described: list[str] = []
    for line in reversed(lines_of_error(error)):
        for first, last, is_taken in _find_branches(line):
            around = [d for d in asked if _is_between(d.location, line.file, first, last)]
            if around:
                described += _describe_way(around[-1], is_taken)
    if described or isinstance(error, UnjoinableError) or not asked:
        return described
    is_last = asked[-1].location in (None, decisions[-1].location)
    return [] if is_last else _describe_way(asked[-1], None)


def _is_between(place: Location | None, file: str, first: int, last: int) -> bool:
    return place is not None and place.file == file and first <= place.line <= last


def _find_branches(place: Location) -> Iterator[tuple[int, int, bool]]:
    """The conditions around a line, the outermost first.

    Yields:
        The first and the last line of a condition, and whether the line is where it holds.
    """
    parts: list[ast.AST] = []
    with contextlib.suppress(SyntaxError):
        parts = [ast.parse("".join(linecache.getlines(place.file)))]
    for part in parts:
        for child in ast.iter_child_nodes(part):
            if not isinstance(child, (ast.stmt, ast.ExceptHandler)):
                continue
            if not _has_line(child, place.line):
                continue
            parts.append(child)
            if isinstance(child, ast.If) and not _has_line(child.test, place.line):
                is_taken = any(_has_line(each, place.line) for each in child.body)
                yield child.test.lineno, child.test.end_lineno or child.test.lineno, is_taken


def _has_line(node: ast.stmt | ast.ExceptHandler | ast.expr, line: int) -> bool:
    return node.lineno <= line <= (node.end_lineno or node.lineno)


def _describe_way(branch: Decision, is_taken: bool | None) -> list[str]:
    """Lines about a branch, with the edit that leaves out the way it went.

    Args:
        branch: The branch.
        is_taken: Whether it went where the condition holds; None if unknown.
    """
    assert branch.location is not None
    taken, other = branch.describe_way(), branch.describe_way(opposite=True)
    where = with_line(branch.location, "  ")
    if taken is not None and other is not None:
        return [
            f"Or, if the model never goes the way of {taken} at this line, write "
            f"torch._check({other}) above it:",
            *where,
        ]
    if is_taken is None or not branch.location.text.startswith(("if ", "elif ")):
        return []
    exporting = "onnx_aot.is_in_onnx_export()"
    edit, goes = ("not {} and", "into") if is_taken else ("{} or", "past")
    return [
        f"Or, if the model never goes {goes} this branch, leave it out while exporting, if "
        f"{edit.format(exporting)} ...:",
        *where,
    ]


def describe_larger(decisions: Sequence[Decision]) -> str | None:
    """Returns the warning about decisions that hold only for sizes from 2 on; None without any."""
    places = {str(d.location): d for d in decisions if d.kind == "larger"}
    if not places:
        return None
    lines = [
        "the model's code depends on how many elements its data selects, and was captured for 2 or "
        "more. The ONNX model is right only where the same holds; runtime_checks=True adds checks "
        "of it:"
    ]
    for decision in places.values():
        where = decision.location
        shown = "" if where is None else f" at {where}: {where.text}"
        lines.append(f"  {decision.text}{shown}")
    return "\n".join(lines)


_BRANCH = re.compile(r"^(if|elif|assert)\b|\bif\b.*\belse\b|\b(and|or|not)\b")
_WHILE = re.compile(r"^while\b")
_LOOP = re.compile(r"\bfor\b.*\bin\b|\brange\(")
_INDEX = re.compile(r"[\w\])]\[[^\]]*(\bint\(|\.item\(\))")
_WHOLE = re.compile(r"\bint\(")
_TYPED = re.compile(r"\btorch\.[A-Z][a-z]+Tensor\(")
_ITEM = re.compile(r"\.(item|tolist)\(\)")
WHERE = (
    "choose with torch.where(condition, a, b), or with torch.cond(condition, f, g, operands) "
    "where f and g compute"
)


_RETURN = (
    "make a function of the code for each way, and write "
    "return torch.cond(condition, f, g, operands)"
)


def _is_loop(text: str, asks: bool) -> bool:
    """True if the number of steps of a loop depends on data, as over ``mask.nonzero()``."""
    counts = text.startswith("for ") or ".tolist()" in text
    return bool(_LOOP.search(text)) and (counts or not asks)


_BREAK = (
    "let the loop take all of its steps while exporting, if later ones do no harm: "
    "if not onnx_aot.is_in_onnx_export() and ...: break; or export torch.jit.script(model), or a "
    "model with model.part = torch.jit.script(model.part), which keeps the loop"
)


def _leads_to(word: str, place: Location | None) -> bool:
    """True if the body of the ``if`` on a line begins with ``return`` or ``break``."""
    if place is None or not place.text.startswith(("if ", "elif ")):
        return False
    following = linecache.getline(place.file, place.line + 1).strip()
    is_open = place.text.endswith(":")
    return following.startswith(word) if is_open else f": {word}" in place.text


def _fix_for(decision: Decision) -> str:
    """Suggests a fix for one line, based on its text and on the kind of decision."""
    text = "" if decision.location is None else decision.location.text
    asks = is_question(decision.expression)
    if _WHILE.search(text):
        return (
            f"loop with {WHILE_LOOP}(condition, body, operands), or a fixed "
            "number of times, or export torch.jit.script(model), which keeps the loop"
        )
    if _is_loop(text, asks):
        return (
            "the number of iterations of a Python loop must not depend on data: compute on whole "
            "tensors with a mask "
            f"(torch.arange(limit) < n), or loop with {WHILE_LOOP}, or export "
            "torch.jit.script(model), which keeps the loop"
        )
    if not asks and _INDEX.search(text):
        return (
            "an index of a Python list must be known: keep the choices in one tensor, "
            "torch.stack(choices)[index]"
        )
    if not asks and _WHOLE.search(text):
        return (
            "convert it while it is a tensor: int(t) becomes t.to(torch.int64).item(), "
            "math.floor(t) becomes torch.floor(t)"
        )
    if not asks and _TYPED.search(text):
        return "write torch.tensor(..., dtype=...), which takes such numbers and gives that type"
    if not asks:
        return (
            "a Python number is needed there, which becomes part of the graph: compute with "
            "tensors instead, or pass it to forward and leave it out of dynamic_shapes"
        )
    holds = _check(decision)
    if ".view(" in text:
        return "write reshape(...), which does not have to know the size, instead of view(...)"
    if text.startswith("assert "):  # others are passed by, see validating_branches.py
        return (
            "check the data before the model is called, or leave the check out while exporting: "
            "if not onnx_aot.is_in_onnx_export(): assert ..."
        )
    if _leads_to("break", decision.location):
        return _BREAK
    if _BRANCH.search(text):
        always = "" if holds is None else f"; if it always goes the same way, write {holds} above"
        return (_RETURN if _leads_to("return", decision.location) else WHERE) + always
    if holds is None:
        made = next(iter(decision.made_at.values()), None)
        where = "" if made is None or _ITEM.search(text) else f", made at {made}"
        return (
            f"give the value a name (n = ....item()){where}, and say what always holds for it "
            "before this line, such as torch._check(n > 0); " + WHERE
        )
    return f"say above this line what always holds: {holds}"


def _describe_sizes(decision: Decision) -> str:
    """A clause about a number that may come from sizes, as a condition compares it with some.

    A tensor that is computed from dynamic sizes has no values during a capture either.
    """
    is_data = [not sources for sources, _ in decision.symbols.values()]
    made = next(iter(decision.made_at.values()), None)
    if made is None or all(is_data):
        return ""
    return (
        f"; if the number that it needs, made at {made.cited}, is computed from sizes only, leave "
        "these dimensions out of dynamic_shapes"
    )


def _choose_code(decision: Decision) -> str:
    """Code of the page on this kind of place."""
    text = "" if decision.location is None else decision.location.text
    asks = is_question(decision.expression)
    if _WHILE.search(text) or _is_loop(text, asks):
        return "OA103"
    if not asks:
        return "OA104"
    return "OA101" if _BRANCH.search(text) else "OA107"


def _check(decision: Decision) -> str | None:
    """Suggests a ``torch._check`` of the decision; None if a symbol has no name in the function."""
    if not set(decision.symbols) <= set(decision.names):
        return None
    if decision.kind == "undecided":
        return f"torch._check({decision.text}), or of its opposite"
    return f"torch._check({decision.text})"
