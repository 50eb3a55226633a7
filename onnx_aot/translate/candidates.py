"""Tries the translations of an operator in order and uses the first that accepts a call."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from typing import Any

from onnx_aot.builder.builder import Builder
from onnx_aot.builder.rollback import DeclinedError
from onnx_aot.errors import ConversionError, TranslationError
from onnx_aot.ops.registry import Translation
from onnx_aot.translate.promote import needs_promotion

__all__ = ["NoCandidateError", "Plan", "plan_of", "try_candidates"]


@dataclasses.dataclass(frozen=True)
class Plan:
    """One way to translate an operator in this opset."""

    translation: Translation
    names: tuple[str, ...]
    promotes: bool


def plan_of(translation: Translation) -> Plan:
    """Returns the plan for an entry of the table."""
    names = tuple(argument.name for argument in translation.arguments or ())
    return Plan(translation, names, needs_promotion(translation.target))


class NoCandidateError(TranslationError):
    """Every translation of an operator declined a call."""


def try_candidates(
    op: Builder, plans: Sequence[Plan], call: Callable[[Plan], Any]
) -> tuple[Any, Plan]:
    """Returns the result of the first translation that accepts a call, and its plan.

    The next translation is tried when one returns ``NotImplemented``, when its annotations exclude
    the types of the arguments, or when it raises a ``ConversionError``, for example because the
    opset lacks an operator. Such an error is ignored only if another of the user's translations
    accepts the call. Nodes that a declining translation emitted are removed.

    Args:
        op: The builder.
        plans: The translations in order.
        call: Calls one of them.

    Raises:
        NoCandidateError: No translation accepts the call.
        ConversionError: The error that one of the user's translations raised.
    """
    if len(plans) == 1 and not plans[0].translation.may_decline:
        return call(plans[0]), plans[0]
    refusals = []
    failed: ConversionError | None = None
    for plan in plans:
        if failed is not None and not plan.translation.may_decline:
            break
        try:
            with op.attempt():
                returned = call(plan)
                if returned is NotImplemented:
                    raise DeclinedError("returned NotImplemented")
                return returned, plan
        except DeclinedError as declined:
            refusals.append(f"{_name(plan)}: {declined}")
        except ConversionError as error:
            failed = failed or error
    if failed is not None:
        raise failed
    target = plans[0].translation.target
    raise NoCandidateError(
        f"no translation of {target} takes this call:\n    " + "\n    ".join(refusals)
    )


def _name(plan: Plan) -> str:
    function = plan.translation.function
    return str(getattr(function, "__name__", None) or repr(function))
