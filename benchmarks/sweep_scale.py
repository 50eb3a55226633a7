"""Measures the scheduler and the results of a sweep with rows that do almost nothing.

    python -m benchmarks.sweep_scale [--rows N] [--processes N]

``--rows`` rows of 1 ms go through the scheduler and into the file of results without processes of
their own; ``--processes`` rows that do nothing get one each, on all cores. Results are written to
``benchmarks/results/sweep_scale.json``.
"""

from __future__ import annotations

import argparse
import os
import resource
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from benchmarks.results import machine, write_json
from onnx_aot import sweep
from onnx_aot.sweep import runner
from onnx_aot.sweep.results import FILE
from onnx_aot.sweep.rows import Outcome, Row

__all__ = ["Simulated", "do_nothing", "main", "measure"]

MILLISECOND = 0.001
NAME = "sweep_scale"


class Simulated:
    """An engine whose rows sleep for a millisecond, one after another."""

    description = "simulated"

    def __init__(self) -> None:
        self._row: Row | None = None

    def has_room(self, row: Row) -> bool:  # noqa: ARG002
        return self._row is None

    def submit(self, row: Row) -> None:
        self._row = row

    def collect(self) -> list[Outcome]:
        assert self._row is not None
        row, self._row = self._row, None
        time.sleep(MILLISECOND)
        metrics = {"nodes": 100, "bytes": 10_000, "export_seconds": 0.5, "max_absolute": 1e-6}
        return [Outcome(row.name, "right", "verify", seconds=MILLISECOND, metrics=metrics)]

    def close(self) -> None:
        """Nothing runs."""


def do_nothing(settings: dict[str, Any], progress: sweep.Progress) -> dict[str, Any]:
    """The task of a row whose process is what is measured."""
    return {}


def _plan(rows: int) -> sweep.Plan:
    made = (
        Row(
            f"package.models:net_{number // 4}[opset={18 + number % 4}]",
            task="benchmarks.sweep_scale:do_nothing",
            model=f"package.models:net_{number // 4}",
            options={"opset": 18 + number % 4},
        )
        for number in range(rows)
    )
    return sweep.Plan(tuple(made))


def measure(rows: int) -> dict[str, Any]:
    """Returns rows per second, memory of the driver and size of the files."""
    found: dict[str, Any] = {"rows": rows}
    with tempfile.TemporaryDirectory() as folder:
        runner._make_engine = lambda *_: Simulated()
        for label in ("first run", "nothing changed"):
            begun, cpu = time.perf_counter(), time.process_time()
            sweep.run(_plan(rows), folder, progress=False)
            found[f"{label}: seconds"] = round(time.perf_counter() - begun, 1)
            found[f"{label}: CPU seconds"] = round(time.process_time() - cpu, 1)
        found["rows per second"] = round(rows / found["first run: seconds"])
        found["CPU milliseconds per row"] = round(1000 * found["first run: CPU seconds"] / rows, 3)
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        found["memory of the driver, MB"] = round(
            peak * (1 if sys.platform == "darwin" else 1024) / 1e6
        )
        found["results, MB"] = round(os.path.getsize(Path(folder, FILE)) / 1e6, 1)
        found["page, MB"] = round(os.path.getsize(Path(folder, runner.PAGE)) / 1e6, 1)
    return found


def measure_processes(rows: int) -> dict[str, Any]:
    """Returns rows per second where each has a process."""
    with tempfile.TemporaryDirectory() as folder:
        begun = time.perf_counter()
        sweep.run(_plan(1), folder, progress=False)
        start = time.perf_counter() - begun
        begun = time.perf_counter()
        sweep.run(_plan(rows), folder, progress=False)
        seconds = time.perf_counter() - begun - start
    return {"rows": rows, "seconds": round(seconds, 1), "seconds per row": round(seconds / rows, 4)}


def main() -> None:
    """Measures both, and writes the results."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=100_000)
    parser.add_argument("--processes", type=int, default=1_000)
    options = parser.parse_args()
    forked = measure_processes(options.processes)
    found = measure(options.rows)
    write_json(NAME, {"machine": machine(), "simulated": found, "with processes": forked})
    print(found, forked, sep="\n")


if __name__ == "__main__":
    main()
