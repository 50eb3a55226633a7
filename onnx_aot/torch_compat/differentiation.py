"""Knows whether a function of a model is run to differentiate it."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterator

__all__ = ["differentiating", "is_differentiating"]

_STATE = threading.local()


@contextlib.contextmanager
def differentiating() -> Iterator[None]:
    """Marks that what runs in this thread is differentiated.

    Kernels that only give shapes would hide from autograd what they depend on.
    """
    before, _STATE.active = is_differentiating(), True
    try:
        yield
    finally:
        _STATE.active = before


def is_differentiating() -> bool:
    """True within ``differentiating`` in this thread."""
    return getattr(_STATE, "active", False)
