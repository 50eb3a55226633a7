"""Defers Ctrl-C while torch traces to a moment at which it is safe.

Python raises KeyboardInterrupt between any two instructions. If torch is just entering or leaving a
context manager, or runs below C++ code that no exception may leave, this leaves torch in a state in
which the next call crashes. If a record is being logged, other threads may wait for a lock forever.
So an interrupt waits until none of this is the case, which takes milliseconds.
"""

from __future__ import annotations

import _thread
import contextlib
import logging
import signal
import threading
import time
from collections.abc import Iterator
from types import FrameType
from typing import Any

import torch

from onnx_aot.errors import PACKAGE

__all__ = ["interrupts_deferred", "is_asked_by_cpp", "may_interrupt"]

PATIENCE = 2.0
"""Longest wait of an interrupt in seconds, reached only during long sympy computations."""

AGAIN = 0.002
"""Interval in seconds at which a waiting interrupt checks again."""

# An ExitStack that was interrupted would not leave the context that it has just entered.
_TRANSITIONS = ("__enter__", "__exit__", "__del__", "enter_context")
# C++ code of torch calls __torch_dispatch__ when an operator is traced or a tensor is asked for its
# device, and methods of sym_node.py and recording.py when sizes are compared. No exception may
# leave some of that code. Callbacks for deleted objects, in the other two, swallow exceptions.
_BELOW_CPP = ("__torch_dispatch__",)
_BELOW_CPP_IN = ("sym_node.py", "recording.py", "weak.py", "weakref.py")

_QUESTIONS = ("sym_node.py", "recording.py", "symbolic_shapes.py")


def may_interrupt(frame: FrameType | None) -> bool:
    """True if KeyboardInterrupt may be raised in a frame.

    False if it, or a frame around it, enters or leaves a context or is called by torch's C++ code;
    or if it logs, since the lock of a handler may then never be released.
    """
    while frame is not None:
        code = frame.f_code
        if code.co_name in _TRANSITIONS or code.co_name in _BELOW_CPP:
            return False
        if code.co_filename.endswith(_BELOW_CPP_IN) or code.co_filename == logging.__file__:
            return False
        frame = frame.f_back
    return True


def is_asked_by_cpp(frame: FrameType | None) -> bool:
    """True if torch's C++ code asks the question about a size that a frame answers.

    Some of that code crashes the process if an exception leaves it.
    """
    file = ""
    while frame is not None:
        asking = frame.f_code.co_filename
        if not asking.startswith(PACKAGE):
            if not asking.endswith(_QUESTIONS):
                break
            file = asking
        frame = frame.f_back
    is_method = file.endswith("sym_node.py")  # which Python calls by the operators of a SymInt
    return is_method and (frame is None or frame.f_code.co_filename != torch.__file__)


@contextlib.contextmanager
def interrupts_deferred() -> Iterator[None]:
    """Raises KeyboardInterrupt only if ``may_interrupt``, at a second Ctrl-C or after ``PATIENCE``.

    Other threads get no signals, and a handler that the user has installed is left alone.
    """
    ours = threading.current_thread() is threading.main_thread()
    if not ours or signal.getsignal(signal.SIGINT) is not signal.default_int_handler:
        yield
        return
    waiting = _Waiting()
    signal.signal(signal.SIGINT, waiting.interrupted)
    try:
        yield
    finally:
        waiting.end()
        signal.signal(signal.SIGINT, signal.default_int_handler)
    if waiting.since is not None:  # the work ended before a safe moment came
        raise KeyboardInterrupt


class _Waiting:
    """The signal handler, which holds a pending interrupt."""

    def __init__(self) -> None:
        self.since: float | None = None
        self._thread: threading.Thread | None = None  # checks again after a while
        self._looks_again = False
        self._ended = False

    def interrupted(self, _: int, frame: FrameType | None) -> Any:
        now = time.monotonic()
        is_second = self.since is not None and not self._looks_again
        self.since = now if self.since is None else self.since
        self._looks_again = False
        if self._ended:
            return
        if is_second or now - self.since > PATIENCE or may_interrupt(frame):
            self.since = None
            raise KeyboardInterrupt
        self._thread = threading.Thread(target=self._look_again, daemon=True)
        self._thread.start()

    def _look_again(self) -> None:
        time.sleep(AGAIN)
        if self.since is not None and not self._ended:
            self._looks_again = True
            _thread.interrupt_main()

    def end(self) -> None:
        """Lets further signals only be recorded."""
        self._ended = True
        if self._thread is not None:
            self._thread.join()
