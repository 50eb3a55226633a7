"""Several translations of one operator: the first that takes a call is used."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from onnx_aot.errors import ConversionError, TranslationError
from onnx_aot.ops.attempts import DeclinedError
from onnx_aot.ops.builder import Builder

if TYPE_CHECKING:
    from onnx_aot.translate.walker import Plan

__all__ = ["NoCandidateError", "first_that_fits"]


class NoCandidateError(TranslationError):
    """Every translation of an operator declined a call."""


def first_that_fits(op: Builder, plans: Sequence[Plan], call: Callable[[Plan], Any]) -> Any:
    """What the first translation that takes a call returns.

    One gives way to the next when it returns ``NotImplemented``, when its annotations exclude the
    types of the arguments, and, where the next is the user's too, when it raises a
    ``ConversionError``, such as that the opset lacks an operator. What it emitted is taken back.

    Args:
        op: The builder.
        plans: The translations in order.
        call: Calls one of them.

    Raises:
        NoCandidateError: None takes the call.
    """
    if len(plans) == 1 and not plans[0].translation.may_decline:
        return call(plans[0])
    refusals = []
    for index, plan in enumerate(plans):
        others = any(other.translation.may_decline for other in plans[index + 1 :])
        try:
            with op.attempt():
                returned = call(plan)
                if returned is NotImplemented:
                    raise DeclinedError("returned NotImplemented")
                return returned
        except DeclinedError as declined:
            refusals.append(f"{_name(plan)}: {declined}")
        except ConversionError as error:
            if not others:
                raise
            refusals.append(f"{_name(plan)}: {error}")
    target = plans[0].translation.target
    raise NoCandidateError(
        f"no translation of {target} takes this call:\n    " + "\n    ".join(refusals)
    )


def _name(plan: Plan) -> str:
    function = plan.translation.function
    return str(getattr(function, "__qualname__", None) or repr(function))
