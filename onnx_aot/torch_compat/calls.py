"""Arguments of torch's higher-order operators, which have no schema: which stands where."""

from __future__ import annotations

from onnx_aot.torch_compat.overloads import higher_order

__all__ = [
    "ARGUMENTS_IN_A_TUPLE",
    "AUTOCAST_BEGINS",
    "AUTOCAST_ENABLED",
    "AUTOCAST_ENDS",
    "OPERANDS",
    "WRAPPERS",
]

WRAPPERS = frozenset(
    {
        higher_order.autograd_function_apply,
        higher_order.dynamo_bypassing_wrapper,
        higher_order.hints_wrapper,
        higher_order.strict_mode,
        higher_order.tag_activation_checkpoint,
        higher_order.wrap,
        higher_order.wrap_activation_checkpoint,
        higher_order.wrap_with_autocast,
        higher_order.wrap_with_set_grad_enabled,
    }
)
"""Operators that call their first body once, as it is, with the arguments that follow it."""

ARGUMENTS_IN_A_TUPLE = frozenset({higher_order.hints_wrapper, higher_order.strict_mode})
"""Those of which one argument holds all those of the body."""

AUTOCAST_ENABLED = 2
"""The argument of ``wrap_with_autocast``, and of its mark, that switches it on."""

AUTOCAST_BEGINS, AUTOCAST_ENDS = "_enter_autocast", "_exit_autocast"
"""Functions that mark a region without a wrapper; the second takes the node of the first."""

OPERANDS = {
    higher_order.cond: (3,),
    higher_order.map_impl: (1, 2),
    higher_order.scan: (1, 2, 3),
    higher_order.switch: (2,),
    higher_order.while_loop: (2, 3),
}
"""Positions of the arguments that bodies are called with, in the order of their parameters."""
