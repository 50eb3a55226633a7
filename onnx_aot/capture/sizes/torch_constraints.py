"""Says in the words of this package why torch refuses requested dimensions."""

from __future__ import annotations

import math
import re
import textwrap
from collections.abc import Sequence

from onnx_aot.capture.sizes.deciding_lines import find_symbol, lines_fixing, lines_on
from onnx_aot.capture.sizes.dimension_requests import DynamicShapes, RequestedDim
from onnx_aot.capture.sizes.guards import Decision, with_line
from onnx_aot.capture.sizes.narrower_dims import suggest_narrower_dim
from onnx_aot.capture.sizes.specialization import (
    NOT_FREE,
    Finding,
    describe_findings,
    fix_for_line,
    holds_in_range,
)
from onnx_aot.torch_compat import (
    SIZE_TERM,
    constraint_sentences,
    generated_guard,
    is_relation,
    is_without_conditions,
    specialized_size,
    suggested_fixes,
    with_builtins,
    without_infinity,
)

__all__ = ["describe_torch", "find_named", "is_delivered"]


def find_named(sentence: str, requested: DynamicShapes) -> list[RequestedDim]:
    """Returns the dimensions that a sentence of torch's names, in its order."""
    terms = dict.fromkeys(match[0] for match in SIZE_TERM.finditer(sentence))
    found = [dim for dim in map(requested.at, terms) if dim is not None]
    if found:
        return found
    words = set(re.findall(r"\w+", sentence))  # torch calls a ``Dim`` by its name
    called = [dim for dim in requested.requested if hasattr(dim.given, "__name__")]
    return [dim for dim in called if dim.name in words]


def describe_torch(
    error: Exception, requested: DynamicShapes, decisions: Sequence[Decision]
) -> str:
    """Torch's message on violated constraints, with the user's names and the known lines."""
    found, lines = [], []
    limits: dict[RequestedDim, list[str]] = {}
    sentences = constraint_sentences(error)
    for sentence in sentences:
        dims = find_named(sentence, requested)
        size = specialized_size(sentence)
        limit = _find_limit(sentence, requested)
        if size is not None and dims:
            for dim in dims:
                places = lines_fixing(find_symbol(dim, requested, decisions), decisions)
                fix = fix_for_line(places, dim, size)
                found.append(Finding(dim, f"fixed at {size}", places, fix))
        elif limit is not None:
            limits.setdefault(limit[0], []).append(limit[1])
        else:
            lines += _with_users_names(sentence, dims, requested, decisions)
    violated = {
        dim: broken
        for dim, on_n in limits.items()
        if (broken := [c for c in on_n if not holds_in_range(c, dim, requested, decisions)])
    }
    fixes = suggested_fixes(error)
    # torch also names conditions that hold, beside those that do not
    if violated or found or lines or not fixes:
        limits = violated if violated or found or lines else limits
        found += [_describe_limits(dim, on_n, requested, decisions) for dim, on_n in limits.items()]
    else:
        named = {fix.partition("=")[0].strip() for fix in fixes}
        found += [
            Finding(dim, "limited", lines_on(dim, requested, decisions), static=False)
            for dim in limits
            if dim.name in named
        ]
    if is_without_conditions(error):
        lines.append(f"  torch cannot solve the conditions of the model: {error}")
    if fixes and (lines or not found or not all(finding.fix for finding in found)):
        lines.append("  fix: give dynamic_shapes what the model needs: " + "; ".join(fixes))
    lines.append(
        "Or leave these dimensions out of dynamic_shapes, or write Dim.AUTO, which accepts what "
        "the model allows."
    )
    return "\n".join([f"{NOT_FREE}:", *describe_findings(found), *lines])


def _find_limit(sentence: str, requested: DynamicShapes) -> tuple[RequestedDim, str] | None:
    """The dimension that a condition in a sentence of torch's is about, and it on ``n``."""
    guard = generated_guard(sentence.rstrip("."))
    terms = {match[0] for match in SIZE_TERM.finditer(guard)} if guard else set()
    if guard is None or len(terms) != 1:
        return None
    (term,) = terms
    dim = requested.at(term)
    return None if dim is None else (dim, guard.replace(term, "n"))


def _describe_limits(
    dim: RequestedDim, found: Sequence[str], requested: DynamicShapes, decisions: Sequence[Decision]
) -> Finding:
    """The conditions on one dimension for which torch refuses it, as one finding."""
    shortest = min(found, key=len)
    shown = with_builtins(_N.sub(dim.size, shortest))
    lines = lines_on(dim, requested, decisions, _N.sub(dim.size, shortest))
    symbol = find_symbol(dim, requested, decisions)
    examples = [d.symbols[symbol][1] for d in decisions if symbol and symbol in d.symbols]
    fix = suggest_narrower_dim(dim, found, next(filter(None, examples), 1))
    fix = fix or fix_for_line(lines, dim, None)
    smallest, largest = dim.limits
    upper = "on" if largest == math.inf else f"to {largest}"
    what = (
        f"limited to {textwrap.shorten(shown, 120, placeholder=' ...')}; "
        f"{dim.name or dim.place} is from {smallest} {upper}"
    )
    return Finding(dim, what, lines, fix, static=False)


_N = re.compile(r"\bn\b")


def _with_users_names(
    sentence: str,
    dims: Sequence[RequestedDim],
    requested: DynamicShapes,
    decisions: Sequence[Decision],
) -> list[str]:
    """Another sentence of torch's, with the user's names for sizes, and the lines."""
    shown = with_builtins(without_infinity(sentence))
    for term in {match[0] for match in SIZE_TERM.finditer(sentence)}:
        named = requested.at(term)
        shown = shown.replace(term, term if named is None else named.size)
    about = [place for dim in dims for place in lines_on(dim, requested, decisions)]
    if not about:  # the line asks for another axis of the same name
        names = {dim.name for dim in dims} - {None}
        others = [dim for dim in requested.requested if dim.name in names]
        about = [place for dim in others for place in lines_on(dim, requested, decisions)]
    lines = [f"  {shown}"]
    for place in list(dict.fromkeys(about))[:3]:
        lines += with_line(place)
    return lines


def is_delivered(error: Exception, requested: DynamicShapes, decisions: Sequence[Decision]) -> bool:
    """True if torch complains only about deviations that are as good as the request.

    These are sizes that depend on each other and stay dynamic, with the bounds of the other one,
    and sizes 0 and 1, which torch's operators treat specially and ONNX's do not. If torch does not
    say what it complains about, the capture in which it could choose the dimensions tells.
    """
    if is_without_conditions(error):
        return True
    sentences = [sentence.rstrip(".") for sentence in constraint_sentences(error)]
    relations = list(filter(is_relation, sentences))
    return bool(sentences) and all(
        sentence in relations
        or _is_harmless(sentence, requested, decisions, bounds=bool(relations))
        for sentence in sentences
    )


def _is_harmless(
    sentence: str, requested: DynamicShapes, decisions: Sequence[Decision], bounds: bool
) -> bool:
    guard = generated_guard(sentence)
    terms = {match[0] for match in SIZE_TERM.finditer(guard)} if guard else set()
    if guard is None or len(terms) != 1:
        return False
    (term,) = terms
    dim = requested.at(term)
    condition = guard.replace(term, "n")
    if bounds and re.fullmatch(r"(\d+ <= )?n( and n)?( <= (\d+|math\.inf))?", condition):
        return True
    return dim is not None and holds_in_range(condition, dim, requested, decisions)
