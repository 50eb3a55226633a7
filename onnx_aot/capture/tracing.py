"""Whether a model is being traced for export at this moment."""

from __future__ import annotations

import contextlib
import contextvars
from collections.abc import Iterator

__all__ = ["is_in_onnx_export", "tracing"]

_tracing: contextvars.ContextVar[bool] = contextvars.ContextVar("onnx_aot_tracing", default=False)


def is_in_onnx_export() -> bool:
    """Whether the calling code runs because ``onnx_aot.export`` is tracing the model.

    ``torch.onnx.is_in_onnx_export()`` answers the same during that time.
    """
    return _tracing.get()


@contextlib.contextmanager
def tracing() -> Iterator[None]:
    """Makes ``is_in_onnx_export`` true for the duration."""
    token = _tracing.set(True)
    try:
        yield
    finally:
        _tracing.reset(token)
