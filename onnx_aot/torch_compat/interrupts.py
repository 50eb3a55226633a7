"""Ctrl-C while torch traces.

Python raises KeyboardInterrupt between any two instructions. Where that is inside of a context
manager that torch is entering or leaving, or below C++ code that no exception may leave, torch is
left in a state in which the next call ends the process. So an interrupt waits for a moment in which
neither is the case, which comes within milliseconds.
"""

from __future__ import annotations

import _thread
import contextlib
import signal
import threading
import time
from collections.abc import Iterator
from types import FrameType
from typing import Any

__all__ = ["interrupts_deferred", "may_interrupt"]

PATIENCE = 2.0
"""Seconds for which an interrupt waits at most; so long does it take where sympy goes on and on."""

AGAIN = 0.002
"""Seconds after which it looks again."""

_TRANSITIONS = ("__enter__", "__exit__", "__del__")
# C++ code of torch calls the first where an operator is traced or a tensor asked for its device,
# and the methods of these two files where sizes are compared. Some of that code no exception may
# leave. What is called because an object is gone, in the other two, swallows exceptions.
_BELOW_CPP = ("__torch_dispatch__",)
_BELOW_CPP_IN = ("sym_node.py", "recording.py", "weak.py", "weakref.py")


def may_interrupt(frame: FrameType | None) -> bool:
    """Whether KeyboardInterrupt may be raised in a frame.

    Not where it, or one around it, enters or leaves a context or is called by C++ code of torch.
    """
    while frame is not None:
        code = frame.f_code
        if code.co_name in _TRANSITIONS or code.co_name in _BELOW_CPP:
            return False
        if code.co_filename.endswith(_BELOW_CPP_IN):
            return False
        frame = frame.f_back
    return True


@contextlib.contextmanager
def interrupts_deferred() -> Iterator[None]:
    """Lets KeyboardInterrupt be raised only where ``may_interrupt``, or at a second Ctrl-C.

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
    if waiting.since is not None:  # the work was done meanwhile
        raise KeyboardInterrupt


class _Waiting:
    """The handler of the signal."""

    def __init__(self) -> None:
        self.since: float | None = None
        self._thread: threading.Thread | None = None  # the one that looks again
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
        """From here on a signal is only noted."""
        self._ended = True
        if self._thread is not None:
            self._thread.join()
