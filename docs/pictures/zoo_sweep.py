"""Makes the page of a sweep from the stored results of the zoo, on two releases of torch."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from benchmarks.results import read_json
from benchmarks.zoo_models.measure import RIGHT, STAGES
from onnx_aot.sweep.page import write_page
from onnx_aot.sweep.results import Results
from onnx_aot.sweep.rows import Outcome, Row

__all__ = ["write_zoo_page"]

BEGUN = 1.79e9  # seconds since 1970; the results have days only
CORES = 2


def write_zoo_page(folder: Path) -> Path:
    """Writes the page into a folder; rows follow one another on two cores."""
    with Results(folder, create=True) as results:
        for name in ("zoo", "zoo-torch-2.15"):
            stored = read_json(name)
            rows = [(_row(row), "key") for row in stored["rows"]]
            versions = {**stored["machine"]["packages"], "python": stored["machine"]["python"]}
            run = results.begin_run("the zoo", "two cores", versions, rows, 0, resume=False)
            free = [0.0] * CORES
            for (row, key), measured in zip(rows, stored["rows"], strict=True):
                core = free.index(min(free))
                outcome = _outcome(measured)
                outcome.started = BEGUN + 86400 * run + free[core]
                free[core] += outcome.seconds
                results.add(run, row, key, outcome, 1, str(folder / "rows" / row.name))
            results.end_run(run)
        write_page(results, folder / "index.html")
    return folder / "index.html"


def _row(measured: dict[str, Any]) -> Row:
    return Row(measured["name"], model=measured["name"], options={"group": measured["group"]})


def _outcome(measured: dict[str, Any]) -> Outcome:
    reached = STAGES.index(measured["stage"])
    status = "right" if measured["stage"] == RIGHT else "refused" if reached < 3 else "wrong"
    found = Outcome(measured["name"], status, measured["stage"], reason=measured["reason"])
    found.seconds, found.worker = measured.get("wall_seconds", 0.0), "local"
    found.metrics = {
        "nodes": measured["nodes"].get("ours"),
        "max_absolute": measured["max_absolute"],
        "export_cpu_seconds": measured["seconds"].get("ours"),
    }
    return found
