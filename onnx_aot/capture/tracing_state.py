"""Tells whether a model is being traced for export at this moment."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

from onnx_aot.torch_compat import (
    IN_EXPORT,
    Attribute,
    Patch,
    Place,
    Settings,
    applied,
    in_capturing_thread,
)

__all__ = ["TRACING", "is_in_onnx_export", "running_as_in_export"]


class _Tracing:
    """Plain attribute instead of a ContextVar, which Dynamo cannot trace when a model asks."""

    now = False


def is_in_onnx_export() -> bool:
    """True if the calling code runs because ``onnx_aot.export`` is tracing the model.

    During that time ``torch.onnx.is_in_onnx_export()`` is True as well, in every thread.
    """
    return _Tracing.now and in_capturing_thread()


def _tracing_now(settings: Settings) -> Iterator[Place]:
    yield Attribute(_Tracing, "now")


TRACING = Patch(
    "onnx_aot.is_in_onnx_export()",
    lambda original, settings: True,
    "Models that ask take their eager path.",
    places=_tracing_now,
    optional=False,
)


def running_as_in_export() -> contextlib.AbstractContextManager[None]:
    """Tells models that ask that they are exported, so that they can be compared with a capture."""
    return applied((IN_EXPORT, TRACING), Settings())
