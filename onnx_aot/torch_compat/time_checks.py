"""Looks at the time again and again while a capture runs."""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable
from typing import Any

from onnx_aot.torch_compat.interrupts import is_asked_by_cpp
from onnx_aot.torch_compat.lookup import OpOverload
from onnx_aot.torch_compat.overloads import schema_of
from onnx_aot.torch_compat.patching import Patch, Settings

__all__ = ["TIME_CHECKS"]


@functools.cache
def _returns_tensors(func: Any) -> bool:
    return not isinstance(func, OpOverload) or any(
        "Tensor" in str(returned.type) for returned in schema_of(func).returns
    )


def _check_operators(original: Callable[..., Any], settings: Settings) -> Callable[..., Any]:
    """Leaves the check out if C++ code asks a tensor for its device, for example.

    An exception there crashes the process.
    """
    check = settings.check_time
    assert check is not None

    def dispatch(self: Any, func: Any, *args: Any, **kwargs: Any) -> Any:
        if _returns_tensors(func):
            check()
        return original(self, func, *args, **kwargs)

    return dispatch


def _check_questions(original: Callable[..., Any], settings: Settings) -> Callable[..., Any]:
    """Leaves the check out in questions of C++ code, which no exception may leave."""
    check = settings.check_time
    assert check is not None

    def call(self: Any, *args: Any, **kwargs: Any) -> Any:
        if not is_asked_by_cpp(sys._getframe(1)):
            check()
        return original(self, *args, **kwargs)

    return call


TIME_CHECKS: tuple[Patch, ...] = tuple(
    Patch(
        place,
        make,
        f"A model may be refused later than after its time limit: {of} take as long as they take.",
        when=lambda settings: settings.check_time is not None,
    )
    for place, make, of in (
        ("torch._subclasses.fake_tensor:FakeTensorMode.dispatch", _check_operators, "operators"),
        (
            "torch.fx.experimental.symbolic_shapes:ShapeEnv.evaluate_expr",
            _check_questions,
            "questions about sizes",
        ),
    )
)
"""Rows that call ``Settings.check_time`` before each operator and each question about sizes."""
