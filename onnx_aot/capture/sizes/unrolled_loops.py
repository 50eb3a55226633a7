"""Finds Python loops that were unrolled for the example's size, and says why they stay so."""

from __future__ import annotations

import re
from collections.abc import Iterable

from onnx_aot.capture.error_hints import UnjoinableError, UnrollableError
from onnx_aot.capture.sizes.guards import Decision, Location, is_question
from onnx_aot.errors import SourceLocation

__all__ = ["TAKEN_APART", "UNROLLED", "describe_unrollable", "find_unrolled", "is_for", "is_loop"]

TAKEN_APART = (
    "the dimension is taken apart for the example's size; compute on the whole dimension with "
    "tensor operators"
)

UNROLLED = (
    "a Python loop is unrolled for the example's size; compute on the whole dimension with "
    "tensor operators, or loop with torch.ops.higher_order.scan or while_loop"
)

_LOOP = re.compile(r"\b(range|enumerate|zip|unbind|reversed|split|chunk)\(|\bfor\b.*\bin\b")


_FOR = re.compile(r"\brange\(|\bfor\b.*\bin\b")


def is_loop(line: str) -> bool:
    """True if a line of Python has a loop, or takes a tensor apart for one."""
    return _LOOP.search(line) is not None


def is_for(line: str) -> bool:
    """True if a line of Python begins a loop."""
    return _FOR.search(line) is not None


def find_unrolled(decisions: Iterable[Decision]) -> frozenset[str]:
    """The files in which a line with a Python loop decided about a size."""
    places = (each.location for each in decisions if each.kind in ("guard", "pieces"))
    return frozenset(place.file for place in places if place is not None and is_loop(place.text))


def describe_unrollable(error: Exception, decisions: Iterable[Decision]) -> str | None:
    """The fix for a loop that was unrolled, with the reason why it did not become one loop.

    None if only torch or this package is at fault.

    Args:
        error: The failure of the capture in which loops become one.
        decisions: The decisions of that capture.
    """
    if isinstance(error, UnrollableError):
        return _describe(str(error), error.location, error.fix) if str(error) else None
    decisions = list(decisions)
    if isinstance(error, UnjoinableError):
        both = [decision for decision in decisions if decision.kind == "both"]
        return _describe(
            "the model also branches on its data, and only one of both is possible",
            both[-1].location if both else None,
            "choose with torch.where(condition, a, b) in place of the branch",
        )
    undecided = [decision for decision in decisions if decision.kind == "undecided"]
    if not undecided:
        return None
    asked = undecided[-1]
    if not is_question(asked.expression):
        return _describe(
            f"a step needs {asked.text} as a Python number, which differs from step to step",
            asked.location,
            "take what a step needs from a tensor, table[t], which a list of equal parts becomes "
            "with torch.stack before the loop",
        )
    return _describe(
        f"a step asks whether {asked.text}, and the answers differ from step to step",
        asked.location,
        "choose with torch.where(torch.full((), t) == 0, a, b), where t is the number of the step, "
        "or do what one step alone does before or after the loop",
    )


def _describe(reason: str, line: SourceLocation | None, fix: str) -> str:
    where = ""
    if line is not None:
        where = f" ({line.cited if isinstance(line, Location) else line.with_code})"
    return (
        f"a Python loop is unrolled for the example's size. It cannot become one loop of the ONNX "
        f"model: {reason}{where}; {fix}"
    )
