"""Runs a benchmark: a process per row, a summary, and stored results.

    python -m benchmarks.<name> [NAME ...] [--quick] [--torch-onnx-limit SECONDS] [--files FOLDER]

With names, the other rows are kept if they are of the same day and machine. ``--quick`` measures
few and small rows with few repetitions, and writes nothing. ``--files`` keeps the exported models
in a folder for later benchmarks.
"""

from __future__ import annotations

import argparse
import dataclasses
import importlib
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

from benchmarks.page import write_page
from benchmarks.results import ROOT, machine, read_json, write_json

__all__ = ["Benchmark", "Settings", "folder_of", "in_fresh_process", "run"]

TIMEOUT = 1800
CHILD = """
import importlib, json, sys
module, function, arguments = json.loads(sys.argv[1])
print(json.dumps(getattr(importlib.import_module(module), function)(*arguments)))
"""


@dataclasses.dataclass(frozen=True)
class Settings:
    """Options of the command line.

    Attributes:
        quick: Few repetitions.
        limit: Seconds that one call of torch.onnx may take.
        peer: Whether torch.onnx is measured at all.
        files: Folder of exported models, or "".
    """

    quick: bool = False
    limit: float = 120.0
    peer: bool = True
    files: str = ""


@dataclasses.dataclass(frozen=True)
class Benchmark:
    """One benchmark.

    Attributes:
        name: Name of its script, its results and its part of the page.
        rows: Returns the names of all rows, in order.
        quick: Names of the rows of ``--quick``.
        measure: Measures one row, in a process of its own; the result can be written as JSON.
        summarize: Returns figures over all rows.
        peer_gave_up: Whether to skip torch.onnx on the next row, given the rows so far and the
            limit.
    """

    name: str
    rows: Callable[[], Sequence[str]]
    quick: Sequence[str]
    measure: Callable[[str, Settings], dict[str, Any]]
    summarize: Callable[[list[dict[str, Any]]], dict[str, Any]]
    peer_gave_up: Callable[[list[dict[str, Any]], float], bool] = lambda rows, limit: False


def run(benchmark: Benchmark) -> None:
    """Runs the command line of a benchmark. Exits with 1 if a row failed, and writes the others."""
    parser = argparse.ArgumentParser(
        description=f"{sys.modules['__main__'].__doc__}\n{__doc__}",
        formatter_class=argparse.RawTextHelpFormatter,
    )
    parser.add_argument("names", nargs="*", metavar="NAME", help="rows; all by default")
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--torch-onnx-limit", type=float, default=Settings.limit, dest="limit")
    parser.add_argument("--without-torch-onnx", action="store_false", dest="peer")
    parser.add_argument("--files", default="", metavar="FOLDER")
    options = vars(parser.parse_args())
    names = options.pop("names")
    settings = Settings(**options)
    wanted = names or (benchmark.quick if settings.quick else benchmark.rows())
    rows, failed = [], []
    for name in wanted:
        peer = settings.peer and not benchmark.peer_gave_up(rows, settings.limit)
        try:
            row = _measure_in_process(benchmark, name, dataclasses.replace(settings, peer=peer))
        except RuntimeError as error:
            failed.append(name)
            print(f"{name}: failed\n{error}", file=sys.stderr, flush=True)
            continue
        rows.append(row)
        print(json.dumps(row), flush=True)
    print(json.dumps(benchmark.summarize(rows), indent=2, ensure_ascii=False))
    if not settings.quick:
        _keep(benchmark, rows, settings, everything=not names)
    if failed:
        sys.exit(f"failed: {', '.join(failed)}")


def _measure_in_process(benchmark: Benchmark, name: str, settings: Settings) -> dict[str, Any]:
    arguments = (benchmark.name, name, dataclasses.asdict(settings))
    return in_fresh_process(__spec__.name, "measured_here", *arguments)


def measured_here(benchmark: str, name: str, settings: Mapping[str, Any]) -> dict[str, Any]:
    """Measures one row in this process."""
    module = importlib.import_module(f"benchmarks.{benchmark}")
    return {"name": name, **module.BENCHMARK.measure(name, Settings(**settings))}


def in_fresh_process(module: str, function: str, *arguments: Any) -> Any:
    """Calls a function in a new interpreter; arguments and result are passed as JSON.

    Raises:
        RuntimeError: It failed; the message ends with its traceback.
    """
    done = subprocess.run(
        [sys.executable, "-c", CHILD, json.dumps([module, function, arguments])],
        capture_output=True,
        cwd=ROOT,
        text=True,
        timeout=TIMEOUT,
        check=False,
    )
    if done.returncode != 0:
        raise RuntimeError(done.stderr[-2000:])
    return json.loads(done.stdout.splitlines()[-1])


def _keep(
    benchmark: Benchmark, rows: list[dict[str, Any]], settings: Settings, everything: bool
) -> None:
    """Writes the results; rows not measured now are kept if of the same day and machine."""
    if not everything:
        kept = read_json(benchmark.name)
        if kept is None or kept["machine"] != machine():
            print("not written: no results of all rows of this day and machine are kept")
            return
        known = {row["name"]: row for row in (*kept["rows"], *rows)}
        rows = [known[name] for name in benchmark.rows() if name in known]
    command = f"python -m benchmarks.{benchmark.name}"
    if settings.limit != Settings.limit:
        command += f" --torch-onnx-limit {settings.limit:g}"
    summary = benchmark.summarize(rows)
    content = {"command": command, "machine": machine(), "summary": summary, "rows": rows}
    write_json(benchmark.name, content)
    write_page()


@contextmanager
def folder_of(name: str, settings: Settings) -> Iterator[str]:
    """Yields the folder of a row's exported models: kept with ``--files``, else temporary."""
    if not settings.files:
        with tempfile.TemporaryDirectory() as folder:
            yield folder
        return
    folder = os.path.join(settings.files, name)
    os.makedirs(folder, exist_ok=True)
    yield folder
