"""Computes with real tensors while a model is traced with fake ones."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterator

from onnx_aot.torch_compat.lookup import private

__all__ = ["computes_real_tensors", "is_computing_real_tensors", "with_real_tensors"]

_UNSET_FAKE = "torch._subclasses.fake_tensor:unset_fake_temporarily"
_REAL = threading.local()


def computes_real_tensors() -> bool:
    """True if ``with_real_tensors`` is available in this torch."""
    return private(_UNSET_FAKE) is not None


@contextlib.contextmanager
def with_real_tensors() -> Iterator[None]:
    """Runs operators on real tensors while a model is traced with fake ones.

    For code that torch calls to trace one operator.
    """
    unset = private(_UNSET_FAKE)
    before, _REAL.active = is_computing_real_tensors(), True
    try:
        with unset() if unset is not None else contextlib.nullcontext():
            yield
    finally:
        _REAL.active = before


def is_computing_real_tensors() -> bool:
    """True within ``with_real_tensors`` in this thread."""
    return getattr(_REAL, "active", False)
