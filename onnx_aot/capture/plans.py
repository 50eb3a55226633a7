"""Captures a model: a table of plans, and the choice among what they gave.

The first plan captures as asked. Each row of ``ROWS`` says after which outcome another plan is
tried, and what it changes. The first row that applies and whose plan is new comes next; when none
applies, ``Outcomes.best`` chooses.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any, Literal

import torch
from torch.export import Dim

from onnx_aot.capture.attempts import Attempt, Captured, Plan, make_attempt
from onnx_aot.capture.inputs import Inputs
from onnx_aot.capture.module_state import initialize_lazy_modules
from onnx_aot.capture.outcomes import Outcomes
from onnx_aot.capture.refusals import check_example, describe_retry, refuse_model
from onnx_aot.capture.scripted.children import is_scripted
from onnx_aot.capture.sizes.data_equalities import find_repeated
from onnx_aot.capture.sizes.dimension_requests import DynamicShapes, RequestedDim
from onnx_aot.capture.sizes.empty_inputs import is_derived_from_zero
from onnx_aot.capture.sizes.example_check import (
    describe_crossings,
    describe_wrong_sizes,
    keep_decisions,
    size_in_example,
)
from onnx_aot.capture.sizes.known_sources import find_sources
from onnx_aot.capture.sizes.other_examples import (
    describe_other_inputs,
    find_limited_ones,
    find_ones_left_to_model,
)
from onnx_aot.capture.sizes.specialization import (
    Finding,
    relax_request,
)
from onnx_aot.capture.sizes.squeezes import find_squeezed_ones
from onnx_aot.capture.sizes.torch_constraints import describe_torch
from onnx_aot.capture.sizes.unrolled_loops import UNROLLED
from onnx_aot.capture.strategies import DEFAULT, STRATEGIES, Model
from onnx_aot.capture.time_limits import TimeLimit
from onnx_aot.errors import DynamicShapeError, OnnxExporterError, add_line
from onnx_aot.torch_compat import violates_constraints

__all__ = ["ROWS", "capture"]


@dataclasses.dataclass(frozen=True)
class Row:
    """A plan, and when it is tried.

    Attributes:
        name: The outcome after which it is tried, in a few words.
        when: True if the attempts so far call for it.
        plan: Makes the plan.
    """

    name: str
    when: Callable[[Outcomes], bool]
    plan: Callable[[Outcomes], Plan]


def _plan_first(
    requested: DynamicShapes,
    request: str = "asked",
    after: Plan | None = None,
    inputs: Inputs | None = None,
    rolls: bool = False,
) -> Plan:
    """Plan for the first attempt with a request.

    It ends as soon as an answer is wrong for empty tensors, or ``int`` or ``float`` fixes a size;
    for that only once in an export, since each of many modules may fix another one. A request such
    as ``n + 1`` is captured from zero on at once, because torch would refuse it.

    Args:
        requested: The requested dynamic shapes.
        request: Their origin, ``Plan.request``.
        after: Plan of the attempt before, which taught what does not work for the model.
        inputs: Inputs of other sizes than the user's.
        rolls: Whether Python loops over dynamic sizes become one loop.
    """
    after = after or Plan(requested, ends_when_fixed=True)
    derived = is_derived_from_zero(requested)
    return dataclasses.replace(
        after,
        requested=requested,
        request=request,
        inputs=inputs,
        strategies=None,
        rolls=rolls,
        from_zero=derived,
        small_sizes=True,
        ends_early=not derived,
        ends_when_fixed=after.ends_when_fixed and not rolls,
    )


def _change_last(**changes: Any) -> Callable[[Outcomes], Plan]:
    """The last plan, with some settings changed, to be carried out to the end."""
    changes = {"ends_early": False, **changes}
    return lambda attempts: dataclasses.replace(attempts.last.plan, **changes)


def _wants_zero(attempts: Outcomes) -> bool:
    """True if the last result is wrong for empty tensors."""
    last = attempts.last
    return last.above_zero and last.plan.small_sizes and not last.plan.from_zero


def _fails_from_zero(attempts: Outcomes) -> bool:
    """True if the capture from zero on failed or limits a dimension, and there is no other.

    Loops that are unrolled for a dimension come first: they fix it from every size on.
    """
    return not attempts.wants_rolled and _is_too_much(attempts.last, attempts)


def _stays_unrolled(attempts: Outcomes) -> bool:
    """True if loops did not become one, and this was tried before a capture from above zero on."""
    asked = attempts.of("asked")
    unrolled = [attempt for attempt in asked if not attempt.plan.rolls]
    if len(unrolled) == len(asked) or attempts.rolls:
        return False
    return _is_too_much(unrolled[-1], attempts)


def _is_too_much(last: Attempt, attempts: Outcomes) -> bool:
    if not last.plan.from_zero or not last.plan.small_sizes:
        return False
    if any(a.captured is not None and not a.plan.from_zero for a in attempts.of(last.plan.request)):
        return False
    derived = is_derived_from_zero(last.plan.requested)
    limits = any(not _is_due_to_example(finding, attempts) for finding in last.limited)
    return last.captured is None or limits or (derived and last.above_zero)


def _is_due_to_example(finding: Finding, attempts: Outcomes) -> bool:
    """True if other inputs may free a dimension, and a capture from another size on does not.

    The model takes a branch of few sizes, or the example has size 1.
    """
    if finding.takes is not None:
        return True
    return finding.static and size_in_example(finding.dim, attempts.requested) == 1


def _fails_in_our_code(attempts: Outcomes) -> bool:
    best = attempts.best(attempts.last.plan.request)
    return best.our_failure is not None and best.captured is None and not best.plan.plain


def _contradicts_example(attempts: Outcomes) -> bool:
    best = attempts.best(attempts.last.plan.request)
    return best.plan.small_sizes and best.contradicts_example


def _broadcasts_in_example(attempts: Outcomes) -> bool:
    """True if the capture failed at sizes of which the example may broadcast one, as it is 1."""
    best = attempts.best(attempts.last.plan.request)
    if best.captured is not None or not best.plan.small_sizes or best.plan.plain:
        return False
    if best.plan.inputs is not None:  # of sizes that the model may refuse
        return False
    return any(failure.compares_sizes for failure in best.failures)


def _find_wrong_ones(attempts: Outcomes) -> list[RequestedDim]:
    """The dimensions that the model may fix and that are wrong for the example.

    It squeezes a size of 1, limits it to 1, or repeats it along a size of data.
    """
    best = attempts.best(attempts.last.plan.request)
    if best.captured is None or best.plan.request != "asked":
        return []
    program, requested = best.captured.program, best.plan.requested
    found = [
        *find_squeezed_ones(program, requested),
        *find_limited_ones(program, requested),
        *find_repeated(program, requested),
    ]
    return list(dict.fromkeys(found))


def _squeezes_part(attempts: Outcomes) -> bool:
    """True if a size that is squeezed may be other than 1 since a dimension may be 0, as in x[:1].

    The dimension itself is not 1 then.
    """
    if not attempts.last.plan.from_zero:
        return False
    found = _find_wrong_ones(attempts)
    return any(size_in_example(dim, attempts.requested) != 1 for dim in found)


def _find_failing_ones(attempts: Outcomes) -> list[RequestedDim]:
    """The dimensions of size 1 that the model may fix, if its capture failed with these dynamic.

    torch makes them static. It mostly fails since it has to know whether they broadcast.
    """
    last = attempts.last
    if last.captured is not None or not last.failures or last.plan.plain or last.stops_at_branch:
        return []
    if last.plan.rolls and last.violation is None:
        return []
    if last.plan.both_sizes:  # there is a result already
        return []
    found = find_ones_left_to_model(last.plan.requested, attempts.model.inputs)
    return [dim for dim in found if dim.place not in last.plan.static_ones]


def _branches_on_sizes_of_data(attempts: Outcomes) -> bool:
    """True if the result holds for sizes of data from 2 on only, as the model branches on one."""
    best = attempts.best()
    if best.captured is None or best.limited or attempts.resized is not None or best.plan.plain:
        return False
    if best.captured.strategy != STRATEGIES["non-strict"]:
        return False
    tried = any(attempt.plan.both_sizes for attempt in attempts.done)
    decisions = best.captured.decisions
    return not tried and any(d.kind == "larger" and d.chooses for d in decisions)


def _plan_with_static_ones(
    find: Callable[[Outcomes], list[RequestedDim]],
) -> Callable[[Outcomes], Plan]:
    def make_plan(attempts: Outcomes) -> Plan:
        last = attempts.last.plan
        fixed = dict.fromkeys(find(attempts), Dim.STATIC)
        return dataclasses.replace(
            last,
            requested=last.requested.replace(fixed),
            static_ones=last.static_ones | {dim.place for dim in fixed},
        )

    return make_plan


def _wants_delivered(attempts: Outcomes) -> bool:
    """True if the model does not deliver what was asked, and what it delivers is accepted."""
    if attempts.resized is not None:
        return False
    if attempts.of("any"):
        if attempts.best("any").captured is None:
            return False
        return not (attempts.given_up and attempts.strict)
    return bool(attempts.given_up) and not attempts.strict


def _plan_for_resized(attempts: Outcomes) -> Plan:
    plan = _plan_with_inputs(attempts, "resized", attempts.other_inputs)
    return dataclasses.replace(plan, other_branch=bool(attempts.of("resized")))


def _plan_for_case(attempts: Outcomes) -> Plan:
    request = f"case {attempts.number_of_cases + 1}"
    return _plan_with_inputs(attempts, request, attempts.inputs_of_next_case)


def _plan_beyond(attempts: Outcomes) -> Plan:
    return _plan_with_inputs(attempts, "beyond", attempts.inputs_beyond)


def _plan_with_inputs(attempts: Outcomes, request: str, inputs: Inputs | None) -> Plan:
    # Left to the model, because torch would refuse a range with the size of the example in it.
    requested = relax_request(attempts.requested)
    plan = _plan_first(requested, request, attempts.last.plan, inputs, attempts.rolls)
    captured = attempts.best().captured
    worked = [name for name, call in STRATEGIES.items() if captured and call == captured.strategy]
    # One strategy, so that a refusal does not take much longer.
    return dataclasses.replace(plan, strategies=(*worked, *attempts.model.strategies)[:1])


def _plan_for_any(attempts: Outcomes) -> Plan:
    plan = _plan_first(
        relax_request(attempts.requested), "any", attempts.last.plan, rolls=attempts.rolls
    )
    # An error only needs to know which dimensions the model fixes or limits.
    return dataclasses.replace(plan, ends_early=plan.ends_early and not attempts.strict)


def _plan_for_delivered(attempts: Outcomes) -> Plan:
    error = None if attempts.violation is None else attempts.violation.error
    requested = relax_request(attempts.requested, attempts.undelivered, error)
    return _plan_first(requested, "delivered", attempts.last.plan, rolls=attempts.rolls)


def _plan_without_patches(attempts: Outcomes) -> Plan:
    last = attempts.last.plan
    return dataclasses.replace(_plan_first(last.requested, last.request, last), plain=True)


def _plan_with_rolled(attempts: Outcomes) -> Plan:
    plan = _plan_first(attempts.requested, after=attempts.best().plan, rolls=True)
    plan = dataclasses.replace(plan, strategies=("non-strict",), loops_in=attempts.unrolled_in)
    if not any(attempt.ended for attempt in attempts.of("asked")):
        return plan
    return dataclasses.replace(plan, from_zero=True, ends_early=False)  # it would end early again


def _plan_with_unknown(attempts: Outcomes) -> Plan:
    last = attempts.last
    return dataclasses.replace(last.plan, unknown=last.plan.unknown | last.written)


def _plan_with_conversions(attempts: Outcomes) -> Plan:
    last = attempts.last.plan
    plan = _plan_first(last.requested, last.request, last, last.inputs, last.rolls)
    found = last.conversions | attempts.conversions
    plan = dataclasses.replace(
        plan, strategies=last.strategies, conversions=found, ends_when_fixed=False
    )
    if not last.from_zero:
        return plan
    return dataclasses.replace(plan, from_zero=True, ends_early=False)


def _find_ended(attempts: Outcomes) -> Plan | None:
    """The plan that ended where ``int`` or ``float`` fixed a size, if keeping it failed.

    If torch refused the dimensions even so, it will not take them with that size fixed.
    """
    last = attempts.last
    if last.captured is not None or not last.failures or not last.plan.conversions:
        return None
    alike = attempts.of(last.plan.request)
    if violates_constraints(last.failures[0].error) or any(a.captured for a in alike):
        return None
    return next((a.plan for a in alike if a.fixed_in), None)


def _plan_to_the_end(attempts: Outcomes) -> Plan:
    plan = _find_ended(attempts)
    assert plan is not None
    return dataclasses.replace(plan, ends_when_fixed=False)


ROWS: tuple[Row, ...] = (
    Row(
        "the model writes to a tensor whose value it had read",
        lambda attempts: bool(attempts.last.written),
        _plan_with_unknown,
    ),
    Row(
        "sizes do not decide the bounds of a slice, whose length the model uses",
        lambda attempts: (
            # a branch on it that the capture would pass, but for a size that is kept symbolic
            (not attempts.last.stops_at_branch or bool(attempts.last.plan.conversions))
            and any(failure.needs_slice for failure in attempts.last.failures)
        ),
        _change_last(decides_slices=True, both_ways=False),
    ),
    Row(
        "int or float turned a dynamic size into a number",
        lambda attempts: bool(attempts.conversions),
        _plan_with_conversions,
    ),
    Row(
        "the model branches on its data",
        lambda attempts: (
            not attempts.last.plan.rolls
            and any(failure.asks_data for failure in attempts.last.failures)
        ),
        _change_last(both_ways=True, ends_when_fixed=False),
    ),
    Row(
        "the result is wrong for empty tensors, and may be used",
        lambda attempts: (
            _wants_zero(attempts) and not (attempts.strict and attempts.last.plan.request == "any")
        ),
        _change_last(from_zero=True),
    ),
    Row(
        "sizes from zero on are too much for the model, or for torch",
        _fails_from_zero,
        _change_last(from_zero=False),
    ),
    Row(
        "the capture fails with a size of the example that the model may fix",
        lambda attempts: bool(_find_failing_ones(attempts)),
        _plan_with_static_ones(_find_failing_ones),
    ),
    Row(
        "sizes that int or float would fix are too much for the model",
        lambda attempts: _find_ended(attempts) is not None,
        _plan_to_the_end,
    ),
    Row("a change to torch failed", _fails_in_our_code, _plan_without_patches),
    Row(
        "a size contradicts the example",
        _contradicts_example,
        _change_last(small_sizes=False, from_zero=False),
    ),
    Row(
        "a size of 1 in the example, computed from dynamic sizes, may broadcast",
        _broadcasts_in_example,
        _change_last(small_sizes=False, from_zero=False),
    ),
    Row(
        "sizes from zero on make a size that is squeezed dynamic",
        _squeezes_part,
        _change_last(from_zero=False),
    ),
    Row(
        "the model squeezes a size of the example that it may fix, or limits it to 1",
        lambda attempts: bool(_find_wrong_ones(attempts)),
        _plan_with_static_ones(_find_wrong_ones),
    ),
    Row(
        "a Python loop is unrolled for a requested dimension",
        lambda attempts: attempts.wants_rolled,
        _plan_with_rolled,
    ),
    Row(
        "sizes from zero on are too much for a model whose loops stay unrolled",
        _stays_unrolled,
        lambda attempts: dataclasses.replace(
            [a for a in attempts.of("asked") if not a.plan.rolls][-1].plan,
            from_zero=False,
            ends_early=False,
        ),
    ),
    Row(
        "the sizes of the example may have fixed dimensions",
        lambda attempts: attempts.other_inputs is not None,
        _plan_for_resized,
    ),
    Row(
        "no capture so far is right for some sizes",
        lambda attempts: attempts.inputs_of_next_case is not None,
        _plan_for_case,
    ),
    Row(
        "a bound of sizes may come from an earlier call of the model",
        lambda attempts: not attempts.of("beyond") and attempts.inputs_beyond is not None,
        _plan_beyond,
    ),
    Row(
        "torch refuses the requested dimensions",
        lambda attempts: (
            attempts.violation is not None and not attempts.of("any") and not attempts.resized
        ),
        _plan_for_any,
    ),
    Row("what the model delivers is accepted", _wants_delivered, _plan_for_delivered),
    Row(
        "the model branches on the number of elements that data selects",
        _branches_on_sizes_of_data,
        lambda attempts: dataclasses.replace(
            attempts.best().plan,
            both_ways=True,
            both_sizes=True,
            strategies=("non-strict",),
            ends_when_fixed=False,
        ),
    ),
)
"""When another plan is tried, in order of precedence."""


def capture(
    module: torch.nn.Module,
    inputs: Inputs,
    requested: DynamicShapes,
    collected: tuple[str, ...] = (),
    on_specialized: Literal["error", "warn", "allow"] = "error",
    strategies: tuple[str, ...] = DEFAULT,
    replaceable: Callable[[str], bool] = lambda name: False,
    keeps_state: bool = False,
    is_limited: bool = False,
    reuse: Literal["auto", "off", "check"] = "auto",
) -> Captured:
    """Captures ``module(*args, **kwargs)`` as a graph of ATen operators.

    Args:
        module: The model, which is left unchanged.
        inputs: Example inputs.
        requested: The requested dynamic shapes.
        collected: Keyword inputs that ``**kwargs`` of ``forward`` takes.
        on_specialized: With ``"error"``, a dimension that the model fixes, or limits to less than
            its ``Dim`` allows, is an error; otherwise it is captured as the model needs it, and
            ``given_up`` says so.
        strategies: Names from ``STRATEGIES``, which are tried in this order.
        replaceable: True for the names of weights that are inputs of the exported model, whose
            values are therefore unknown.
        keeps_state: Whether tensor attributes that ``forward`` assigns are state of the exported
            model, as buffers are.
        is_limited: Whether attempts and explanations are left out when three times as long as the
            first capture took, and five seconds, have passed without a result.
        reuse: Whether layers that repeat are copied; ``onnx_aot.export`` describes the values.

    Raises:
        DynamicShapeError: The model fixes or limits a dimension that was requested as dynamic.
        InvalidOptionError: The model returns an object of an unsupported class.
        CaptureError: Every strategy failed for another reason, and the first failure is chained; or
            the example inputs do not pass a check of the model.
    """
    if is_scripted(module):  # its graph is interpreted, so there is only one strategy
        strategies = ("non-strict",)
    initialize_lazy_modules(module, inputs)
    sources = find_sources(module, replaceable)
    model = Model(module, inputs, collected, strategies, sources, keeps_state, reuse)
    limit = TimeLimit(is_limited)
    attempts = Outcomes(model, requested, on_specialized == "error", limit)
    plan: Plan | None = _plan_first(requested)
    while plan is not None:
        attempts.add(make_attempt(model, plan, limit))
        limit.applies = is_limited and not attempts.has_result
        plan = _next_plan(attempts, limit)
    try:
        chosen = _choose(model, attempts, limit)
    except OnnxExporterError as error:
        left_out = limit.describe()
        if left_out is not None:
            add_line(error, left_out)
        raise
    assert chosen.captured is not None
    check_example(model, chosen.captured.validations)
    ours = [a.our_failure for a in attempts.done if a.our_failure is not None]
    retried = describe_retry(ours[0]) if chosen.plan.plain else None
    captured = dataclasses.replace(
        chosen.captured,
        given_up=attempts.given_up,
        retried=retried,
        unrolled=attempts.explain_loops(UNROLLED),
    )
    others = chosen.plan.inputs
    if others is not None:
        captured.program.example_inputs = (inputs.args, inputs.kwargs)
        captured = dataclasses.replace(
            captured,
            requested=requested,
            decisions=keep_decisions(captured.decisions, requested),
            resized=() if captured.joined else describe_other_inputs(inputs, others, requested),
        )
    said = "; ".join(captured.given_up)
    small = describe_wrong_sizes(
        captured.program, module, inputs, captured.requested, captured.decisions, said
    )
    small += describe_crossings(attempts.find_wrong_crossings(captured))
    return dataclasses.replace(captured, small_branches=small)


def _next_plan(attempts: Outcomes, limit: TimeLimit) -> Plan | None:
    """The plan of the first row that applies; None if there is none, or no time for it."""
    tried = [attempt.plan for attempt in attempts.done]
    for row in ROWS:
        if row.when(attempts):
            plan = row.plan(attempts)
            if plan not in tried:
                return plan if limit.allows(f"a capture, since {row.name}") else None
    return None


def _choose(model: Model, attempts: Outcomes, limit: TimeLimit) -> Attempt:
    """The attempt whose program is used.

    Raises:
        CaptureError: There is none.
        DynamicShapeError: There is none with the requested dimensions.
    """
    if attempts.resized is not None:
        return attempts.resized
    asked, violation, undelivered = attempts.best(), attempts.violation, attempts.undelivered
    if asked.captured is not None and not undelivered:
        return asked
    if asked.captured is None and violation is None:
        error = asked.failures[0].error
        plain, conversions = attempts.last.plan.plain, asked.plan.conversions
        raise refuse_model(
            model, attempts.requested, asked.failures, plain, limit, conversions
        ) from error
    cause = None if violation is None else violation.error
    anyhow = attempts.best("any") if violation is not None and attempts.of("any") else None
    if violation is not None and (anyhow is None or anyhow.captured is None):
        text = describe_torch(violation.error, attempts.requested, violation.decisions)
        raise DynamicShapeError(attempts.explain_loops(text)) from cause
    if attempts.of("delivered"):
        delivered = attempts.best("delivered")
        if delivered.captured is None and anyhow is None:
            failure = next((f.error for f in delivered.failures), None)
            raise attempts.refuse_undelivered() from failure
        return delivered if anyhow is None or delivered.captured is not None else anyhow
    if undelivered:
        raise attempts.refuse_undelivered() from cause
    raise DynamicShapeError(attempts.given_up[0]) from cause
