"""Limits the time until a model is refused, and that for improving a result.

Torch gives its answer after one capture. The further attempts and the explanation of this package
end when three times the duration of the first capture, and five seconds, have passed. If the first
capture stopped at a branch on data, the first run through the whole model counts in its place.

A result that the user is warned of, since the model branches on a size that is promised by name
only, is improved if that takes a quarter of the first capture's duration and two seconds at most.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator

__all__ = ["TimeLimit"]

FACTOR = 3.0
"""Multiple of the first capture's duration."""

ALLOWANCE = 5.0
"""Seconds in addition, so that small models have every explanation on slow machines too."""


SHARE = 0.25
"""Part of the first capture's duration that may be spent on a better result than its own."""

SPARE = 2.0
"""Seconds for that in addition; small models have time for several captures."""


class _OutOfTimeError(Exception):
    """Ends a capture. The limit records that it was raised, in case the model catches it."""


class TimeLimit:
    """Time that the attempts to capture a model may take, in seconds of this thread.

    Waiting for other processes does not count, so a busy machine has the same result.

    Attributes:
        applies: Whether there is a limit. There is none once the export has a result, or if the
            user has named the strategies, which are then carried out to the end.
        left_out: Attempts and explanations that there was no time for, in a few words.
        ended: Whether the last run was ended.
    """

    def __init__(self, applies: bool = True) -> None:
        self.applies = applies
        self._began = self._run_began = time.thread_time()
        self._first: float | None = None
        self.left_out: list[str] = []
        self.ended = False

    @property
    def spent(self) -> float:
        """Seconds since the beginning."""
        return time.thread_time() - self._began

    @property
    def largest(self) -> float | None:
        """Seconds after which nothing is begun any more; None while there is no limit."""
        if self._first is None or not self.applies:
            return None
        return FACTOR * self._first + ALLOWANCE

    @property
    def is_over(self) -> bool:
        """True if nothing is begun any more."""
        return self.largest is not None and self.spent > self.largest

    def spares(self, seconds: float = 0.0, runs: int = 0) -> bool:
        """Tells whether there is time to make a result better that the user is warned of.

        Args:
            seconds: What it takes.
            runs: Captures as long as the first one, in addition.
        """
        first = self._first or 0.0
        return self.spent + seconds + (runs - 1) * first <= SHARE * first + SPARE

    def begin_run(self) -> None:
        """Marks the beginning of a run, which ``check`` may end."""
        self.ended = False
        self._run_began = time.thread_time()

    def complete_run(self, is_captured: bool = False) -> None:
        """Marks the end of a run that gave an answer.

        The first run determines the limit, or a longer one that captured the model.

        Args:
            is_captured: Whether the answer is a program.
        """
        seconds = time.thread_time() - self._run_began
        if self._first is None or is_captured:
            self._first = max(seconds, self._first or 0.0)

    @contextlib.contextmanager
    def measure_path(self) -> Iterator[None]:
        """Measures the first way through the branches of the model, which nothing ends.

        What follows may take three times as long: the first capture stopped at a branch.
        """
        applies, self.applies = self.applies, False
        began = time.thread_time()
        try:
            yield
            self._first = max(time.thread_time() - began, self._first or 0.0)
        finally:
            self.applies = applies

    def allows(self, what: str, runs: int = 1) -> bool:
        """Tells whether runs as long as the first one fit; if not, ``what`` counts as left out."""
        largest = self.largest
        fits = largest is None or self.spent + runs * (self._first or 0.0) <= largest
        if not fits:
            self.left_out.append(what)
        return fits

    def check(self) -> None:
        """Ends a run if the time is over.

        Raises:
            _OutOfTimeError: It is.
        """
        if self.largest is not None and self.spent > self.largest:
            self.ended = True
            raise _OutOfTimeError

    def describe(self) -> str | None:
        """Returns a sentence on what was left out, and how to have it; None without anything."""
        if not self.left_out:
            return None
        return (
            f"left out after {self.spent:.0f} s: {'; '.join(self.left_out)}. A refusal takes at "
            f"most {FACTOR:g} times as long as the first capture, and {ALLOWANCE:g} s; there is no "
            "such limit with strategies=('non-strict', 'strict')"
        )
