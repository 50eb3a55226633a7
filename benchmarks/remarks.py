"""Counts what an export says by default: warnings, and lines on stdout and stderr.

    python -m benchmarks.remarks [NAME ...]

Each exporter runs in a process of its own, with Python's own filters of warnings and without
options that silence it, as in a script of a user. What making the model and importing packages
prints does not count. Remarks that are in the report only are counted apart.
"""

from __future__ import annotations

import contextlib
import os
import sys
import tempfile
import warnings
from collections.abc import Iterator
from typing import IO, Any

from benchmarks import ways
from benchmarks.run import TIMEOUT, Benchmark, Settings, in_fresh_process, run
from benchmarks.subjects import QUICK, case_of, catalogue
from benchmarks.tables import facts, number, remark, table
from benchmarks.timing import TooSlow, first_line, time_limit

BOTH = ("ours", "peer")


def main() -> None:
    """Runs the command line of this benchmark."""
    run(BENCHMARK)


def measure(name: str, settings: Settings) -> dict[str, Any]:
    """Counts what both exporters say about a model.

    Returns:
        The ``remark`` on its dimensions, and for each way that was run, under its name, what
        ``listen`` returns.
    """
    row = in_fresh_process(__name__, "listen_and_search", name)
    found = row["remark"]
    if found not in ("", ways.REFUSED):  # other dimensions than those that were exported
        row["ours"] = in_fresh_process(__name__, "listen", name, "ours", found)
    if settings.peer and found != ways.REFUSED:
        row["peer"] = in_fresh_process(__name__, "listen", name, "peer", found, settings.limit)
    return row


def listen_and_search(name: str) -> dict[str, Any]:
    """Returns what ``listen`` does for ours, and the remark on what a plain capture keeps.

    The capture comes last, because what it warns of once is not said again.
    """
    said = listen(name, "ours", "")
    return {"remark": ways.make_subject(case_of(name)).remark, "ours": said}


def listen(name: str, way: str, dimensions: str, limit: float = TIMEOUT) -> dict[str, Any]:
    """Exports a model and counts what is said meanwhile.

    Args:
        name: Name of the model.
        way: ``"ours"`` or ``"peer"``.
        dimensions: Remark on its dimensions.
        limit: Seconds that torch.onnx may take.

    Returns:
        JSON: the number of ``lines`` that are not blank; the first line of each of the
        ``warnings`` with its category; the first line of the ``error``, or ""; of onnx_aot, the
        codes of all remarks that are in the report, which include those of its warnings,
        ``noted``.
    """
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        subject = ways.make_subject_again(case_of(name), dimensions)
        import onnxscript  # noqa: F401 - so that its import, which may warn, is not counted

        import onnx_aot  # noqa: F401
    error, noted = "", []
    with tempfile.TemporaryDirectory() as folder, tempfile.TemporaryFile() as said:
        path = os.path.join(folder, "model.onnx")
        with output_to(said), warnings_seen() as seen:
            try:
                if way == "ours":
                    noted = subject.ours(path).report.note_codes
                else:
                    with time_limit(limit):
                        subject.peer_aloud(path)
            except (Exception, TooSlow) as caught:  # shown in the table
                error = first_line(caught)
        said.seek(0)
        lines = sum(1 for line in said if line.strip())
    return {"lines": lines, "warnings": seen, "error": error, "noted": list(noted)}


@contextlib.contextmanager
def output_to(file: IO[bytes]) -> Iterator[None]:
    """Sends what this process prints, from native code too, to a file."""
    streams = (sys.stdout, sys.stderr)
    kept = [os.dup(number) for number in (1, 2)]
    for stream in streams:
        stream.flush()
    os.dup2(file.fileno(), 1)
    os.dup2(file.fileno(), 2)
    try:
        yield
    finally:
        for number, (stream, copy) in enumerate(zip(streams, kept, strict=True), 1):
            stream.flush()
            os.dup2(copy, number)
            os.close(copy)


@contextlib.contextmanager
def warnings_seen() -> Iterator[list[str]]:
    """Yields the list of the warnings that are shown in the block, and are printed all the same."""
    seen: list[str] = []
    printed = warnings.showwarning

    def show(message: Any, category: type[Warning], *more: Any) -> None:
        seen.append(f"{category.__name__}: {str(message).partition(chr(10))[0]}")
        printed(message, category, *more)

    with warnings.catch_warnings():
        warnings.showwarning = show
        yield seen


def summarize(rows: list[dict[str, Any]]) -> dict[str, Any]:
    """Returns lines and warnings per export, of the models that both export."""
    done = [row for row in rows if all(way in row and not row[way]["error"] for way in BOTH)]
    if not done:
        return {}
    summary: dict[str, Any] = {"models that both export": len(done)}
    for way in BOTH:
        label = ways.LABELS[way]
        lines = [row[way]["lines"] for row in done]
        counted = [len(row[way]["warnings"]) for row in done]
        summary |= {
            f"{label}: lines per export": round(sum(lines) / len(done), 2),
            f"{label}: warnings per export": round(sum(counted) / len(done), 2),
            f"{label}: exports that print nothing": sum(count == 0 for count in lines),
        }
    only = [len(row["ours"]["noted"]) - len(row["ours"]["warnings"]) for row in done]
    summary["onnx_aot: remarks in the report only, per export"] = round(sum(only) / len(done), 2)
    return summary


def render(rows: list[dict[str, Any]], summary: dict[str, Any]) -> str:
    """Returns the tables for the documentation."""
    body = [
        [
            row["name"],
            *(_count(row, way, key) for key in ("lines", "warnings") for way in BOTH),
            _describe(row),
        ]
        for row in rows
    ]
    head = ["Model", "Lines, onnx_aot", "Lines, torch.onnx"]
    head += ["Warnings, onnx_aot", "Warnings, torch.onnx", "Remark"]
    return "\n\n".join((facts(summary), table(head, body)))


def _count(row: dict[str, Any], way: str, key: str) -> str:
    if way not in row or row[way]["error"]:
        return "-"
    value = row[way][key]
    return number(value if key == "lines" else len(value), 0)


def _describe(row: dict[str, Any]) -> str:
    """Returns the remark on the dimensions, errors, and what onnx_aot warned of."""
    errors = {way: row[way]["error"] for way in BOTH if way in row and row[way]["error"]}
    return "; ".join(filter(None, (remark(row["remark"], errors), *row["ours"]["warnings"])))


BENCHMARK = Benchmark("remarks", catalogue, QUICK, measure, summarize)

if __name__ == "__main__":
    main()
