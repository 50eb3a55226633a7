"""Shows a progress bar on the terminal while a large model is written."""

from __future__ import annotations

import sys
import time
from typing import Any

__all__ = ["Progress"]

QUIET = 1.0
"""Seconds before the bar appears."""

INTERVAL = 0.1
WIDTH = 30


class Progress:
    """A bar for the share of a known number of bytes that is written, if stderr is a terminal.

    Nothing is shown if writing takes less than a second.
    """

    def __init__(self, what: str, total: int, stream: Any = None) -> None:
        """``what`` stands before the bar; ``stream`` is stderr by default."""
        self._what = what
        self._total = max(total, 1)
        self._stream = sys.stderr if stream is None else stream
        isatty = getattr(self._stream, "isatty", None)
        self._listens = bool(isatty and isatty())
        self._done = 0
        self._started = time.monotonic()
        self._next = self._started + QUIET
        self._shown = False

    def __enter__(self) -> Progress:
        return self

    def __exit__(self, *error: object) -> None:
        if self._shown:
            self._stream.write("\n")
            self._stream.flush()

    def add(self, count: int) -> None:
        """Reports that ``count`` more bytes are written."""
        self._done += count
        if not self._listens:
            return
        now = time.monotonic()
        if now >= self._next or (self._shown and self._done >= self._total):
            self._next = now + INTERVAL
            self._show(now - self._started)

    def _show(self, seconds: float) -> None:
        share = min(1.0, self._done / self._total)
        bar = ("#" * round(WIDTH * share)).ljust(WIDTH, ".")
        rate = self._done / 1e6 / seconds
        self._stream.write(
            f"\r{self._what} [{bar}] {share:4.0%}  {self._done / 1e9:.2f} of "
            f"{self._total / 1e9:.2f} GB, {rate:.0f} MB/s"
        )
        self._stream.flush()
        self._shown = True
