"""Recognizes code that depends on the number of pieces into which a dynamic dimension is cut.

``x.chunk(3)`` gives 2 pieces for 4 rows, and ``x.split(n // 2)`` gives 3 for odd ``n``. A capture
has the number of the example. ``a, b, c = x.chunk(3)`` fails at other numbers in PyTorch too, so
that nothing is wrong; ``x.chunk(3)[-1]`` and loops have another result.
"""

from __future__ import annotations

import dis
from collections.abc import Iterator
from types import FrameType
from typing import Any

from onnx_aot.metadata.user_code import is_users_frame
from onnx_aot.torch_compat import find_kernel_with_number, schema_of

__all__ = ["find_count_condition", "is_looped_over", "is_unpacked"]


def find_count_condition(
    asking: FrameType | None, users: FrameType | None, expression: Any
) -> Any | None:
    """Returns the condition under which the user's code does the same with the pieces.

    Args:
        asking: The frame in which the capture decides.
        users: The user's frame that cuts a tensor.
        expression: The condition that the capture relies on, such as ``Eq(ceil(n / 2), 3)``.

    Returns:
        A sympy condition. None if the question is not for a number of pieces, or if other numbers
        of them are errors in PyTorch.
    """
    if users is None or not getattr(expression, "is_Equality", False):
        return None
    operator = find_kernel_with_number(asking, users)
    if operator is None or not _gives_list(operator):
        return None
    first, second, *_ = (*_following(users), None, None)
    if first is None or first.opname == "UNPACK_SEQUENCE":
        return None
    index = first.argval if first.opname.startswith("LOAD_") else None
    if type(index) is int and index >= 0 and _subscripts(second):
        return expression.lhs <= expression.rhs  # fewer pieces than that are an IndexError
    return expression


def is_unpacked(frame: FrameType | None) -> bool:
    """True if the user's code takes apart what its present call gives, as ``a, b = f()`` does.

    Args:
        frame: The frame that is called, by the user's code or by functions of torch.
    """
    return _next_instruction(frame) in ("UNPACK_SEQUENCE", "UNPACK_EX")


def is_looped_over(frame: FrameType | None) -> bool:
    """True if the user's code goes through what its present call gives, ``for x in f()``.

    Args:
        frame: The frame that is called, by the user's code or by functions of torch.
    """
    return _next_instruction(frame) == "GET_ITER"


def _next_instruction(frame: FrameType | None) -> str | None:
    """The name of the instruction that follows the present call in the user's code."""
    while frame is not None and not is_users_frame(frame):
        frame = frame.f_back
    following = None if frame is None else next(_following(frame), None)
    return None if following is None else following.opname


def _gives_list(operator: Any) -> bool:
    returned = schema_of(operator).returns
    return len(returned) == 1 and str(returned[0].type) == "List[Tensor]"


def _following(frame: FrameType) -> Iterator[dis.Instruction]:
    """Yields the instructions that a frame carries out after its present call."""
    for instruction in dis.get_instructions(frame.f_code):
        if instruction.offset > frame.f_lasti and instruction.opname != "CACHE":
            yield instruction


def _subscripts(instruction: dis.Instruction | None) -> bool:
    if instruction is None:
        return False
    name = instruction.opname
    return name == "BINARY_SUBSCR" or (name == "BINARY_OP" and instruction.argrepr == "[]")
