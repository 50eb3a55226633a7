"""Looks at the time again and again while a capture runs."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from onnx_aot.torch_compat.patching import Patch, Settings

__all__ = ["TIME_CHECKS"]


def _check_first(original: Callable[..., Any], settings: Settings) -> Callable[..., Any]:
    check = settings.check_time
    assert check is not None

    def call(self: Any, *args: Any, **kwargs: Any) -> Any:
        check()
        return original(self, *args, **kwargs)

    return call


TIME_CHECKS: tuple[Patch, ...] = tuple(
    Patch(
        place,
        _check_first,
        f"A model may be refused later than after its time limit: {of} take as long as they take.",
        when=lambda settings: settings.check_time is not None,
    )
    for place, of in (
        ("torch._subclasses.fake_tensor:FakeTensorMode.dispatch", "operators"),
        ("torch.fx.experimental.symbolic_shapes:ShapeEnv.evaluate_expr", "questions about sizes"),
    )
)
"""Rows that call ``Settings.check_time`` before each operator and each question about sizes."""
