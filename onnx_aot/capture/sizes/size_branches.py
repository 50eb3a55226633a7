"""Finds lines of the user's code that branch on sizes; a capture has the example's branch.

If few sizes take that branch, as in ``if x.shape[1] % 8 == 0``, the dimension counts as limited: it
is captured again at a size of the other branch, or refused. So it is if ``x.chunk(3)`` or
``x.split(2)`` does not give the example's number of pieces at every size, and that matters.
"""

from __future__ import annotations

import bisect
import functools
import itertools
import linecache
import math
import re
from collections.abc import Callable, Collection, Iterator, Sequence
from typing import NamedTuple

import torch

from onnx_aot.capture.sizes.dimension_requests import DynamicShapes, RequestedDim
from onnx_aot.capture.sizes.guards import Decision, Location, decided_at
from onnx_aot.torch_compat import python_expression

__all__ = [
    "ONE_BRANCH",
    "SAMPLES",
    "Branch",
    "RareBranch",
    "SmallBranch",
    "describe_branches",
    "find_branches",
    "find_choices",
    "find_crossings",
    "find_dimensions",
    "find_rare_branches",
    "find_small_branches",
    "find_small_sizes",
    "find_tied",
    "is_rare",
    "raises_error",
]

ONE_BRANCH = (
    "only the example's branch is captured; compute for {size} in a way that is right for both "
    "branches"
)
"""Fix for a ``RareBranch``."""

SAMPLES = (*range(2, 66), 127, 128, 255, 256, 511, 512, 1023, 1024, 4095, 4096, 65537)
"""Sizes by which branches are judged; without 0 and 1, for which ``find_small_branches`` is."""


def describe_branches(
    program: torch.export.ExportedProgram,
    requested: DynamicShapes,
    decisions: Sequence[Decision],
    said: str,
) -> list[str]:
    """Finds the user's lines that test a dynamic dimension, with another answer at some size.

    Or that use its pieces, as ``x.chunk(2)[-1]`` does, and get another number of them; or that read
    a number, as ``for i in range(x.shape[0] // 64):`` does.

    ``if x.shape[0] > 4:`` is one. ``if x.shape[0] >= 0:`` is not, nor are lines that otherwise
    raise an error, nor conditions of operators, which fail if these do not hold.

    Args:
        program: The capture; dimensions that it has fixed are left out.
        requested: The requested dynamic dimensions with their ranges.
        decisions: The decisions of the capture.
        said: Text of earlier warnings; dimensions that it names are left out.

    Returns:
        Entries such as ``"`if x.shape[0] > 4:` at model.py:7 in forward"``, each once.
    """
    found: dict[str, None] = {}
    ranges = program.range_constraints.items()
    free = {str(symbol) for symbol, interval in ranges if interval.lower != interval.upper}
    for decision, place in (*find_choices(decisions), *_find_numbers(decisions)):
        asked = free & decision.symbols.keys() | set(_find_derived(decision, requested))
        if any(_decides_otherwise(decision, symbol, requested, said) for symbol in asked):
            found[_describe(decision, place)] = None
    return list(found)


def _find_derived(decision: Decision, requested: DynamicShapes) -> Iterator[str]:
    """Yields the symbols of derived dimensions, which a program replaces by those of the roots."""
    for symbol, (sources, _) in decision.symbols.items():
        dims = map(requested.at, sources)
        if any(dim is not None and dim.derived and not dim.may_be_static for dim in dims):
            yield symbol


def _describe(decision: Decision, place: Location) -> str:
    pieces = f" (cut into {_count(decision)} pieces)" if decision.kind == "pieces" else ""
    return f"{place.cited}{pieces}"


class SmallBranch(NamedTuple):
    """A branch of the user's code that the example takes, and a size of 0 or 1 does not.

    Attributes:
        dim: The dimension.
        size: The size.
        line: The user's line, for a message.
        pieces: True if the size gives another number of pieces, which a captured graph cannot run
            with.
    """

    dim: RequestedDim
    size: int
    line: str
    pieces: bool


def find_small_branches(
    requested: DynamicShapes, decisions: Sequence[Decision], said: str
) -> Iterator[SmallBranch]:
    """Yields the branches of the user's code that only sizes 0 and 1 do not take.

    Many of them only save work, with the same results. Dimensions that ``said`` names are left out,
    as in ``describe_branches``.
    """
    for decision, place in find_choices(decisions):
        for dim, size in find_small_sizes(requested, decision):
            if not _names_dimension(dim, said):
                line = _describe(decision, place)
                yield SmallBranch(dim, size, line, decision.kind == "pieces")


def find_small_sizes(
    requested: DynamicShapes, decision: Decision
) -> Iterator[tuple[RequestedDim, int]]:
    """Yields 1 and 0, as far as they are requested, if a decision holds for all sizes but these."""
    for dim, _, takes in find_dimensions(decision, requested):
        if all(map(takes, _select_samples(*dim.limits))):
            for size in (1, 0):
                if dim.limits[0] <= size <= dim.limits[1] and not takes(size):
                    yield dim, size


def find_crossings(
    requested: DynamicShapes, decisions: Sequence[Decision]
) -> Iterator[tuple[dict[RequestedDim, int], str]]:
    """Yields an equal size of several dimensions for which a line chooses otherwise, and the line.

    ``if h * w == 64:`` does so for 8, if the example has other sizes. The size is found by
    bisection, so ``h * w`` has to grow with it.
    """
    import sympy

    for decision, place in find_choices(decisions):
        symbols = decision.symbols.values()
        if len(symbols) < 2 or not isinstance(decision.expression, sympy.Ne):
            continue
        found = [next(filter(None, map(requested.at, s)), None) for s, _ in symbols]
        dims = [dim for dim in found if dim is not None and dim.axis is not None]
        examples = [example for _, example in symbols if example is not None]
        if len(dims) < len(symbols) or len(examples) < len(symbols):
            continue
        smallest = max(1, *(dim.limits[0] for dim in dims))
        largest = min(8 * max(examples), *(dim.limits[1] for dim in dims))
        size = _find_crossing(decision, smallest, int(largest))
        if size is not None:
            yield dict.fromkeys(dims, size), _describe(decision, place)


def _find_crossing(decision: Decision, smallest: int, largest: int) -> int | None:
    """A size for all symbols at which the sides of ``a != b`` are equal; None if none is found."""
    import sympy

    condition = decision.expression
    exceeds = sympy.Ge(condition.lhs, condition.rhs)

    def is_beyond(size: int) -> bool | None:
        return decided_at(exceeds, dict.fromkeys(decision.symbols, size))

    ends = is_beyond(smallest), is_beyond(largest)
    if smallest >= largest or None in ends or ends[0] == ends[1]:
        return None
    sizes = range(smallest, largest + 1)
    first = smallest + bisect.bisect_left(sizes, True, key=lambda n: is_beyond(n) == ends[1])
    tried = (first, first - 1)  # the second one if the left side falls
    return next(
        (n for n in tried if decision.holds(dict.fromkeys(decision.symbols, n)) is False), None
    )


def find_tied(
    requested: DynamicShapes, decisions: Sequence[Decision]
) -> Iterator[tuple[list[RequestedDim], Location]]:
    """Yields dimensions of which a line finds an equation to hold, as ``if h == w:`` does.

    Or ``if h * w == 64:``. Few sizes take the branch, unlike that of ``h * w % 8 == 0``, and later
    decisions may limit all of them; for ``h == w`` torch even puts one symbol in the place of the
    other.
    """
    import sympy

    for decision, place in find_choices(decisions):
        if len(decision.symbols) < 2 or not isinstance(decision.expression, sympy.Eq):
            continue
        dims, multiples = [], {}
        for factor, (symbol, (sources, example)) in enumerate(decision.symbols.items(), 2):
            dims += list(filter(None, map(requested.at, sources)))[:1]
            multiples[symbol] = factor * (example or 1)
        if len(dims) == len(multiples) and decision.holds(multiples) is False:
            yield dims, place


class RareBranch(NamedTuple):
    """A branch of the user's code that the example takes, and most sizes of a dimension do not.

    Or pieces that the user's code uses, and that some size does not give.

    Attributes:
        dim: The dimension.
        line: The user's line.
        condition: The condition over ``n``.
        example: The size of the dimension in the capture.
        takes: True if a size takes the branch.
        decision: The decision of the capture.
        pieces: The number of pieces; None if it is a branch.
    """

    dim: RequestedDim
    line: Location
    condition: str
    example: int
    takes: Callable[[int], bool]
    decision: Decision
    pieces: int | None = None


def find_rare_branches(
    requested: DynamicShapes, decisions: Sequence[Decision]
) -> Iterator[RareBranch]:
    """Yields the first rare branch of each dimension.

    A branch is rare as ``is_rare`` says; numbers of pieces are if any size has another one. Sizes
    0 and 1 are not asked about.
    """
    found = set()
    for decision, place in find_choices(decisions):
        for dim, example, takes in find_dimensions(decision, requested):
            if example is None or dim in found or dim.may_be_static:
                continue
            pieces = _count(decision) if decision.kind == "pieces" else None
            if pieces is None:
                rare = is_rare(takes, example, *dim.limits)
            else:
                rare = not all(map(takes, _select_samples(*dim.limits)))
            if rare:
                found.add(dim)
                (symbol,) = decision.symbols
                condition = python_expression(decision.expression, {symbol: "n"})
                yield RareBranch(dim, place, condition, example, takes, decision, pieces)


class Branch(NamedTuple):
    """A branch of the user's code that the example takes, and some other size does not.

    Attributes:
        dim: The dimension.
        line: The user's line.
        takes: True if a size takes the branch.
    """

    dim: RequestedDim
    line: Location
    takes: Callable[[int], bool]


def find_branches(requested: DynamicShapes, decisions: Sequence[Decision]) -> Iterator[Branch]:
    """Yields the branches on one requested size that some sizes from 2 on take, and some do not."""
    for decision, place in find_choices(decisions):
        if decision.kind == "guard":
            for dim, example, takes in find_dimensions(decision, requested):
                if example is None or dim.may_be_static:
                    continue
                if len({takes(n) for n in _select_samples(*dim.limits)}) == 2:
                    yield Branch(dim, place, takes)


def find_choices(decisions: Sequence[Decision]) -> Iterator[tuple[Decision, Location]]:
    """Yields the decisions that a line of the user's chooses by, or uses the pieces of."""
    for decision in decisions:
        place = decision.location
        chooses = decision.kind == "pieces" or (decision.kind == "guard" and decision.chooses)
        if place is not None and chooses and not raises_error(place):
            yield decision, place


def _find_numbers(decisions: Sequence[Decision]) -> Iterator[tuple[Decision, Location]]:
    """Yields the decisions by which a line of the user's reads a number."""
    for decision in decisions:
        reads = decision.kind == "guard" and decision.is_number and not decision.validates
        if reads and decision.location is not None and not raises_error(decision.location):
            yield decision, decision.location


def find_dimensions(
    decision: Decision, requested: DynamicShapes
) -> Iterator[tuple[RequestedDim, int | None, Callable[[int], bool]]]:
    """Yields the requested dimensions of a decision about one size.

    Each with its size in the capture, and the sizes for which the decision is the same.
    """
    if len(decision.symbols) != 1:
        return
    ((symbol, (sources, example)),) = decision.symbols.items()
    takes = functools.partial(_holds_at, decision, symbol)
    for dim in filter(None, map(requested.at, sources)):
        if not dim.derived:
            yield dim, example, takes


def _count(decision: Decision) -> int:
    return int(decision.expression.rhs)


def _select_samples(smallest: int, largest: float) -> list[int]:
    return [n for n in SAMPLES if smallest <= n <= largest]


def _holds_at(decision: Decision, symbol: str, size: int) -> bool:
    return decision.holds({symbol: size}) is not False


def is_rare(
    takes: Callable[[int], bool], example: int, smallest: int = 0, largest: float = math.inf
) -> bool:
    """True if at most half of the sizes around the example's fulfil a condition.

    Bounds, such as ``n <= 50``, are not rare, except that of an example of size 1 or 0.

    Args:
        takes: The condition.
        example: A size that fulfils it.
        smallest: The smallest requested size.
        largest: The largest requested size.
    """
    last = int(min(largest, example + 192))
    if all(takes(n) for n in range(example + 1, min(last, example + 3) + 1)):
        return False  # the usual case, found without testing every size
    below = [takes(n) for n in range(max(smallest, example - 64), example)]
    above = [takes(n) for n in range(example + 1, last + 1)]
    if all(below) and above == sorted(above, reverse=True):
        return example <= 1 and above[:1] == [False]  # an upper bound
    return 2 * (sum(below) + sum(above)) <= len(below) + len(above) + 1


def raises_error(place: Location) -> bool:
    """True if the line is an assertion, or the next line raises an error."""
    following = linecache.getline(place.file, place.line + 1).strip()
    return place.text.startswith(("assert ", "torch._check(")) or following.startswith("raise ")


def _names_dimension(dim: RequestedDim, said: str) -> bool:
    """True if a text names the dimension. Names of numbers are too short to search for."""
    if dim.axis is None:
        return False
    return re.search(rf"(?<!\w){re.escape(dim.place)}(?!\d)", said) is not None


def _decides_otherwise(
    decision: Decision, symbol: str, requested: DynamicShapes, said: str
) -> bool:
    sources, _ = decision.symbols[symbol]
    dims = [dim for dim in map(requested.at, sources) if dim is not None]
    if not dims or any(_names_dimension(dim, said) for dim in dims):
        return False
    smallest = max(dim.limits[0] for dim in dims)
    largest = min(dim.limits[1] for dim in dims)
    alike = dict(_of_one_name(decision, requested, {dim.name for dim in dims}))
    samples = _select_samples(smallest, largest)
    least = max(smallest, SAMPLES[0])
    rounded = (n for n in _find_rounded(decision, symbol) if least <= n <= largest)
    for size in itertools.chain(samples, rounded):
        root = dims[0].root_at(size)
        if root is None:
            continue
        sizes = {other: dim.size_at(root) for other, dim in alike.items()}
        if decision.holds({**sizes, symbol: size}) is False:
            return True
    return False


def _find_rounded(decision: Decision, symbol: str) -> Iterator[int]:
    """Yields the sizes that those near the example are rounded up or down to, in ``a != b``.

    ``valid(n) != n`` does not hold for ``valid(n)`` itself, if that rounds: one size in hundreds.
    """
    import sympy

    if not isinstance(decision.expression, sympy.Ne):
        return
    example = decision.symbols[symbol][1]
    difference = decision.expression.lhs - decision.expression.rhs
    examples = {s: decision.symbols[str(s)][1] for s in difference.free_symbols}
    if example is None or None in examples.values():
        return
    value = difference.xreplace({s: sympy.Integer(n) for s, n in examples.items()})
    if value.is_Integer:
        yield from (example + int(value), example - int(value))


def _of_one_name(
    decision: Decision, requested: DynamicShapes, names: Collection[str | None]
) -> Iterator[tuple[str, RequestedDim]]:
    """Yields the symbols of dimensions that have one of the names and so vary together."""
    for symbol, (sources, _) in decision.symbols.items():
        for dim in map(requested.at, sources):
            if dim is not None and dim.name is not None and dim.name in names:
                yield symbol, dim
