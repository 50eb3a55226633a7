"""Finds captures that are together right for all sizes, where the model branches on sizes.

``if n % 8 > 0: x = pad(x)`` before code that works for padded lengths alone is one: a capture at a
multiple of 8 is right for multiples, and one at another length for all others.
"""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Iterator, Sequence

import torch

from onnx_aot.capture.inputs import Inputs
from onnx_aot.capture.sizes.dimension_requests import DynamicShapes, RequestedDim, is_unlimited
from onnx_aot.capture.sizes.example_check import (
    has_equal_results,
    is_right_for_example,
    size_in_example,
)
from onnx_aot.capture.sizes.guards import Decision, Location
from onnx_aot.capture.sizes.joined_captures import Part, join_captures
from onnx_aot.capture.sizes.other_examples import Root, find_root, resize_inputs
from onnx_aot.capture.sizes.size_branches import find_branches, find_choices, find_tied
from onnx_aot.capture.sizes.specialization import Finding
from onnx_aot.dimensions.conditions import holds
from onnx_aot.torch_compat import (
    SIZE_TERM,
    python_expression,
    set_size_conditions,
    size_conditions,
    widen_sizes,
)

__all__ = [
    "Case",
    "Sizes",
    "covers_all",
    "find_uncovered",
    "join_cases",
    "make_cases",
    "resize_for_case",
]

Program = torch.export.ExportedProgram
Sizes = dict[Root, int]

MOST_CASES = 4
FAR = (127, 128, 255, 256, 1023, 1024, 4095, 4096)
NEAR = 40  # sizes after the example's that are tested


@dataclasses.dataclass(frozen=True)
class Case:
    """A capture that is right for the sizes that take its branches.

    Attributes:
        program: The capture.
        inputs: The inputs that it was made with.
        choices: Its decisions at the lines that branch, one per condition.
        dims: The dimensions of the symbols in them, by name.
        limits: Its decisions about these dimensions that the model makes only to refuse sizes.
    """

    program: Program
    inputs: Inputs
    choices: tuple[Decision, ...]
    dims: dict[str, RequestedDim]
    limits: tuple[Decision, ...] = ()

    def takes(self, sizes: Sizes) -> bool:
        """True if the capture is for these sizes."""
        return self._fulfil(sizes, self.choices)

    def is_refused(self, sizes: Sizes) -> bool:
        """True if the model refuses these sizes."""
        return not self._fulfil(sizes, self.limits)

    def _fulfil(self, sizes: Sizes, decisions: Sequence[Decision]) -> bool:
        values = {name: sizes[find_root(dim)] for name, dim in self.dims.items()}
        return all(decision.holds(values) is not False for decision in decisions)

    @property
    def text(self) -> str:
        """The condition on the sizes, as ``size_conditions`` writes it."""
        sources = self._sources
        texts = (python_expression(decision.expression, sources) for decision in self.choices)
        return " and ".join(f"({text})" for text in texts)

    @property
    def conditions(self) -> list[str]:
        """The conditions of the capture, with the ranges of the sizes that it branches on."""
        found = size_conditions(self.program)
        ranges = {str(symbol): held for symbol, held in self.program.range_constraints.items()}
        for symbol, source in self._sources.items():
            limits = ranges.get(symbol)
            if limits is not None and not is_unlimited(limits.lower):
                found.append(f"{source} >= {int(limits.lower)}")
            if limits is not None and not is_unlimited(limits.upper):
                found.append(f"{source} <= {int(limits.upper)}")
        return found

    @property
    def _sources(self) -> dict[str, str]:
        return {s: held[0] for d in self.choices for s, (held, _) in d.symbols.items()}

    def as_part(self) -> Part:
        """The capture with the condition."""
        import sympy

        condition = sympy.And(*(decision.expression for decision in self.choices))
        return Part(self.program, condition, self.dims)


def make_cases(
    captures: Sequence[tuple[Program, Inputs, Sequence[Decision], Sequence[Finding]]],
    requested: DynamicShapes,
) -> list[Case] | None:
    """Makes cases of captures; those that limit sizes for other reasons than a branch are left out.

    A branch on an equation of several sizes may limit all of them, if it implies the limits.

    Args:
        captures: Each with its inputs, its decisions, and what it limits.
        requested: The request.

    Returns:
        The cases; None if a branch is on something else than requested sizes, or on a number of
        pieces.
    """
    branches = [finding for c in captures for finding in c[3] if finding.takes is not None]
    lines = {_place(line) for finding in branches for line in finding.lines}
    ties = [list(find_tied(requested, decisions)) for _, _, decisions, _ in captures]
    lines |= {_place(line) for tie in ties for _, line in tie}
    lines |= {_place(b.line) for c in captures for b in find_branches(requested, c[2])}
    cases = []
    for (program, inputs, decisions, found), tie in zip(captures, ties, strict=True):
        tied = {dim for dims, _ in tie for dim in dims}
        if any(finding.takes is None and finding.dim not in tied for finding in found):
            continue
        chosen: dict[object, Decision] = {}
        for decision, place in find_choices(decisions):
            if _place(place) in lines:
                chosen.setdefault(decision.expression, decision)
        dims: dict[str, RequestedDim] = {}
        if any(decision.kind == "pieces" for decision in chosen.values()):
            return None
        for decision in chosen.values():
            for symbol, (sources, _) in decision.symbols.items():
                dim = next(filter(None, map(requested.at, sources)), None)
                if dim is None or dim.derived or dim.may_be_static:
                    return None
                dims[symbol] = dim
        known = [d for d in decisions if d.kind == "guard" and d.symbols.keys() <= dims.keys()]
        limits = tuple(d for d in known if d.validates)
        case = Case(program, inputs, tuple(chosen.values()), dims, limits)
        if chosen and (not tied or _implies(case, known, requested)):
            cases.append(case)
    return cases


def _implies(case: Case, decisions: Sequence[Decision], requested: DynamicShapes) -> bool:
    """True if what a capture takes to be equal is so for all sizes that it is for."""
    import sympy

    equations = tuple(d for d in decisions if isinstance(d.expression, sympy.Eq))
    implied = dataclasses.replace(case, choices=equations)
    return all(map(implied.takes, filter(case.takes, _list_samples([case], requested))))


def _place(line: Location) -> tuple[str, int]:
    return line.file, line.line


def find_uncovered(cases: Sequence[Case], requested: DynamicShapes) -> Sizes | None:
    """Returns sizes that no case is for; None if there are none, or too many branches."""
    if not cases or len(cases) >= MOST_CASES:
        return None
    return next(_list_uncovered(cases, requested), None)


def _list_uncovered(cases: Sequence[Case], requested: DynamicShapes) -> Iterator[Sizes]:
    for sizes in _list_samples(cases, requested):
        if not any(case.takes(sizes) for case in cases):
            yield sizes


def _list_samples(
    cases: Sequence[Case], requested: DynamicShapes, smallest: int = 2
) -> Iterator[Sizes]:
    """Yields sizes of the dimensions that cases branch on, beginning at the example's.

    Those that the model refuses are left out.
    """
    dims = {find_root(dim): dim for case in cases for dim in case.dims.values()}
    lists = [list(_list_sizes(dim, requested, smallest, len(dims))) for dim in dims.values()]
    for values in itertools.product(*lists):
        sizes = dict(zip(dims, values, strict=True))
        if not any(case.is_refused(sizes) for case in cases):
            yield sizes


def _list_sizes(
    dim: RequestedDim, requested: DynamicShapes, smallest: int, count: int
) -> Iterator[int]:
    """Yields sizes of a dimension, beginning at the example's; fewer if there are several."""
    example = size_in_example(dim, requested)
    near = NEAR if count == 1 else NEAR // 2
    around, first = range(max(smallest, example - near), example + near), range(smallest, 4)
    far = FAR if count == 1 else FAR[-1:]
    smallest, largest = max(dim.limits[0], smallest), dim.limits[1]
    for size in dict.fromkeys((example, *reversed(around), *first, *far)):
        if smallest <= size <= largest:
            yield size


def covers_all(cases: Sequence[Case], requested: DynamicShapes) -> bool:
    """True if there are several cases, one for all sizes."""
    return len(cases) > 1 and next(_list_uncovered(cases, requested), None) is None


def join_cases(
    cases: Sequence[Case], module: torch.nn.Module, inputs: Inputs, requested: DynamicShapes
) -> Program | None:
    """Makes one program of cases that cover all sizes.

    It is compared with the model for the example, for the inputs of each capture, and for other
    sizes of each case.

    Args:
        cases: The cases.
        module: The model.
        inputs: The user's example inputs.
        requested: The request.

    Returns:
        The program; None if the cases cannot be joined, or differ from the model.
    """
    program = join_captures([case.as_part() for case in cases], requested)
    if program is None:
        return None
    set_size_conditions(program, list(_join_conditions(cases, requested)))
    # Symbols of captures from 0 and from 1 on have the same names, and differ nevertheless.
    ranges = [
        {str(symbol): limits for symbol, limits in case.program.range_constraints.items()}
        for case in cases
    ]
    for symbol, limits in program.range_constraints.items():
        held = [known.get(str(symbol), limits) for known in ranges]
        lowest, highest = [one.lower for one in held], [one.upper for one in held]
        if any(str(symbol) in case.dims for case in cases):
            ends = min(lowest), max(highest)  # the cases have conditions of their own
        else:
            ends = max(lowest), min(highest)
        if ends[0] > ends[1]:
            return None  # they branch on this size too, and were captured on both sides
        program.range_constraints[symbol] = type(limits)(*ends)
    samples = [case.inputs for case in cases]
    for case in cases:
        others = (s for s in _list_samples(cases, requested) if case.takes(s))
        samples += [_resize(case.inputs, s, cases, requested) for s in itertools.islice(others, 2)]
    if not all(has_equal_results(program, module, sample) for sample in samples):
        return None
    if not is_right_for_example(program, module, inputs, requested):
        return None
    widened = {
        str(s): limits
        for s, limits in program.range_constraints.items()
        if any(str(s) in case.dims for case in cases)
    }
    for part in (program, *(case.program for case in cases)):
        widen_sizes([node.meta.get("val") for node in part.graph.nodes], widened)
    return program


def resize_for_case(cases: Sequence[Case], sizes: Sizes, requested: DynamicShapes) -> Inputs:
    """Makes inputs of these sizes, with the other sizes of the last case."""
    return _resize(cases[-1].inputs, sizes, cases, requested)


def _resize(
    inputs: Inputs, sizes: Sizes, cases: Sequence[Case], requested: DynamicShapes
) -> Inputs:
    dims = {dim: sizes[find_root(dim)] for case in cases for dim in case.dims.values()}
    return resize_inputs(inputs, requested, dims)


def _join_conditions(cases: Sequence[Case], requested: DynamicShapes) -> Iterator[str]:
    """Yields the conditions of all captures, each for the sizes that its capture is for."""
    held = [case.conditions for case in cases]
    everywhere = [text for text in held[0] if all(text in others for others in held)]
    yield from everywhere
    samples = list(_list_samples(cases, requested, smallest=0))
    for number, case in enumerate(cases):
        is_last = number == len(cases) - 1
        for condition in held[number]:
            if condition in everywhere:
                continue
            others = [f"({earlier.text})" for earlier in cases[:number]]
            others += [] if is_last else [f"not ({case.text})"]
            joined = " or ".join([f"({condition})", *others])
            if not _holds_always(joined, samples, requested):
                yield joined


def _holds_always(condition: str, samples: Sequence[Sizes], requested: DynamicShapes) -> bool:
    """True if a condition on the sizes of the samples holds for all of them."""
    terms = {match[0]: requested.at(match[0]) for match in SIZE_TERM.finditer(condition)}
    roots = {}
    for position, (term, dim) in enumerate(terms.items()):
        if dim is None or dim.derived:
            return False
        condition = condition.replace(term, f"n{position}")
        roots[f"n{position}"] = find_root(dim)
    if not samples or not samples[0].keys() >= set(roots.values()):
        return False
    return all(
        holds(condition, {name: sizes[root] for name, root in roots.items()}) is True
        for sizes in samples
    )
