"""Positions of the arguments of torch's higher-order operators, which have no schema."""

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
"""Operators that call their first body once, unchanged, with the arguments that follow it."""

ARGUMENTS_IN_A_TUPLE = frozenset({higher_order.hints_wrapper, higher_order.strict_mode})
"""Those among them that pass all arguments of the body in one tuple."""

AUTOCAST_ENABLED = 2
"""Position of the argument of ``wrap_with_autocast`` and ``AUTOCAST_BEGINS`` that enables it."""

AUTOCAST_BEGINS, AUTOCAST_ENDS = "_enter_autocast", "_exit_autocast"
"""Names of functions that mark a region without a wrapper; the end takes the node of the begin."""

OPERANDS = {
    higher_order.cond: (3,),
    higher_order.map_impl: (1, 2),
    higher_order.scan: (1, 2, 3),
    higher_order.switch: (2,),
    higher_order.while_loop: (2, 3),
}
"""Positions of the arguments passed to the bodies, in the order of the bodies' parameters."""
