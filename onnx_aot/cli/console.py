"""Shared behavior of the commands: errors as messages, progress, JSON, exit codes."""

from __future__ import annotations

import contextlib
import json
import logging
import sys
from collections.abc import Iterator
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.progress import Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

from onnx_aot.errors import InvalidOptionError, OnnxExporterError

__all__ = [
    "EXIT_FAILED",
    "EXIT_USAGE",
    "AsJson",
    "errors_as_messages",
    "escape_for_stream",
    "print_json",
    "stage_names",
]

EXIT_FAILED = 1
"""Exit code if the command failed or a comparison found a difference."""

EXIT_USAGE = 2
"""Exit code if the command line is invalid."""

AsJson = Annotated[bool, typer.Option("--json", help="Print JSON instead of text.")]


@contextlib.contextmanager
def errors_as_messages() -> Iterator[None]:
    """Prints the errors of the package as messages, without a traceback, and sets the exit code."""
    try:
        yield
    except InvalidOptionError as error:
        typer.echo(f"onnx-aot: {escape_for_stream(str(error), sys.stderr)}", err=True)
        raise typer.Exit(EXIT_USAGE) from None
    except OnnxExporterError as error:
        typer.echo(f"onnx-aot: {escape_for_stream(str(error), sys.stderr)}", err=True)
        raise typer.Exit(EXIT_FAILED) from None


def print_json(content: Any) -> None:
    """Prints machine-readable content, with keys in a fixed order."""
    typer.echo(json.dumps(content, indent=2))


def escape_for_stream(text: str, stream: Any = None) -> str:
    """The text as the stream can show it: escaped to ASCII unless the stream is UTF-8."""
    if _is_utf8(sys.stdout if stream is None else stream):
        return text
    return text.encode("ascii", "backslashreplace").decode("ascii")


def _is_utf8(stream: Any) -> bool:
    return (getattr(stream, "encoding", None) or "").lower().replace("-", "") == "utf8"


@contextlib.contextmanager
def stage_names() -> Iterator[None]:
    """Shows the current stage on a terminal; shows nothing elsewhere."""
    console = Console(stderr=True)
    if not console.is_terminal:
        yield
        return
    from onnx_aot.pipeline.recording import logged_to  # imports torch, which --help does not need

    spinner = "dots" if _is_utf8(sys.stderr) else "line"
    shown = (SpinnerColumn(spinner), TextColumn("{task.description}"), TimeElapsedColumn())
    progress = Progress(*shown, console=console, transient=True)
    with progress, logged_to(_TaskHandler(progress)):
        yield


class _TaskHandler(logging.Handler):
    """Sets the description of the progress to each logged stage."""

    def __init__(self, progress: Progress) -> None:
        super().__init__(logging.INFO)
        self._progress = progress
        self._task = progress.add_task("Start")

    def emit(self, record: logging.LogRecord) -> None:
        self._progress.update(self._task, description=record.getMessage())
