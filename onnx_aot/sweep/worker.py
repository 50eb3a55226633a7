"""Calls the task of a row in the process of the row, and says how it ended."""

from __future__ import annotations

import contextlib
import errno
import os
import re
import sys
import tempfile
import traceback
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from onnx_aot.errors import OnnxExporterError, VerificationError
from onnx_aot.integrations.subjects import look_up
from onnx_aot.sweep.rows import MEMORY, RIGHT, STATUSES, Row

__all__ = [
    "LOG",
    "REPORT",
    "SCRIPT",
    "STACK",
    "Progress",
    "call_task",
    "merge",
    "repeat_row",
    "write_script",
]

LOG, STACK, SCRIPT, REPORT = "log.txt", "stack.txt", "repeat.py", "report.md"
"""Files of a row that is not right; those that are empty are left out."""

FIELDS = ("status", "stage", "error", "reason", "machine")
"""Keys of a task's result that are not metrics."""

LONGEST = 4000  # characters of a reason
OUT_OF_MEMORY = re.compile(r"can't allocate memory|std::bad_alloc|[Oo]ut of memory")
OF_THE_MACHINE = {errno.ENOSPC, errno.EIO, errno.ENETUNREACH, errno.ESTALE, errno.EDQUOT}


class Progress:
    """Given to a task, which tells it how far it is. What it was told is kept after a crash.

    Attributes:
        folder: Folder for the files of the row; what is in it afterwards is kept.
        keep: Whether the exported model is kept: ``"never"``, ``"failed"`` or ``"always"``.
    """

    def __init__(self, folder: str, keep: str, send: Callable[[dict[str, Any]], None]) -> None:
        self.folder = Path(folder)
        self.keep = keep
        self._send = send

    def begin(self, stage: str) -> None:
        """Says which stage begins."""
        self._send({"stage": stage})

    def note(self, **metrics: Any) -> None:
        """Adds figures to the result: numbers, texts, or what else can be written as JSON."""
        self._send(metrics)


def call_task(row: Row, folder: str, send: Callable[[dict[str, Any]], None]) -> None:
    """Calls the task of a row and sends its result, or the error that it raised."""
    progress = Progress(folder, row.keep, send)
    try:
        result = look_up(row.task)(row.settings, progress)
    except BaseException as error:  # also SystemExit, which would look like a crash
        send(describe_error(error))
        Path(folder, STACK).write_text(traceback.format_exc(), encoding="utf-8")
        return
    send({"status": RIGHT, **(result or {})})


def describe_error(error: BaseException) -> dict[str, Any]:
    """Status, class and message of an error that a task raised."""
    text = str(error).strip() or type(error).__name__
    if isinstance(error, MemoryError) or OUT_OF_MEMORY.search(text):
        status = MEMORY
    elif isinstance(error, VerificationError):
        status = "wrong"
    elif isinstance(error, OnnxExporterError):
        status = "refused"
    else:
        status = "failed"
    machine = isinstance(error, ConnectionError) or (
        isinstance(error, OSError) and error.errno in OF_THE_MACHINE
    )
    name = type(error).__name__
    return {"status": status, "error": name, "reason": text[:LONGEST], "machine": machine}


def merge(outcome: Any, message: Mapping[str, Any]) -> None:
    """Writes what a task sent into the outcome of its row."""
    for key, value in message.items():
        if key in FIELDS:
            setattr(outcome, key, value)
        else:
            outcome.metrics[key] = value


REPEAT = '''"""Repeats a row of a sweep: python {script}"""

import os
import sys

os.chdir({cwd!r})
sys.path[:0] = {path!r}

from onnx_aot.sweep import repeat_row

ROW = {row}

if __name__ == "__main__":
    repeat_row(ROW)
'''


def write_script(row: Row, folder: str, path: list[str]) -> None:
    """Writes the script that repeats the row; ``path`` are folders to search for modules."""
    import pprint

    shown = pprint.pformat(row.to_json(), sort_dicts=False, width=96)
    text = REPEAT.format(script=SCRIPT, cwd=os.getcwd(), path=path, row=shown)
    Path(folder, SCRIPT).write_text(text, encoding="utf-8")


def repeat_row(content: Mapping[str, Any], folder: str | None = None) -> dict[str, Any]:
    """Runs a row in this process, without limits, and prints its stages and its result.

    Args:
        content: The row as ``Row.to_json`` wrote it.
        folder: Folder for its files; None: a temporary one.

    Returns:
        The result of the task, with the metrics that it noted.

    Raises:
        Exception: The error of the task.
    """
    row = Row.from_json(content)
    found: dict[str, Any] = {}

    def send(message: dict[str, Any]) -> None:
        found.update(message)
        if "stage" in message:
            print(f"{row.name}: {message['stage']}", file=sys.stderr, flush=True)

    with contextlib.ExitStack() as stack:
        into = folder or stack.enter_context(tempfile.TemporaryDirectory())
        result = look_up(row.task)(row.settings, Progress(into, row.keep, send))
    found |= {"status": RIGHT, **(result or {})}
    print(f"{row.name}: {found['status']}, {STATUSES[found['status']]}", file=sys.stderr)
    return found
