"""Tells choices between nearly equal values from errors, which alone look alike.

``topk``, ``argmax`` and thresholds turn a difference in the last digit into another element, and so
into a difference of any size, which could hide any other error. Comparing value by value shows that
it does not: from PyTorch's own inputs, every operator then gives PyTorch's result.
"""

from __future__ import annotations

import dataclasses
import logging
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from onnx_aot.inspection.compare import compare_values
from onnx_aot.inspection.compared_values import ComparedValue
from onnx_aot.inspection.differences import OutputDifference

__all__ = ["accept_choices"]

logger = logging.getLogger(__name__)

WHOLE = ("bool", "int", "uint")


def accept_choices(
    program: Any,
    args: Sequence[Any],
    kwargs: Mapping[str, Any],
    found: list[OutputDifference],
    is_captured_alike: Callable[[], bool],
) -> list[OutputDifference]:
    """Marks the outputs in which choices between nearly equal values make the difference.

    That is so if PyTorch's own result is as far from its result in float64 in all outputs that
    differ, the captured program agrees with the model in PyTorch, and no captured value is wrong by
    itself.

    Args:
        program: An ``ONNXProgram``.
        args: Positional inputs.
        kwargs: Keyword inputs.
        found: Differences of the outputs on these inputs.
        is_captured_alike: Returns whether the captured program agrees with the model in PyTorch;
            called last, since it runs the program.

    Returns:
        The differences, with ``choice`` where it explains them.
    """
    wrong = [difference for difference in found if not difference.right]
    if not wrong or program.exported_program is None:
        return found
    if not all(d.rounding is not None and d.rounding.alike for d in wrong):
        return found
    try:
        rows = [row for row in compare_values(program, args, kwargs).rows if not row.within]
        is_proved = all(row.origin == "inherited" for row in rows) and is_captured_alike()
    except Exception as error:  # nothing is proved then, and the difference stands
        logger.info("values could not be compared: %s: %s", type(error).__name__, error)
        return found
    if not rows or not is_proved:
        return found
    choice = _describe_choice(rows)
    return [d if d.right else dataclasses.replace(d, choice=choice) for d in found]


def _describe_choice(rows: Sequence[ComparedValue]) -> str:
    """Names the first whole numbers that differ; without any, the first value that does."""
    row = next((row for row in rows if row.expected.startswith(WHOLE)), rows[0])
    where = f", at {row.location}" if row.location else ""
    return (
        f"rounding decides between nearly equal values, first in {row.fx_node} ({row.operator})"
        f"{where}; no value is wrong by itself"
    )
