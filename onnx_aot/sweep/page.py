"""Writes the page of a sweep, one HTML file that loads nothing else."""

from __future__ import annotations

import json
import math
import os
from pathlib import Path
from typing import Any

from onnx_aot.inspection.pages import Assets, embed_json
from onnx_aot.sweep.difference import KINDS, compare_results
from onnx_aot.sweep.results import Result, Results
from onnx_aot.sweep.rows import STATUSES, as_text, first_line

__all__ = ["write_page"]

ASSETS = Assets("onnx_aot.sweep")
LONGEST = 600  # characters of a reason on the page; the report has all


def write_page(results: Results, path: Path) -> None:
    """Writes the page; an existing one is replaced once the new one is complete."""
    text = ASSETS.template("page.html").render(
        style=ASSETS.read("sweep.css"),
        script=ASSETS.read("sweep.js"),
        data=embed_json(_collect(results, path.parent)),
    )
    beside = path.with_name(f".{path.name}.new")
    beside.write_text(text, encoding="utf-8")
    os.replace(beside, path)


def _collect(results: Results, folder: Path) -> dict[str, Any]:
    """Data for the page's script."""
    found = list(results.current())
    runs = results.runs()
    last = runs[-1]
    difference = compare_results(results.before(last["run"]), found)
    options = list(dict.fromkeys(option for result in found for option in result.options))
    several = [o for o in options if len({as_text(r.options.get(o)) for r in found}) > 1]
    missing = results.counts().get("", 0)
    return {
        "plan": last["plan"],
        "engine": last["engine"],
        "versions": json.loads(last["versions"]),
        "runs": [{key: run[key] for key in ("run", "started", "ended", "skipped")} for run in runs],
        "missing": missing,
        "statuses": STATUSES,
        "kinds": KINDS,
        "options": several,
        "rows": [_row(result, several, folder) for result in found],
        "changes": [[change.name, change.kind, change.text] for change in difference.changes],
        "compared": difference.compared,
    }


def _row(result: Result, options: list[str], folder: Path) -> dict[str, Any]:
    row: dict[str, Any] = {
        "name": result.name,
        "model": result.model,
        "status": result.status,
        "stage": result.stage,
        "reason": result.reason[:LONGEST],
        "first": first_line(result.reason)[:200],
        "options": [as_text(result.options.get(option, "")) for option in options],
        "run": result.run,
        "started": round(result.started, 2),
        "seconds": round(result.seconds, 2),
        "memory": result.peak_memory or None,
        "worker": result.worker.partition(":")[0],
        "attempts": result.attempts if result.attempts > 1 else None,
        "nodes": result.nodes,
        "bytes": result.bytes,
        "latency": result.latency_ms,
        "worst": result.max_absolute,
        "metrics": _as_json({k: v for k, v in result.metrics.items() if k != "files"}),
        "files": result.metrics.get("files"),
    }
    if row["files"]:
        row["place"] = _relative(result.artifacts, folder)
    return {key: value for key, value in row.items() if value not in (None, "", {}, [])}


def _relative(place: str, folder: Path) -> str:
    """The address of files as a link on the page."""
    if "://" in place:
        return place
    return Path(os.path.relpath(place, folder)).as_posix()


def _as_json(value: Any) -> Any:
    """A metric with texts for infinity and NaN, which JSON does not have."""
    if isinstance(value, dict):
        return {key: _as_json(each) for key, each in value.items()}
    if isinstance(value, list):
        return [_as_json(each) for each in value]
    return str(value) if isinstance(value, float) and not math.isfinite(value) else value
