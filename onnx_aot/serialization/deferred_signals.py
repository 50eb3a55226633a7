"""Defers signals while files take their places."""

from __future__ import annotations

import contextlib
import signal
import threading
from collections.abc import Iterator
from types import FrameType
from typing import Any

__all__ = ["signals_deferred"]

SIGNALS = tuple(map(int, signal.valid_signals()))

ENDING = {getattr(signal, name) for name in ("SIGTERM", "SIGHUP") if hasattr(signal, name)}
"""Signals that end a process that has no handler for them."""

Arrived = list[tuple[int, FrameType | None]]


@contextlib.contextmanager
def signals_deferred() -> Iterator[None]:
    """Context in which signals wait; they are handled after it, in the order of their arrival.

    Python runs handlers in the main thread only, so another thread is never interrupted by one.
    Handlers that were not installed from Python are left alone.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    arrived: Arrived = []
    handlers: dict[int, Any] = {}
    try:
        for number in SIGNALS:
            handler = signal.getsignal(number)
            if callable(handler) or (handler is signal.SIG_DFL and number in ENDING):
                handlers[number] = handler
                signal.signal(number, lambda *received: arrived.append(received))
        yield
    finally:
        _restore(dict(handlers))
        _handle(arrived, handlers)


def _restore(handlers: dict[int, Any]) -> None:
    """Installs handlers, all of them even if one of them runs meanwhile and raises."""
    try:
        for number in list(handlers):
            signal.signal(number, handlers[number])
            del handlers[number]
    finally:
        if handlers:
            _restore(handlers)


def _handle(arrived: Arrived, handlers: dict[int, Any]) -> None:
    """Handles signals in order, all of them even if a handler raises."""
    if not arrived:
        return
    number, frame = arrived.pop(0)
    try:
        handler = handlers[number]
        if callable(handler):
            handler(number, frame)
        else:
            signal.raise_signal(number)
    finally:
        _handle(arrived, handlers)
