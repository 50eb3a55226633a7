"""Shows how far a sweep is: a bar on a terminal and in a notebook, a line per row elsewhere."""

from __future__ import annotations

import collections
import importlib.util
import sys
import time
from typing import Any

from onnx_aot.sweep.rows import RIGHT, Outcome, first_line

__all__ = ["Live"]

SHOWN = 3  # names of running rows
WIDTH = 160  # characters of a reason


class Live:
    """Progress of the rows that have to run.

    Args:
        total: Their number.
        skipped: Number of rows that do not have to run.
        wanted: False shows nothing.
    """

    def __init__(self, total: int, skipped: int, wanted: bool = True) -> None:
        self._total, self._skipped, self._wanted = total, skipped, wanted
        self._counts: collections.Counter[str] = collections.Counter()
        self._running: dict[str, float] = {}
        self._bar: Any = None
        self._task: Any = None

    def __enter__(self) -> Live:
        if self._wanted:
            self._bar = _make_bar()
        if self._bar is not None:
            self._bar.start()
            self._task = self._bar.add_task("", total=self._total, running="")
        elif self._wanted:
            self._print(f"{self._total} rows to run, {self._skipped} unchanged")
        return self

    def __exit__(self, *exc: object) -> None:
        if self._bar is not None:
            self._update()
            self._bar.refresh()  # stop() does so on terminals only
            self._bar.stop()

    def begin(self, name: str) -> None:
        """A row has been given to the engine."""
        self._running[name] = time.monotonic()
        self._update()

    def try_again(self, name: str, outcome: Outcome) -> None:
        """A row is tried again, because the machine may be at fault."""
        self._running.pop(name, None)
        self._print(f"again     {name}: {first_line(outcome.reason)[:WIDTH]}")

    def end(self, outcome: Outcome) -> None:
        """A row has a result."""
        self._running.pop(outcome.name, None)
        self._counts[outcome.status] += 1
        done = sum(self._counts.values())
        if self._bar is None or outcome.status != RIGHT:
            width = len(str(self._total))
            reason = f"  {first_line(outcome.reason)[:WIDTH]}" if outcome.reason else ""
            self._print(
                f"{done:{width}}/{self._total} {outcome.status:8} {outcome.seconds:7.1f} s  "
                f"{outcome.name}{reason}"
            )
        if self._bar is not None:
            self._bar.advance(self._task)
            self._update()

    def _update(self) -> None:
        if self._bar is None:
            return
        counts = ", ".join(f"{count} {status}" for status, count in self._counts.most_common())
        names = list(self._running)[:SHOWN]
        more = len(self._running) - len(names)
        running = ", ".join(names) + (f" and {more} more" if more else "")
        self._bar.update(self._task, description=counts or "starting", running=running)

    def _print(self, text: str) -> None:
        if self._bar is not None:
            self._bar.console.print(text, markup=False, highlight=False)
        elif self._wanted:
            encoding = sys.stderr.encoding or "ascii"
            shown = text.encode(encoding, "backslashreplace").decode(encoding)
            print(shown, file=sys.stderr, flush=True)


def _make_bar() -> Any:
    """Returns a bar for a terminal or a notebook.

    None elsewhere, and without the packages that draw it: rich, and in a notebook ipywidgets too.
    """
    try:
        from rich.console import Console
        from rich.progress import (
            BarColumn,
            MofNCompleteColumn,
            Progress,
            TextColumn,
            TimeElapsedColumn,
            TimeRemainingColumn,
        )
    except ImportError:
        return None
    columns = (
        BarColumn(),
        MofNCompleteColumn(),
        TextColumn("{task.description}"),
        TimeElapsedColumn(),
        TimeRemainingColumn(),
        TextColumn("{task.fields[running]}"),
    )
    console = Console(stderr=True)
    in_notebook = console.is_jupyter and importlib.util.find_spec("ipywidgets") is not None
    if not in_notebook and not sys.stderr.isatty():
        return None
    return Progress(*columns, console=console)
