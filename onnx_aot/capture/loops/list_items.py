"""Finds elements of lists that a step of a loop takes by its number, as ``states[t]`` does."""

from __future__ import annotations

import ast
import linecache
import sys
from types import FrameType
from typing import Any

import torch
import torch.fx

from onnx_aot.capture.loops.history import Loop
from onnx_aot.metadata.user_code import is_users_frame, source_range
from onnx_aot.torch_compat import current_tracer, node_of, symbolic_expression

__all__ = ["find_position"]


def find_position(index: Any, symbol: Any, loop: Loop) -> int | None:
    """Returns the position, in the list as it is during the capture, for a step's index.

    The list must have got its elements from the loop, one per step: the element at the position is
    that of this step, or of the step before. So the same holds at every step.

    Args:
        index: The number of the step, plus or minus a number.
        symbol: The symbol for the number of the step.
        loop: The loop, which has not ended.

    Returns:
        The position; None if something else than such a list is indexed.
    """
    shift = symbolic_expression(index) - symbol
    items = _find_indexed(sys._getframe(1))
    if not shift.is_Integer or items is None:
        return None
    step = len(loop.marks)  # from 1 on
    position = step - 1 + int(shift)
    if not 0 <= position < len(items) or not isinstance(items[position], torch.Tensor):
        return None
    tracer = current_tracer()
    made = None if tracer is None else loop.step_so_far(node_of(items[position], tracer))
    return position if made in (step, step - 1) else None


def _find_indexed(frame: FrameType | None) -> list[Any] | tuple[Any, ...] | None:
    """The list or tuple, in a variable or attribute, that the user's code is about to index."""
    while frame is not None and not is_users_frame(frame):
        frame = frame.f_back
    source = None if frame is None else _read_instruction(frame)
    if frame is None or source is None:
        return None
    try:
        parsed = ast.parse(source.strip(), mode="eval").body
    except SyntaxError:
        return None
    if not isinstance(parsed, ast.Subscript) or isinstance(parsed.slice, (ast.Slice, ast.Tuple)):
        return None
    found = _evaluate(parsed.value, frame)
    return found if type(found) in (list, tuple) else None


def _read_instruction(frame: FrameType) -> str | None:
    """The source of the expression that a frame evaluates; None if Python does not tell."""
    place = source_range(frame.f_code, frame.f_lasti)
    if place is None:
        return None
    first, last, start, end = place
    lines = [linecache.getline(frame.f_code.co_filename, n) for n in range(first, last + 1)]
    text = "".join(lines).encode()
    before_last = sum(len(line.encode()) for line in lines[:-1])
    return text[start : before_last + end].decode()


def _evaluate(name: ast.expr, frame: FrameType) -> Any:
    """The value of a variable, or of an attribute of one."""
    if isinstance(name, ast.Name):
        return frame.f_locals.get(name.id, frame.f_globals.get(name.id))
    if isinstance(name, ast.Attribute):
        return getattr(_evaluate(name.value, frame), name.attr, None)
    return None
