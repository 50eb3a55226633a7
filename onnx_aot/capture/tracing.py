"""Whether a model is being traced for export at this moment."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

__all__ = ["is_in_onnx_export", "tracing"]

# A plain variable: Dynamo cannot trace a ContextVar, and models ask while it traces them.
_tracing = False


def is_in_onnx_export() -> bool:
    """Whether the calling code runs because ``onnx_aot.export`` is tracing the model.

    ``torch.onnx.is_in_onnx_export()`` answers the same during that time.
    """
    return _tracing


@contextlib.contextmanager
def tracing() -> Iterator[None]:
    """Makes ``is_in_onnx_export`` true for the duration."""
    global _tracing  # noqa: PLW0603
    before = _tracing
    _tracing = True
    try:
        yield
    finally:
        _tracing = before
