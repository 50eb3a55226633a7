"""Explains which requested dimensions the model fixes or limits, by which line, and the fix.

This runs only if a capture did not deliver the request, so it need not be fast.
"""

from __future__ import annotations

import ast
import dataclasses
import itertools
import math
import re
import textwrap
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import torch
from torch.export import Dim

from onnx_aot.capture.sizes.captured_dimensions import (
    Binding,
    Condition,
    Size,
    conditions_by_dimension,
    find_bindings,
    find_renamed,
    sizes_of,
    static_dimensions,
)
from onnx_aot.capture.sizes.data_equalities import describe_repeated
from onnx_aot.capture.sizes.deciding_lines import (
    find_symbol,
    lines_fixing,
    lines_on,
    says_the_same,
)
from onnx_aot.capture.sizes.dimension_requests import (
    DynamicShapes,
    RequestedDim,
    find_static,
    is_unlimited,
)
from onnx_aot.capture.sizes.guards import Decision, Location, as_places, with_line
from onnx_aot.capture.sizes.narrower_dims import suggest_narrower_dim
from onnx_aot.capture.sizes.size_branches import (
    ONE_BRANCH,
    SAMPLES,
    RareBranch,
    find_branches,
    find_rare_branches,
)
from onnx_aot.capture.sizes.squeezes import describe_squeezed
from onnx_aot.capture.sizes.unrolled_loops import TAKEN_APART, UNROLLED
from onnx_aot.dimensions.conditions import holds
from onnx_aot.errors import DynamicShapeError
from onnx_aot.torch_compat import (
    SIZE_TERM,
    example_size,
    size_conditions,
)

__all__ = [
    "NOT_FREE",
    "Finding",
    "describe_findings",
    "describe_limits",
    "describe_relations",
    "find_undelivered",
    "fix_for_line",
    "holds_in_range",
    "make_refusal",
    "relax_request",
]


@dataclasses.dataclass(frozen=True)
class Finding:
    """One requested dimension that is less free than requested.

    Attributes:
        dim: The dimension.
        what: The restriction, such as ``fixed at 4``.
        lines: The user's lines that caused it, if known.
        fix: The edit that fixes it, or an empty string if only the general advice applies.
        static: Whether the example's size is the only correct one.
        takes: True if a size takes the branch of the user's code that is at fault; None if that is
            not the cause.
    """

    dim: RequestedDim
    what: str
    lines: tuple[Location, ...]
    fix: str = ""
    static: bool = True
    takes: Callable[[int], bool] | None = None

    def __str__(self) -> str:
        """The finding in one line, for a warning."""
        by = "; ".join(f"`{line.text}` at {line}" for line in self.lines)
        return f"{self.dim} is {self.what}" + (f" by {by}" if by else "")


def find_undelivered(
    program: torch.export.ExportedProgram,
    requested: DynamicShapes,
    decisions: Sequence[Decision],
    refused: bool = False,
) -> list[Finding]:
    """Finds the requested dimensions that the model fixes or limits.

    Args:
        program: The capture; if torch refused the request, the one with ``Dim.AUTO``.
        requested: The request.
        decisions: The decisions of the capture.
        refused: Whether torch refused the request. If not, every ``Dim`` has its range; torch does
            not ask whether a derived one has.
    """
    conditions = size_conditions(program)
    found = []
    for dim, size in static_dimensions(program, requested):
        lines = lines_fixing(find_symbol(dim, requested, decisions), decisions)
        fix = fix_for_line(lines, dim, size)
        if fix.startswith(_WHATEVER.format(size=size)):
            fix += _name_static(dim, size, requested)
        found.append(Finding(dim, f"fixed at {size}", lines, fix))
    static = {finding.dim for finding in found}
    for binding in find_bindings(program, requested, conditions):
        is_error = _is_error(binding, requested, decisions)
        if is_error and binding.dim not in static:
            static.add(binding.dim)
            lines = lines_on(binding.dim, requested, decisions, binding.condition)
            shown = textwrap.shorten(binding.condition, 120, placeholder=" ...")
            sizes = f"fixed at {binding.smallest}"
            if not binding.fixes:
                sizes = f"right for {binding.smallest} to {binding.largest} only"
            what = f"{sizes}: captured for {shown}"
            fix = fix_for_line(lines, binding.dim, None)
            if binding.others:
                fix = _TOGETHER.format(
                    sizes=" and ".join(sorted(d.size for d in (binding.dim, *binding.others)))
                )
            elif binding.smallest in (0, 1):
                fix = (
                    "give an example with another size; sizes 0 and 1 broadcast, larger ones do not"
                )
            found.append(Finding(binding.dim, what, lines, fix))
    for branch in find_rare_branches(requested, decisions):
        if branch.dim not in static:
            static.add(branch.dim)
            found.append(_describe_rare(branch))
    others = describe_squeezed(program, requested) | describe_repeated(program, requested)
    for dim, (what, fix, lines) in others.items():
        if dim not in static:
            static.add(dim)
            found.append(Finding(dim, what, lines, fix))
    limited = _find_limited(program, requested, decisions, static)
    found += [finding for finding in limited if refused or finding.dim.derived]
    return found


def _describe_rare(branch: RareBranch) -> Finding:
    dim, condition = branch.dim, branch.condition
    if branch.pieces is None:
        shown = textwrap.shorten(re.sub(r"\bn\b", dim.size, condition), 120, placeholder=" ...")
        what = f"right for few sizes: captured for {shown}"
        fix = ONE_BRANCH.format(size=dim.size)
    else:
        smallest, largest = dim.limits
        sizes = range(max(smallest, 1), int(min(largest, 4 * branch.example + 256)) + 1)
        others = [str(n) for n in sizes if not branch.takes(n)][:3]
        what = f"cut into {branch.pieces} pieces, as sizes such as {', '.join(others)} are not"
        fix = _PIECES
    narrower = suggest_narrower_dim(dim, [condition], branch.example)
    fix = f"{fix}, or {narrower}" if narrower else fix
    return Finding(dim, what, (branch.line,), fix, static=False, takes=branch.takes)


def _find_limited(
    program: torch.export.ExportedProgram,
    requested: DynamicShapes,
    decisions: Sequence[Decision],
    static: set[RequestedDim],
) -> Iterator[Finding]:
    """Yields dimensions whose ``Dim`` promises a wider range than the model accepts.

    A name promises no range.
    """
    found = conditions_by_dimension(requested, size_conditions(program))
    violated = dict[RequestedDim, list[Condition]]()
    examples = dict[RequestedDim, int]()
    for dim, size in sizes_of(program, requested):
        if dim in static or not hasattr(dim.given, "__name__"):
            continue
        entries = [*_ranges(program, requested, size, dim), *found.get(dim, ())]
        broken = [e for e in entries if not holds_in_range(e.on_n, dim, requested, decisions)]
        if broken:
            violated[dim], examples[dim] = broken, example_size(size) or 1
    for dim, broken in violated.items():
        lines = lines_on(dim, requested, decisions, broken[-1].shown)
        smallest, largest = dim.limits
        upper = "on" if largest == math.inf else f"to {largest}"
        shown = textwrap.shorten(broken[-1].shown, 120, placeholder=" ...")
        what = f"limited to {shown}; {dim.given.__name__} is from {smallest} {upper}"
        alike = [other for other in requested.requested if other.name == dim.name]
        fix = ""
        if len(alike) == 1 or not dim.derived:  # one Dim is for all dimensions of its name
            on_n = [entry.on_n for other in alike for entry in violated.get(other, ())]
            fix = suggest_narrower_dim(dim, on_n, examples[dim])
        takes = _find_choosing(dim, broken, requested, decisions)
        yield Finding(dim, what, lines, fix, static=False, takes=takes)


def _find_choosing(
    dim: RequestedDim,
    broken: Sequence[Condition],
    requested: DynamicShapes,
    decisions: Sequence[Decision],
) -> Callable[[int], bool] | None:
    """True at sizes that take the branches by which a dimension is limited.

    None if something else limits it.
    """
    branches = [branch for branch in find_branches(requested, decisions) if branch.dim == dim]
    said = [
        next((b.takes for b in branches if _agree(b.takes, entry.on_n)), None) for entry in broken
    ]
    takes = [found for found in said if found is not None]
    if not takes or len(takes) < len(said):
        return None
    return lambda size: all(takes_branch(size) for takes_branch in takes)


def _agree(takes: Callable[[int], bool], condition: str) -> bool:
    return all(takes(n) == (holds(condition, {"n": n}) is not False) for n in SAMPLES)


def _ranges(
    program: torch.export.ExportedProgram, requested: DynamicShapes, size: Size, dim: RequestedDim
) -> Iterator[Condition]:
    """Yields limits that the capture found for a dimension beyond the requested ones."""
    ranges = {str(symbol): limits for symbol, limits in program.range_constraints.items()}
    if not isinstance(size, torch.SymInt) or str(size) not in ranges:
        return
    lower, upper = ranges[str(size)].lower, ranges[str(size)].upper
    asked = [d.limits for d, other in sizes_of(program, requested) if str(other) == str(size)]
    if lower not in [smallest for smallest, _ in asked]:
        yield Condition(f"{lower} <= n", f"{lower} <= {dim.size}")
    if not is_unlimited(upper) and upper not in [largest for _, largest in asked]:
        yield Condition(f"n <= {upper}", f"{dim.size} <= {upper}")


SIZES = "<sizes>"
"""Stands in a fix for the sizes of the dimensions that share it."""

NOT_FREE = "the model fixes or limits dimensions that were requested as dynamic"


def make_refusal(
    found: Sequence[Finding], model: torch.nn.Module | None = None
) -> DynamicShapeError:
    """Makes the error that lists all findings, each with the user's line and the fix.

    Args:
        found: The findings, at least one.
        model: The captured model, for the paths of modules.
    """
    whole = "; ".join(f"{finding.dim} is {finding.what}" for finding in found)
    fixes = [finding.fix for finding in found if finding.fix]
    rest = f"leave {found[0].dim.place} out of dynamic_shapes, write Dim.AUTO, or pass "
    return DynamicShapeError(
        _describe(found),
        cause=f"{NOT_FREE}: {whole}",
        places=as_places([line for finding in found for line in finding.lines], model),
        fix="; or ".join([*fixes[:1], f'{rest}on_specialized="warn"']),
    )


def _describe(found: Sequence[Finding]) -> str:
    lines = [f"{NOT_FREE}:"]
    lines += describe_findings(found)
    places = list(dict.fromkeys(finding.dim.place for finding in found))
    them = "them" if len(places) > 1 else "it"
    lines.append(
        f"If {' and '.join(places)} need not vary that far, leave {them} out of dynamic_shapes, or "
        "write Dim.AUTO, which accepts what the model allows; "
        'on_specialized="warn" does so for every dimension, with a warning.'
    )
    return "\n".join(lines)


def describe_findings(found: Sequence[Finding]) -> list[str]:
    """Lists the findings; those with the same lines and fix share them."""
    alike: dict[tuple[tuple[Location, ...], str], list[Finding]] = {}
    for finding in found:
        names_others = any(f.dim.size in finding.fix for f in found if f.dim != finding.dim)
        fix = finding.fix if names_others else finding.fix.replace(finding.dim.size, SIZES)
        alike.setdefault((finding.lines, fix), []).append(finding)
    lines = []
    for (places, fix), members in alike.items():
        lines += [f"  {finding.dim}: {finding.what}" for finding in members]
        for place in places:
            lines += with_line(place)
        if fix:
            sizes = list(dict.fromkeys(finding.dim.size for finding in members))
            lines.append(f"      fix: {fix.replace(SIZES, ' and '.join(sizes))}")
    return lines


def relax_request(
    requested: DynamicShapes, found: Sequence[Finding] | None = None, error: Exception | None = None
) -> DynamicShapes:
    """Returns the request weakened to what the model can deliver.

    Args:
        requested: The request.
        found: The findings: fixed dimensions become static, limited ones are left to the capture.
            None leaves all dimensions to it.
        error: Torch's error; the dimensions that it names are left to the capture.
    """
    hints: dict[RequestedDim, Any] = {}
    named = {match[0] for match in SIZE_TERM.finditer(str(error))} if error else set()
    violated = {requested.at(term) for term in named} | {f.dim for f in found or ()}
    names = {dim.name for dim in violated if dim is not None} - {None}
    for dim in requested.requested:
        if found is None or dim in violated or dim.name in names:
            smallest, largest = dim.limits
            largest_given = None if largest == math.inf else int(largest)
            limited = (smallest or None, largest_given) != (None, None) and not dim.derived
            hints[dim] = Dim.AUTO(min=smallest or None, max=largest_given) if limited else Dim.AUTO
    for finding in found or ():
        if finding.static:
            hints[finding.dim] = Dim.STATIC
    return requested.replace(hints)


def describe_relations(
    program: torch.export.ExportedProgram, requested: DynamicShapes, decisions: Sequence[Decision]
) -> list[str]:
    """Sentences on dimensions that turned out to depend on others, with the responsible line."""
    found = []
    for dim, sentence in find_renamed(program, requested):
        symbol = find_symbol(dim, requested, decisions)
        line = next(
            (
                decision.location
                for decision in decisions
                if decision.kind == "guard" and decision.location is not None
                if symbol in decision.symbols and len(decision.symbols) > 1
            ),
            None,
        )
        found.append(sentence + (f", by {line.cited}" if line else ""))
    return found


def describe_limits(
    program: torch.export.ExportedProgram, requested: DynamicShapes, decisions: Sequence[Decision]
) -> list[str]:
    """Sentences on dimensions that are correct only for sizes near the example's."""
    found = []
    for binding in find_bindings(program, requested, size_conditions(program), auto=True):
        is_error = _is_error(binding, requested, decisions)
        if is_error and not binding.dim.may_be_static:
            continue
        lines = lines_on(binding.dim, requested, decisions, binding.condition)
        by = "".join(f", by {line.cited}" for line in lines)
        fix = fix_for_line(lines, binding.dim, None)
        place = f"{binding.dim.place}: {binding.smallest} to {binding.largest}{by}"
        found.append(f"{place} ({fix})" if fix else place)
    return found


# --- lines ---------------------------------------------------------------------------------------


def _is_error(binding: Binding, requested: DynamicShapes, decisions: Sequence[Decision]) -> bool:
    """True if the dimension is not what was asked for; bounds such as ``n <= 50`` are warned of.

    ``(n + 1) // 2 == 1`` is no bound: the capture broadcasts what has size 1 for the example.
    """
    broadcasts = 0 < binding.smallest < binding.largest <= 2
    return binding.fixes or broadcasts or _is_of_number(binding, requested, decisions)


def _is_of_number(
    binding: Binding, requested: DynamicShapes, decisions: Sequence[Decision]
) -> bool:
    """True if a number computed from the size was read, as ``avg_pool1d(x, n // 2)`` does."""
    symbol = find_symbol(binding.dim, requested, decisions)
    if symbol is None or binding.condition.endswith("== 0"):  # a kernel looks for empty tensors
        return False
    on_n = binding.condition.replace(binding.dim.size, "n")
    return any(
        decision.is_number and says_the_same(decision, symbol, on_n)
        for decision in decisions
        if decision.kind == "guard"
    )


# --- fixes ---------------------------------------------------------------------------------------

_PIECES = (
    "tensor_split gives the same number of pieces at every size; pieces that are treated alike can "
    "be one tensor, after a reshape"
)

_FIXES = (
    (
        re.compile(r"\b(unbind|list)\("),
        TAKEN_APART,
    ),
    (re.compile(r"\b(split|chunk)\w*\("), _PIECES),
    (
        re.compile(r"\bcross\("),
        "give torch.cross the dimension, as in dim=-1; without it, the first one of size 3 counts",
    ),
    (
        re.compile(r"\brange\(|\bfor\b.*\bin\b"),
        UNROLLED,
    ),
    (
        re.compile(r"\.tolist\("),
        "tolist() makes one number of each element; compute with the tensor, as in x.max() instead "
        "of max(x.tolist())",
    ),
    (
        re.compile(r"\b(np|numpy)\.|\.numpy\("),
        "NumPy turns the size into a number; use torch functions, which keep it symbolic",
    ),
    (
        re.compile(r"^(if|elif|while|assert)\b|\bif\b.*\belse\b|==|!="),
        "only the example's branch is captured; compute without testing {size}, or choose with "
        "torch.where or torch.cond",
    ),
    (
        re.compile(r"\b(int|float|round)\(|\bmath\."),
        "the size becomes a Python number there; use // and * on {size}, or torch functions",
    ),
    (
        re.compile(r"(view|reshape|expand|repeat|unflatten)\w*\(.*\d"),
        "write {size}, or -1, in place of the number",
    ),
    (
        re.compile(r"\b(linspace|arange|ones|zeros|full|randn?|empty|eye|tensor)\("),
        "create that tensor with {size}, or with size 1, so that it broadcasts",
    ),
)


_TOGETHER = (
    "whatever fixes {sizes} together (a Linear after flatten, a reshape) must follow them; "
    "AdaptiveAvgPool2d before flatten gives the same size for all of them"
)


def fix_for_line(lines: Sequence[Location], dim: RequestedDim, size: int | None) -> str:
    """The edit of the last line that frees a dimension; an empty string without a line."""
    if not lines:
        return ""
    last = lines[-1]
    texts = (last.text,) if last.caller is None else (last.caller.text, last.text)
    for text in texts:  # the line that the user may edit comes first
        for pattern, fix in _FIXES:
            if pattern.search(text):
                return fix.format(size=dim.size)
    if size is None:
        return f"use {dim.size} there"
    return f"{_WHATEVER.format(size=size)} (a number, a tensor, a table) must follow {dim.size}"


_WHATEVER = "whatever has the size {size} there"


def _name_static(dim: RequestedDim, size: int, requested: DynamicShapes) -> str:
    """The advice to request a dimension of another input too, if that is what has the size."""
    others = find_static(dim, size, requested)
    if not others:
        return ""
    named = f"call it {dim.name!r}" if dim.name else "make it dynamic"
    return f"; if that is {' or '.join(others[:3])}, {named} in dynamic_shapes too"


def holds_in_range(
    condition: str, dim: RequestedDim, requested: DynamicShapes, decisions: Sequence[Decision]
) -> bool:
    """True if a condition on ``n`` holds in the range of a ``Dim``, as far as samples tell.

    Sizes 0 and 1 are tested only if the user's code asks about them, since torch's operators do
    so as well. The same holds for sizes computed from ``n``, as in ``n // 2 != 1``, for strides, as
    in ``12*max(1, n // 4) != 12``, and for two sizes that an operator finds unequal:
    ``x[:, -2:].contiguous()`` copies nothing if they are equal, and the result is the same.
    """
    symbol = find_symbol(dim, requested, decisions)
    same = [d for d in decisions if symbol is not None and says_the_same(d, symbol, condition)]
    asked = any(decision.direct for decision in same)
    if not asked and _excludes_small_size(condition):
        return True
    by_kernels = same and all(decision.by_kernel for decision in same)
    if by_kernels and _OF_TWO_SIZES.fullmatch(condition):
        return True
    smallest, largest = dim.limits
    first = smallest if asked else max(smallest, 2)
    last = 65537 if largest == math.inf else int(largest)
    samples = itertools.chain(range(first, first + 256), (1023, 4096, last))
    sizes = (n for n in samples if first <= n <= last and dim.root_at(n) is not None)
    return all(holds(condition, {"n": n}) is not False for n in sizes)


def _excludes_small_size(condition: str) -> bool:
    """True for a condition that excludes a size of 0 or 1, or a multiple of it; not a remainder."""
    try:
        match ast.parse(condition, mode="eval").body:
            case ast.Compare(left, [ast.NotEq()], [ast.Constant(int(number))]):
                return "%" not in condition and _is_small_size(left, number)
    except SyntaxError:
        pass
    return False


def _is_small_size(size: ast.expr, number: int) -> bool:
    """True if a size that is this number is the product of a number and a size of 0 or 1."""
    if number in (0, 1):
        return True
    match size:
        case ast.Call(ast.Name("max") | ast.Attribute(attr="sym_max"), [ast.Constant(1), inner]):
            return _is_small_size(inner, number)
        case ast.BinOp(ast.Constant(int(factor)), ast.Mult(), inner) if factor > 1:
            return number % factor == 0 and _is_small_size(inner, number // factor)
    return False


_OF_TWO_SIZES = re.compile(r"(?!.*( and | or |%))[^=!<>]*\bn\b[^=!<>]* != [^=!<>]*\bn\b[^=!<>]*")
"""Matches a condition by which two sizes that are computed from ``n`` differ."""
