"""One attempt to capture a model: what it tries, and what came of it."""

from __future__ import annotations

import collections
import dataclasses
import functools
import logging
from collections.abc import Mapping

import torch

from onnx_aot.capture.early_ends import EarlyEnds
from onnx_aot.capture.error_hints import (
    RefusedError,
    UnjoinableError,
    UnrollableError,
    make_explained_error,
)
from onnx_aot.capture.inputs import Inputs
from onnx_aot.capture.reuse import Usage
from onnx_aot.capture.sizes.dimension_requests import DynamicShapes
from onnx_aot.capture.sizes.empty_inputs import contradicts_example
from onnx_aot.capture.sizes.guards import (
    Decision,
    Location,
    find_conversions,
    is_ours,
    is_question,
    location_of_error,
)
from onnx_aot.capture.sizes.known_values import Reading
from onnx_aot.capture.sizes.left_to_model import is_fixed_by_loop
from onnx_aot.capture.sizes.size_branches import describe_branches
from onnx_aot.capture.sizes.specialization import Finding, describe_limits, find_undelivered
from onnx_aot.capture.sizes.unrolled_loops import UNROLLED, find_unrolled, is_loop
from onnx_aot.capture.sizes.validating_branches import Validation
from onnx_aot.capture.strategies import STRATEGIES, Model, Run, run_strategy
from onnx_aot.capture.time_limits import TimeLimit
from onnx_aot.errors import CaptureError, InvalidOptionError
from onnx_aot.torch_compat import names_sizes, needs_data, violates_constraints

__all__ = ["Attempt", "Captured", "Failure", "Plan", "make_attempt"]

logger = logging.getLogger(__name__)


@dataclasses.dataclass(frozen=True)
class Plan:
    """Settings of one attempt.

    Attributes:
        requested: The dynamic dimensions that torch is asked for.
        request: Their origin: ``"asked"`` as the user asked; ``"resized"``, the same with inputs of
            other sizes; ``"case 2"``, with sizes that take other branches of the model than the
            captures so far; ``"beyond"``, with sizes beyond the bounds that the model keeps;
            ``"any"``, all of them left to the model; ``"delivered"``, those that the model fixes or
            limits left to it.
        inputs: Inputs of other sizes; None for the user's.
        other_branch: Whether they are the second inputs of other sizes, since the first ones take
            a branch of few sizes too.
        strategies: Names of the strategies; None for the user's.
        from_zero: Whether the capture holds for empty tensors too, which takes a tenth longer.
        small_sizes: Whether dimensions whose example size is 0 or 1 stay dynamic.
        unknown: Buffers and attributes whose values are not known, since the model writes to them.
        plain: Whether the optional changes to torch are left out.
        conversions: Modules in which ``int`` or ``float`` keeps sizes symbolic: ``(module, name)``.
        static_ones: Dimensions of size 1 that are static. The model may fix them, and squeezes them
            or limits them to 1, or its capture fails if they are dynamic.
        both_ways: Whether both ways of branches on data are captured.
        rolls: Whether Python loops over dynamic sizes become one loop.
        loops_in: Files with such loops, which may be in packages that the model only calls.
        both_sizes: Whether this includes branches on numbers of elements that data selects.
        decides_slices: Whether bounds of slices that sizes do not decide are decided as for the
            example.
        ends_early: Whether it ends as soon as the result is seen to be wrong for empty tensors.
        ends_when_fixed: Whether it ends as soon as ``int`` or ``float`` makes a number of a size.
    """

    requested: DynamicShapes = dataclasses.field(compare=False)
    request: str = "asked"
    inputs: Inputs | None = dataclasses.field(default=None, compare=False)
    other_branch: bool = False
    strategies: tuple[str, ...] | None = dataclasses.field(default=None, compare=False)
    from_zero: bool = False
    small_sizes: bool = True
    unknown: frozenset[str] = frozenset()
    plain: bool = False
    conversions: frozenset[tuple[str, str]] = frozenset()
    static_ones: frozenset[str] = frozenset()
    both_ways: bool = False
    rolls: bool = False
    loops_in: frozenset[str] = frozenset()
    both_sizes: bool = False
    decides_slices: bool = False
    ends_early: bool = False
    ends_when_fixed: bool = False


@dataclasses.dataclass(frozen=True)
class Captured:
    """A captured program and how it was obtained.

    Attributes:
        program: The captured program.
        strategy: The call of torch that produced it.
        requested: The request, less what the model does not deliver and the user accepts.
        decisions: Decisions of the capture about sizes, with the user's lines.
        given_up: A sentence for every dimension that came out differently from the request.
        warnings: Sentences, by code, about what holds for a part of the data only: values that
            ``draft`` and ``trace`` fix to those of the example, numbers that the model changes, and
            answers about sizes that depend on data.
        drawn: Generators of Python and numpy that the model drew random numbers from.
        seeded: Lines that draw random numbers after ``forward`` has set the seed.
        readings: Numbers that were taken from weights and attributes of the model.
        validations: Branches that only validate data, and were not taken.
        above_zero: Whether it may be wrong for empty tensors.
        off: Sentences about what this package could not change in torch.
        small_branches: Lines that branch for sizes 0 and 1, or for one size of several dimensions,
            which the program is wrong for.
        resized: Dimensions that had another size than in the example, with both sizes.
        joined: Lines that branch on sizes, if captures for different sizes were joined.
        reused: What became of the calls of layers that repeat.
        rolled: Lines of Python loops that became one loop.
        unrolled: What to do about a Python loop that limits a dimension, and why it stayed so.
        retried: Why the capture was repeated without the optional changes to torch, in a sentence.
    """

    program: torch.export.ExportedProgram
    strategy: str
    requested: DynamicShapes
    decisions: tuple[Decision, ...]
    given_up: tuple[str, ...] = ()
    warnings: Mapping[str, str] = dataclasses.field(default_factory=dict)
    drawn: tuple[str, ...] = ()
    seeded: tuple[Location, ...] = ()
    readings: tuple[Reading, ...] = ()
    validations: tuple[Validation, ...] = ()
    above_zero: bool = False
    off: tuple[str, ...] = ()
    small_branches: tuple[str, ...] = ()
    resized: tuple[str, ...] = ()
    joined: tuple[str, ...] = ()
    retried: str | None = None
    reused: tuple[Usage, ...] = ()
    rolled: tuple[str, ...] = ()
    unrolled: str = UNROLLED


@dataclasses.dataclass(frozen=True)
class Failure:
    """One strategy that failed."""

    strategy: str
    error: Exception
    decisions: tuple[Decision, ...]

    @property
    def is_refusal(self) -> bool:
        """True if the ways of a branch, or the steps of a loop, cannot be one graph."""
        return isinstance(self.error, (UnjoinableError, UnrollableError))

    @property
    def asks_data(self) -> bool:
        """True if it failed at a branch on data."""
        if self.strategy != STRATEGIES["non-strict"] or not needs_data(self.error):
            return False
        last = self.decisions[-1] if self.decisions else None
        return last is not None and last.kind == "undecided" and is_question(last.expression)

    @property
    def needs_slice(self) -> bool:
        """True if it failed because sizes do not decide the bounds of a slice."""
        return needs_data(self.error) and bool(self.decisions) and self.decisions[-1].about_slice

    @property
    def compares_sizes(self) -> bool:
        """True if an operator refused symbolic sizes, such as ``n`` and ``n - 1``.

        Torch does not ask if one of them is 1, and broadcasts, while small sizes stay dynamic.
        """
        if not isinstance(self.error, RuntimeError) or needs_data(self.error):
            return False
        return not violates_constraints(self.error) and names_sizes(self.error)

    @property
    def conversions(self) -> frozenset[tuple[str, str]]:
        """Modules where ``int`` or ``float`` asked for a number that torch refuses to give."""
        refused = violates_constraints(self.error) or needs_data(self.error)
        return find_conversions(self.decisions) if refused else frozenset()


@dataclasses.dataclass(frozen=True)
class Attempt:
    """The outcome of a plan.

    Attributes:
        plan: The plan.
        captured: The result of the first strategy that succeeded, or None.
        failures: The strategies that failed before it.
        ended: Whether it ended early, with neither, as wrong for empty tensors.
        fixed_in: The modules in which ``int`` or ``float`` made a number of a size, if it ended
            early for that.
        written: Buffers and attributes that the model writes to after their values were read,
            for which it ended.
    """

    plan: Plan
    captured: Captured | None = None
    failures: tuple[Failure, ...] = ()
    ended: bool = False
    fixed_in: frozenset[tuple[str, str]] = frozenset()
    written: frozenset[str] = frozenset()

    @functools.cached_property
    def fixed(self) -> list[Finding]:
        """Requested dimensions that the captured program does not have."""
        return self._compare_dimensions(refused=False)

    @functools.cached_property
    def limited(self) -> list[Finding]:
        """``fixed``, and dimensions with a smaller range than requested."""
        return self._compare_dimensions(refused=True)

    @functools.cached_property
    def unrolled_in(self) -> frozenset[str]:
        """The files of Python loops that were unrolled, if that limits a requested dimension.

        Or fixes one that was requested as ``Dim.AUTO``, or gives a range to it or to a name.
        """
        if self.captured is None:
            return frozenset()
        program, decisions = self.captured.program, self.captured.decisions
        files = find_unrolled(decisions)
        if not files or self.limited or describe_limits(program, self.plan.requested, decisions):
            return files
        if is_fixed_by_loop(program, self.plan.requested, decisions):
            return files
        lines = describe_branches(program, self.plan.requested, decisions, said="")
        return files if any(map(is_loop, lines)) else frozenset()

    @functools.cached_property
    def contradicts_example(self) -> bool:
        """True if a size in the captured program is not the example's."""
        return self.captured is not None and contradicts_example(self.captured.program)

    @property
    def above_zero(self) -> bool:
        """True if the result is, or would have been, wrong for empty tensors."""
        return self.ended or (self.captured is not None and self.captured.above_zero)

    @property
    def stops_at_branch(self) -> bool:
        """True if it failed at a branch on data, of which both ways were not tried."""
        return not self.plan.both_ways and any(failure.asks_data for failure in self.failures)

    @property
    def our_failure(self) -> Failure | None:
        """The failure, if any, that the code of this package raised."""
        return next((f for f in self.failures if is_ours(f.error) and not f.is_refusal), None)

    @property
    def violation(self) -> Failure | None:
        """The failure, if any, in which torch refused the requested dimensions."""
        return next((f for f in self.failures if violates_constraints(f.error)), None)

    def _compare_dimensions(self, refused: bool) -> list[Finding]:
        if self.captured is None:
            return []
        return find_undelivered(
            self.captured.program, self.plan.requested, self.captured.decisions, refused
        )


def make_attempt(model: Model, plan: Plan, limit: TimeLimit) -> Attempt:
    """Captures a model according to a plan, with the first of its strategies that succeeds.

    Args:
        model: The model.
        plan: The plan.
        limit: The time left. Strategies that exceed it are left out.

    Raises:
        CaptureError: The model has something that this package refuses with words of its own.
        InvalidOptionError: The model returns an object of an unsupported class.
    """
    model = dataclasses.replace(
        model,
        inputs=plan.inputs or model.inputs,
        strategies=plan.strategies or model.strategies,
    )
    failures: list[Failure] = []
    waiting = collections.deque(model.strategies)
    while waiting:
        name = waiting.popleft()
        if failures and not limit.allows(STRATEGIES[name], _count_runs(failures[-1])):
            break
        first = name == "non-strict" and not failures
        ends = EarlyEnds(plan.ends_early and first, plan.ends_when_fixed and first)
        run = Run.prepare(
            name,
            model,
            plan.requested,
            from_zero=plan.from_zero,
            small_sizes=plan.small_sizes,
            plain=plan.plain,
            conversions=plan.conversions,
            zero_ignored=ends.record_zero,
            converted=ends.record_conversion,
            unknown=plan.unknown,
            limit=limit,
            both_ways=plan.both_ways,
            rolls=plan.rolls,
            loops_in=plan.loops_in,
            both_sizes=plan.both_sizes,
            decides_slices=plan.decides_slices,
        )
        limit.begin_run()
        try:
            program = run_strategy(run)
            rolled = () if ends.ended or limit.ended else _roll(run, program)
        except Exception as error:
            if ends.ended:
                return Attempt(plan, ended=ends.is_wrong, fixed_in=ends.fixed_in)
            if run.copies_failed:
                model = dataclasses.replace(model, reuse="off")
                waiting.appendleft(name)
                continue
            if limit.ended:
                limit.left_out.append(STRATEGIES[name])
                break
            limit.complete_run()
            if run.known.written:
                return Attempt(plan, written=frozenset(run.known.written))
            # With other inputs, or objects in place of lists, the failure need not be the user's.
            asked = plan.inputs is None and not plan.rolls
            if asked and isinstance(error, (CaptureError, InvalidOptionError)):
                raise  # our own messages need no explanation
            if asked and isinstance(error, RefusedError):
                location = location_of_error(error)
                raise make_explained_error(error.explanation, location, model.module) from error
            logger.info("%s failed: %s", name, str(error).strip().partition("\n")[0])
            failures.append(
                Failure(STRATEGIES[name], _find_failure(run, error), tuple(run.decisions))
            )
            if _calls_for_plan(failures[-1], plan):
                break
            continue
        # The model may have caught the exception that was to end the capture.
        if ends.ended:
            return Attempt(plan, ended=ends.is_wrong, fixed_in=ends.fixed_in)
        if run.copies_failed:
            model = dataclasses.replace(model, reuse="off")
            waiting.appendleft(name)
            continue
        if limit.ended:
            limit.left_out.append(STRATEGIES[name])
            break
        limit.complete_run(is_captured=True)
        if run.known.written:
            return Attempt(plan, written=frozenset(run.known.written))
        captured = _collect(run, program, above_zero=ends.may_be_wrong(program))
        captured = dataclasses.replace(captured, rolled=rolled)
        return Attempt(plan, captured, tuple(failures))
    return Attempt(plan, failures=tuple(failures))


def _calls_for_plan(failure: Failure, plan: Plan) -> bool:
    """True if another plan helps more than another strategy does."""
    return (
        (failure.needs_slice and not plan.decides_slices)
        or bool(failure.conversions - plan.conversions)
        or (failure.asks_data and not plan.both_ways)
    )


def _find_failure(run: Run, error: Exception) -> Exception:
    """The failure of a run, which is that no loop was found if torch only refused dimensions."""
    loops = run.settings.loops
    if loops is not None and not loops.made and violates_constraints(error):
        return UnrollableError("", "")
    return error


def _roll(run: Run, program: torch.export.ExportedProgram) -> tuple[str, ...]:
    """Makes one loop of the recorded steps of each loop, and returns the lines of the loops.

    Raises:
        UnrollableError: That is not possible, or gives other results than the model.
    """
    loops = run.settings.loops
    if loops is None:
        return ()
    from onnx_aot.capture.loops.check import check_rolled
    from onnx_aot.capture.loops.roll import roll_loops

    roll_loops(program, loops, run.settings.model_rows.boundary.changed)
    check_rolled(program, run.model.module, run.model.inputs, run.requested, loops.made)
    return tuple(dict.fromkeys(loop.shown for loop in loops.made))


def _count_runs(failure: Failure) -> int:
    """Number of captures to come after a failure.

    If torch refuses the dimensions, it will hardly accept them in another way. Two more captures
    are more useful then: with inputs of other sizes, and with all dimensions left to the model.
    """
    return 3 if violates_constraints(failure.error) else 1


def _collect(run: Run, program: torch.export.ExportedProgram, above_zero: bool) -> Captured:
    return Captured(
        program,
        STRATEGIES[run.strategy],
        run.requested,
        tuple(run.decisions),
        warnings=run.warnings,
        drawn=tuple(run.drawn),
        seeded=tuple(run.settings.model_rows.seeded.lines),
        readings=tuple(run.known.readings.values()),
        validations=tuple(run.validations),
        above_zero=above_zero,
        reused=() if run.settings.reuse is None else tuple(run.settings.reuse.usage),
        off=tuple(f"{p.name}: {why}. {p.without}" for p, why in run.settings.off.items()),
    )
