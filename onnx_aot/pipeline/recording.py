"""Records an export: timing of stages, progress, notes to the user, profile and report."""

from __future__ import annotations

import contextlib
import dataclasses
import datetime
import gc
import logging
import os
import sys
from collections.abc import Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any

import torch

from onnx_aot.errors import add_line, warn
from onnx_aot.torch_compat import restored

if TYPE_CHECKING:
    from onnx_aot.program.program import ONNXProgram
    from onnx_aot.reporting.record import ExportRecord

__all__ = [
    "Note",
    "collection_paused",
    "dump_program",
    "logged_to",
    "new_record",
    "profiled",
    "progress",
    "publish",
    "stage",
    "write_report",
]

logger = logging.getLogger("onnx_aot.export")


def new_record(
    model: Any, args: Any, kwargs: Mapping[str, Any] | None, asked: Mapping[str, Any]
) -> ExportRecord:
    """Creates the record of an export of ``model``.

    Args:
        model: The model; it is not kept.
        args: Example inputs; they are not kept either.
        kwargs: Example keyword inputs.
        asked: The other arguments of ``export`` that are not the defaults.
    """
    from onnx_aot.reporting.record import ExportRecord
    from onnx_aot.reporting.repro_script import inputs_as_python, source_of

    kind = type(model)
    now = datetime.datetime.now().strftime("%Y-%m-%d_%H-%M-%S-%f")
    name = getattr(model, "__qualname__", None) if callable(model) else None
    record = ExportRecord(name or f"{kind.__module__}.{kind.__qualname__}", now)
    record.source = source_of(model)
    record.training = bool(getattr(model, "training", False))
    record.inputs = inputs_as_python(args, kwargs)
    record.asked = dict(asked)
    return record


@dataclasses.dataclass(frozen=True)
class Note:
    """A sentence for the user: a line of the report and, unless ``quiet``, a warning.

    Attributes:
        text: The sentence.
        code: Code of the page that explains it.
        quiet: Whether it is in the report only.
    """

    text: str
    code: str
    quiet: bool = False


def publish(record: ExportRecord, notes: Iterable[Note]) -> None:
    """Passes the notes of a stage on to the user, each once."""
    for note in notes:
        if note.text in record.notes:
            continue
        record.notes[note.text] = note.code
        if note.quiet:
            logger.info(note.text)
        else:
            warn(note.text, note.code)


@contextlib.contextmanager
def stage(record: ExportRecord, key: str) -> Iterator[None]:
    """Times a stage in the record and logs it."""
    with record.time_stage(key):
        logger.info("%s ...", record.stages[key].name)
        yield
    logger.info("%s: %.3f s", record.stages[key].name, record.stages[key].seconds)


@contextlib.contextmanager
def progress(verbose: bool | None) -> Iterator[None]:
    """With ``verbose=True``, prints the package's log to stderr as plain lines."""
    if not verbose:
        yield
        return
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(logging.Formatter("[onnx_aot] %(message)s"))
    with logged_to(handler):
        yield


@contextlib.contextmanager
def logged_to(handler: logging.Handler) -> Iterator[None]:
    """Sends the package's log, from level INFO on, to a handler."""
    package = logging.getLogger("onnx_aot")
    level = package.level
    package.addHandler(handler)
    package.setLevel(logging.INFO)
    try:
        yield
    finally:
        package.removeHandler(handler)
        package.setLevel(level)


@contextlib.contextmanager
def collection_paused() -> Iterator[None]:
    """Pauses garbage collection: objects of the pipeline live to its end, so it finds nothing."""
    if not gc.isenabled():
        yield
        return
    with restored(gc.enable):
        gc.disable()
        yield


@contextlib.contextmanager
def profiled(profile: bool, record: ExportRecord) -> Iterator[None]:
    """With ``profile=True``, puts a call profile into the record."""
    if not profile:
        yield
        return
    import cProfile
    import io
    import pstats

    profiler = cProfile.Profile()
    profiler.enable()
    try:
        yield
    finally:
        profiler.disable()
        text = io.StringIO()
        pstats.Stats(profiler, stream=text).sort_stats("cumulative").print_stats(40)
        record.profile = text.getvalue()


def dump_program(
    program: ONNXProgram, folder: str | os.PathLike[str], record: ExportRecord
) -> list[Note]:
    """Saves the captured program; a failure to do so becomes a note."""
    assert program.exported_program is not None
    from onnx_aot.serialization.atomic import written_beside

    path = os.path.join(folder, f"onnx_export_{record.started}.pt2")
    try:
        os.makedirs(folder, exist_ok=True)
        with written_beside(path) as file:
            torch.export.save(program.exported_program, file)
    except Exception as error:  # the model itself is not affected
        reason = f"{type(error).__name__}: {error}"
        return [Note(f"the captured program could not be saved: {reason}", "OA501")]
    logger.info("the captured program is in %s", path)
    return []


def write_report(
    record: ExportRecord, program: ONNXProgram | None, folder: str | os.PathLike[str]
) -> None:
    """Writes the report into a folder, and appends its path to the message of the export's error.

    A failure to write it is a warning.
    """
    from onnx_aot.reporting.report import build_report

    try:
        path = build_report(record, program).save(folder)
    except Exception as error:  # the program, or the error that is being reported, matters more
        warn(f"could not write the report: {type(error).__name__}: {error}", "OA501")
        return
    logger.info("the report is in %s", path)
    if record.error is not None:
        add_line(record.error, f"The report is in {path}")
