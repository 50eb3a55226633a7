"""What every benchmark does alike: a process per row, a table, results that are kept.

    python -m benchmarks.<name> [NAME ...] [--quick] [--torch-onnx-limit SECONDS] [--files FOLDER]

With names, rows of the others are kept when they are of the same day and machine. ``--quick`` takes
few and small rows and few repetitions, and writes nothing. ``--files`` keeps the exported models
there for the benchmarks that come after.
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
    """What the command line says.

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
    """One question.

    Attributes:
        name: Of its script, its results and its part of the page.
        rows: Names of all rows, in order, and ``quick`` those of ``--quick``.
        measure: Answers it for one row, in a process of its own; what it returns is JSON.
        summarize: Figures over all rows.
        peer_gave_up: Whether rows so far, and the limit, say not to try torch.onnx on the next.
    """

    name: str
    rows: Callable[[], Sequence[str]]
    quick: Sequence[str]
    measure: Callable[[str, Settings], dict[str, Any]]
    summarize: Callable[[list[dict[str, Any]]], dict[str, Any]]
    peer_gave_up: Callable[[list[dict[str, Any]], float], bool] = lambda rows, limit: False


def run(benchmark: Benchmark) -> None:
    """The command line of a benchmark. Exits with 1 where a row failed; the others are written."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
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
    """One row, in this process."""
    module = importlib.import_module(f"benchmarks.{benchmark}")
    return {"name": name, **module.BENCHMARK.measure(name, Settings(**settings))}


def in_fresh_process(module: str, function: str, *arguments: Any) -> Any:
    """What a function gives in a new interpreter; arguments and result travel as JSON.

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
    """Writes the results, with kept rows that were not measured now and fit to them."""
    if not everything:
        kept = read_json(benchmark.name)
        if kept is None or kept["machine"] != machine():
            print("not written: no results of all rows of this day and machine are kept")
            return
        newer = {row["name"]: row for row in rows}
        rows = [newer.get(row["name"], row) for row in kept["rows"]]
    command = f"python -m benchmarks.{benchmark.name}"
    if settings.limit != Settings.limit:
        command += f" --torch-onnx-limit {settings.limit:g}"
    summary = benchmark.summarize(rows)
    content = {"command": command, "machine": machine(), "summary": summary, "rows": rows}
    write_json(benchmark.name, content)
    write_page()


@contextmanager
def folder_of(name: str, settings: Settings) -> Iterator[str]:
    """Where the exported models of a row are: kept, or for the moment only."""
    if not settings.files:
        with tempfile.TemporaryDirectory() as folder:
            yield folder
        return
    folder = os.path.join(settings.files, name)
    os.makedirs(folder, exist_ok=True)
    yield folder
