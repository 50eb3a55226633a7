"""Ends a capture as soon as something is seen that calls for another one."""

from __future__ import annotations

import sys

import torch

from onnx_aot.capture.sizes.empty_inputs import may_be_wrong
from onnx_aot.torch_compat import is_asked_by_cpp

__all__ = ["EarlyEnds"]


class _EndedEarlyError(Exception):
    """Ends a capture. ``EarlyEnds`` has the reason, in case the model catches the exception."""


class EarlyEnds:
    """Records what calls for another capture, and ends this one for it if asked to.

    Questions of C++ code, which no exception may leave, do not end the capture at once.

    Args:
        when_wrong: Whether it ends at an answer of torch that makes the result wrong for empty
            tensors.
        when_fixed: Whether it ends where ``int`` or ``float`` makes a number of a size, which
            another capture can keep symbolic.

    Attributes:
        is_wrong: Whether the capture was ended for such an answer.
        fixed_in: The conversion for which it was ended, ``Decision.conversion``.
    """

    def __init__(self, when_wrong: bool, when_fixed: bool) -> None:
        self._when_wrong, self._when_fixed = when_wrong, when_fixed
        self._answers: list[bool] = []
        self.is_wrong = False
        self.fixed_in: frozenset[tuple[str, str]] = frozenset()

    @property
    def ended(self) -> bool:
        """True if the capture was ended."""
        return self.is_wrong or bool(self.fixed_in)

    def record_zero(self, everywhere: bool) -> None:
        """Records an answer of torch that holds for sizes above zero only.

        Args:
            everywhere: Whether it matters even if no size is computed.

        Raises:
            _EndedEarlyError: The capture is to end now.
        """
        self._answers.append(everywhere)
        if everywhere and self._when_wrong:
            self.is_wrong = True
            self._end()

    def record_conversion(self, conversion: tuple[str, str]) -> None:
        """Records that ``int`` or ``float`` made a number of a size.

        Raises:
            _EndedEarlyError: The capture is to end now.
        """
        if self._when_fixed:
            self.fixed_in |= {conversion}
            self._end()

    def may_be_wrong(self, program: torch.export.ExportedProgram) -> bool:
        """True if the captured program may be wrong for empty tensors."""
        return any(self._answers) or may_be_wrong(program, bool(self._answers))

    def _end(self) -> None:
        if not is_asked_by_cpp(sys._getframe(2)):
            raise _EndedEarlyError
