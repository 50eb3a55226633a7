"""The attempts so far for one export, what they tell together, and the choice among them."""

from __future__ import annotations

import dataclasses
import functools

from onnx_aot.capture.attempts import Attempt, Captured, Failure
from onnx_aot.capture.inputs import Inputs
from onnx_aot.capture.sizes.data_equalities import find_repeated
from onnx_aot.capture.sizes.dimension_requests import DynamicShapes, RequestedDim
from onnx_aot.capture.sizes.example_check import (
    Crossing,
    find_smallest,
    find_wrong_crossings,
    has_equal_results,
    is_right_for_example,
    keep_decisions,
)
from onnx_aot.capture.sizes.guards import find_conversions
from onnx_aot.capture.sizes.other_examples import (
    Root,
    find_coincidences,
    make_other_inputs,
    refused_dimensions,
    resize_inputs,
)
from onnx_aot.capture.sizes.own_limits import OwnLimits
from onnx_aot.capture.sizes.settled_choices import settle_choices
from onnx_aot.capture.sizes.size_branches import find_branches, find_small_sizes, find_tied
from onnx_aot.capture.sizes.size_cases import (
    Case,
    covers_all,
    find_uncovered,
    join_cases,
    make_cases,
    resize_for_case,
)
from onnx_aot.capture.sizes.specialization import (
    Finding,
    find_undelivered,
    make_refusal,
)
from onnx_aot.capture.sizes.squeezes import find_squeezed_ones
from onnx_aot.capture.sizes.stored_bounds import find_stored_bounds
from onnx_aot.capture.sizes.torch_constraints import describe_torch, is_delivered
from onnx_aot.capture.sizes.unrolled_loops import (
    TAKEN_APART,
    UNROLLED,
    describe_unrollable,
    find_unrolled,
)
from onnx_aot.capture.strategies import DEFAULT, STRATEGIES, Model
from onnx_aot.capture.time_limits import TimeLimit
from onnx_aot.errors import DynamicShapeError

__all__ = ["Outcomes"]

COMPARISONS = 8
"""About how often two captures that become one program are compared with the model."""


class Outcomes:
    """The attempts so far for one export.

    Attributes:
        model: The model.
        requested: The user's request.
        strict: Whether a dimension that the model does not deliver is an error.
        done: The attempts, in order.
    """

    def __init__(
        self, model: Model, requested: DynamicShapes, strict: bool, limit: TimeLimit
    ) -> None:
        self.model, self.requested, self.strict = model, requested, strict
        self._limit = limit
        self.done: list[Attempt] = []
        self._own_limits = OwnLimits(model.module, requested)
        self._right: dict[int, bool] = {}
        self._crossings: dict[int, list[Crossing]] = {}
        self._cases: tuple[int, list[Case]] | None = None
        self._fixed_by_captures: list[RequestedDim] = []
        self._joined: tuple[int, Attempt | None] | None = None

    def add(self, attempt: Attempt) -> None:
        """Adds an attempt. Sizes that the model itself refuses are not another side of a branch."""
        captured = attempt.captured
        if captured is not None:
            inputs = attempt.plan.inputs or self.model.inputs
            decisions = self._own_limits.settle(captured.decisions, inputs)
            decisions = settle_choices(
                captured.program, self.model.module, inputs, self.requested, decisions, self._limit
            )
            captured = dataclasses.replace(captured, decisions=decisions)
            attempt = dataclasses.replace(attempt, captured=captured)
        self.done.append(attempt)

    @property
    def last(self) -> Attempt:
        """The last attempt."""
        return self.done[-1]

    @property
    def has_result(self) -> bool:
        """True if an attempt gave a program that the export can use."""
        if not self.strict:
            return True
        asked = (attempt for attempt in self.of("asked") if attempt.captured is not None)
        return any(not attempt.limited for attempt in asked) or self.resized is not None

    def of(self, request: str) -> list[Attempt]:
        """The attempts with one request, ``Plan.request``."""
        return [attempt for attempt in self.done if attempt.plan.request == request]

    def best(self, request: str = "asked") -> Attempt:
        """The attempt with one request that is kept.

        A capture that contradicts the example is never kept if another way was tried. The last
        capture that limits no dimension is the best one. If all limit some, it is the one that was
        wanted first. If none succeeded, the failure with the fewest changes to what was asked says
        why, after both ways of branches were tried.
        """
        return self._choose_best(self.of(request))

    @staticmethod
    def _choose_best(attempts: list[Attempt]) -> Attempt:
        if any(not attempt.plan.small_sizes for attempt in attempts):
            attempts = [a for a in attempts if not (a.plan.small_sizes and a.contradicts_example)]
        captured = [a for a in attempts if a.captured is not None]
        if len(captured) == 1:
            return captured[0]
        if captured:
            free = [a for a in captured if not a.limited]
            if len(free) > 1:
                free = [a for a in free if not a.unrolled_in] or free
            from_zero = attempts[0].plan.from_zero
            wanted = [a for a in captured if a.plan.from_zero == from_zero]
            return free[-1] if free else [*captured, *wanted][-1]
        failed = [a for a in attempts if a.failures]
        if not failed:  # there was no time to the end of any
            return attempts[-1]
        return min(
            failed,
            key=lambda a: (
                a.plan.rolls and a.violation is None,
                not a.plan.rolls,
                not a.plan.small_sizes and a.violation is None,
                a.plan.small_sizes,
                a.plan.plain,
                a.stops_at_branch,
                -len(a.plan.conversions),
                a.plan.from_zero,
            ),
        )

    @property
    def rolls(self) -> bool:
        """True if Python loops of the model can become one loop."""
        rolled = [a for a in self.done if a.plan.rolls]
        return any(a.captured is not None or a.violation is not None for a in rolled)

    @property
    def wants_rolled(self) -> bool:
        """True if a Python loop was unrolled for a requested dimension, for the first time."""
        if any(attempt.plan.rolls for attempt in self.done) or self.best().plan.plain:
            return False
        return "non-strict" in self.model.strategies and bool(self.unrolled_in)

    @property
    def unrolled_in(self) -> frozenset[str]:
        """The files of Python loops that were unrolled for a requested dimension."""
        best = self.best()
        if best.captured is not None:
            return best.unrolled_in
        return frozenset() if best.violation is None else find_unrolled(best.violation.decisions)

    def explain_loops(self, text: str) -> str:
        """A text in which fixes of unrolled loops say why these did not become one loop."""
        tried = [failure for a in self.done if a.plan.rolls for failure in a.failures]
        if tried:
            reason = describe_unrollable(tried[-1].error, tried[-1].decisions)
            if reason is not None:
                text = text.replace(UNROLLED, reason).replace(TAKEN_APART, reason)
        return text

    def refuse_undelivered(self) -> DynamicShapeError:
        """The error about requested dimensions that the model does not deliver."""
        found = [
            dataclasses.replace(finding, fix=self.explain_loops(finding.fix))
            for finding in self.undelivered
        ]
        return make_refusal(found, self.model.module)

    @property
    def violation(self) -> Failure | None:
        """Torch's refusal of the requested dimensions, if that is why the capture failed."""
        best = self.best()
        return None if best.captured is not None else best.violation

    @property
    def conversions(self) -> frozenset[tuple[str, str]]:
        """Modules where ``int`` or ``float`` made a number of a size in an attempt so far."""
        plan, found = self.last.plan, set[tuple[str, str]]()
        for attempt in self.of(plan.request):
            found |= attempt.fixed_in
            if attempt.captured is not None:
                found |= find_conversions(attempt.captured.decisions)
            else:
                found.update(*(failure.conversions for failure in attempt.failures))
        return frozenset(found - plan.conversions)

    @property
    def other_inputs(self) -> Inputs | None:
        """Inputs with other sizes in the dimensions that the example's may have fixed.

        If the first ones take a branch of few sizes too, the second ones do not.
        """
        tried = self.of("resized")
        if tried:
            return self._inputs_of_other_branch if len(tried) == 1 else None
        best, refused = self.best(), self.violation
        fixed: list[Finding] = []
        if best.captured is not None:
            program = best.captured.program
            fixed = best.fixed
            dims = find_coincidences(program, self.requested, fixed)
            for tied, _ in find_tied(self.requested, best.captured.decisions):
                dims += [d for d in tied if not (d.may_be_static or d.derived)]
        elif refused is not None:
            dims = refused_dimensions(refused.error, self.requested, self.model.inputs)
        else:
            return None
        found = make_other_inputs(self.model.inputs, self.requested, dims, fixed)
        return found or self._inputs_of_crossing or self._inputs_of_branch

    def find_wrong_crossings(self, captured: Captured) -> list[Crossing]:
        """Returns sizes whose product takes a branch that a capture lacks, and is wrong for."""
        key = id(captured.program)
        if key not in self._crossings:
            self._crossings[key] = find_wrong_crossings(
                captured.program,
                self.model.module,
                self.model.inputs,
                self.requested,
                captured.decisions,
            )
        return self._crossings[key]

    @property
    def _inputs_of_crossing(self) -> Inputs | None:
        best = self.best()
        if best.captured is None or best.limited:
            return None
        for sizes, _ in self.find_wrong_crossings(best.captured):
            if not any(dim.may_be_static or dim.derived for dim in sizes):
                return resize_inputs(self.model.inputs, self.requested, sizes)
        return None

    @property
    def _inputs_of_branch(self) -> Inputs | None:
        """Inputs that take a branch of the model that the capture lacks, if it can be compared."""
        best = self.best()
        if best.captured is None or not self.has_warned_result or not self._limit.spares(runs=1):
            return None
        inputs, program = self.model.inputs, best.captured.program
        branches = list(find_branches(self.requested, best.captured.decisions))
        began = self._limit.spent
        if not branches or not has_equal_results(program, self.model.module, inputs):
            return None
        if not self._limit.spares(COMPARISONS * (self._limit.spent - began), runs=1):
            return None
        made = (make_other_inputs(inputs, self.requested, [b.dim], [b]) for b in branches)
        return next((found for found in made if found is not None), None)

    @property
    def _inputs_of_other_branch(self) -> Inputs | None:
        best = self.best("resized")
        if best.captured is None or best.plan.inputs is None or self.resized is not None:
            return None
        found = [f for f in self._find_fixed(best.captured) if f.takes is not None]
        return make_other_inputs(best.plan.inputs, self.requested, (f.dim for f in found), found)

    def _find_fixed(self, captured: Captured) -> list[Finding]:
        """Finds what a capture with other inputs fixes, except what was found to be right."""
        decisions = keep_decisions(captured.decisions, self.requested)
        return find_undelivered(captured.program, self.requested, decisions, refused=True)

    @property
    def inputs_beyond(self) -> Inputs | None:
        """Inputs with larger sizes than the bounds that the model keeps and its capture has."""
        best = self._find_right("resized") or self.best()
        if best.captured is None or (best.plan.inputs is None and best.fixed):
            return None
        bounds = list(find_stored_bounds(self.requested, best.captured.decisions))
        inputs = best.plan.inputs or self.model.inputs
        return make_other_inputs(inputs, self.requested, (b.dim for b in bounds), bounds)

    @property
    def resized(self) -> Attempt | None:
        """The attempt with other sizes, if it delivers all and is right for the example too.

        Or several, joined.
        """
        return self._find_right("beyond") or self._find_right("resized") or self._join()

    @property
    def has_warned_result(self) -> bool:
        """True if the first request has a result, so that further ones only save a warning."""
        best = self.best()
        return best.captured is not None and not best.limited

    @property
    def inputs_of_next_case(self) -> Inputs | None:
        """Inputs of sizes that take a branch of the model that no capture so far does."""
        if not self.of("resized") or self.resized is not None:
            return None
        if self.has_warned_result and not self._limit.spares(runs=1):
            return None
        cases = self._find_cases()
        sizes = find_uncovered(cases, self.requested)
        if sizes is None:
            return None
        inputs = resize_for_case(cases, sizes, self.requested)
        freed = make_other_inputs(inputs, self.requested, self._fixed_by_captures)
        return freed or inputs

    @property
    def number_of_cases(self) -> int:
        """The number of captures so far that are right for the sizes of one branch."""
        return len(self._find_cases())

    def _find_cases(self) -> list[Case]:
        """The captures so far that are right for the sizes that take one branch of the model."""
        if self._cases is None or self._cases[0] != len(self.done):
            self._cases = len(self.done), list(self._make_cases())
        return self._cases[1]

    def _make_cases(self) -> list[Case]:
        groups: dict[tuple[str, bool], list[Attempt]] = {}
        for attempt in self.done:
            if attempt.plan.request not in ("delivered", "beyond"):
                key = attempt.plan.request, attempt.plan.other_branch
                groups.setdefault(key, []).append(attempt)
        captures = []
        self._fixed_by_captures = []
        for attempt in map(self._choose_best, groups.values()):
            captured, inputs = attempt.captured, attempt.plan.inputs or self.model.inputs
            if captured is not None and captured.strategy in map(STRATEGIES.get, DEFAULT):
                found = find_undelivered(
                    captured.program, self.requested, captured.decisions, refused=True
                )
                captures.append((captured.program, inputs, captured.decisions, found))
                ties = find_tied(self.requested, captured.decisions)
                tied = {dim for dims, _ in ties for dim in dims}
                fixed = (f.dim for f in found if f.static and f.takes is None)
                self._fixed_by_captures += [dim for dim in fixed if dim not in tied]
        return make_cases(captures, self.requested) or []

    def _join(self) -> Attempt | None:
        """The captures for the branches of the model, if they can be one program."""
        if not self.of("resized"):
            return None
        if self._joined is None or self._joined[0] != len(self.done):
            self._joined = len(self.done), self._join_cases()
        return self._joined[1]

    def _join_cases(self) -> Attempt | None:
        cases = self._find_cases()
        if not covers_all(cases, self.requested):
            return None
        program = join_cases(cases, self.model.module, self.model.inputs, self.requested)
        programs = [case.program for case in cases]
        used = [
            a for a in self.done if a.captured and any(a.captured.program is p for p in programs)
        ]
        if program is None:
            return None
        choices = [decision for case in cases for decision in case.choices]
        places = {decision.location for decision in choices}
        captured = [attempt.captured for attempt in used if attempt.captured is not None]
        joined = dataclasses.replace(
            captured[-1],
            program=program,
            decisions=tuple(
                d
                for one in captured
                for d in one.decisions
                if d.location not in places or any(find_small_sizes(self.requested, d))
            ),
            warnings={c: text for one in reversed(captured) for c, text in one.warnings.items()},
            drawn=tuple(dict.fromkeys(name for one in captured for name in one.drawn)),
            seeded=tuple(dict.fromkeys(line for one in captured for line in one.seeded)),
            readings=tuple(dict.fromkeys(r for one in captured for r in one.readings)),
            validations=tuple(v for one in captured for v in one.validations),
            above_zero=any(one.above_zero for one in captured),
            joined=tuple(dict.fromkeys(place.cited for place in places if place is not None)),
        )
        return dataclasses.replace(used[-1], captured=joined)

    def _find_right(self, request: str) -> Attempt | None:
        if not self.of(request):
            return None
        best = self.best(request)
        right = self._right.get(id(best))
        if right is None:
            right = self._right[id(best)] = self._is_right(best)
        return best if right else None

    def _find_bounded(self) -> dict[Root, int]:
        """The smallest sizes below the bounds that the model keeps, by root of the dimension."""
        best = self._find_right("resized") or self.best()
        assert best.captured is not None
        bounds = find_stored_bounds(self.requested, best.captured.decisions)
        return find_smallest(best.captured.program, self.requested, (b.dim for b in bounds))

    def _is_right(self, attempt: Attempt) -> bool:
        captured = attempt.captured
        if captured is None or captured.strategy not in map(STRATEGIES.get, DEFAULT):
            return False
        program, requested = captured.program, self.requested
        asked = self.best().captured
        if asked is not None and find_squeezed_ones(asked.program, requested, left_to_model=False):
            return False  # an ONNX model has the same rank at every size
        if asked is not None and find_repeated(asked.program, requested, left_to_model=False):
            return False  # as well at other sizes, for other data
        bounded = self._find_bounded() if attempt.plan.request == "beyond" else None
        if not is_right_for_example(
            program, self.model.module, self.model.inputs, requested, bounded
        ):
            return False
        return not find_coincidences(program, requested, self._find_fixed(captured))

    @functools.cached_property
    def undelivered(self) -> list[Finding]:
        """Requested dimensions that the model fixes or, if torch refused them, limits."""
        if self.resized is not None:
            return []
        if self.violation is None:
            return self.best().fixed
        anyhow = self.best("any").captured if self.of("any") else None
        if anyhow is None:
            return []
        return find_undelivered(anyhow.program, self.requested, anyhow.decisions, refused=True)

    @property
    def given_up(self) -> tuple[str, ...]:
        """A sentence for each requested dimension that the model does not deliver."""
        refused = self.violation
        if self.resized is not None:
            return ()
        if refused is None or self.undelivered:
            return tuple(map(str, self.undelivered))
        anyhow = self.best("any").captured if self.of("any") else None
        decisions = refused.decisions if anyhow is None else anyhow.decisions
        if is_delivered(refused.error, self.requested, decisions):
            return ()
        return (describe_torch(refused.error, self.requested, refused.decisions),)
