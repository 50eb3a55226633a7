"""Range of opsets that are emitted, and the lowest one whose forms the translations write.

Translations, passes and rules write the forms of opset 17 and later. For an earlier opset, a model
is built with those of opset 17, and ``targets/older_forms`` replaces them.
"""

from __future__ import annotations

__all__ = ["BUILT_OPSET", "FUNCTIONS_SINCE", "MAX_OPSET", "MIN_OPSET", "built_opset"]

MIN_OPSET = 11
MAX_OPSET = 28

BUILT_OPSET = 17
"""The lowest opset that a model is built with before it is written for an earlier one."""

FUNCTIONS_SINCE = 8
"""The first IR version whose models may have functions."""


def built_opset(asked: int) -> int:
    """Returns the opset whose forms a model has until it is legalized."""
    return max(asked, BUILT_OPSET)
