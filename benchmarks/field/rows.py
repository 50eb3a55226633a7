"""Rows of a sweep: a model of the field suite each, in a process of its own.

onnx-aot sweep benchmarks.field.rows:make_plan -o FOLDER
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from benchmarks.field import FIELD
from benchmarks.field.fixes import FIXES
from benchmarks.field.followed import describe_fix, follow_fix
from benchmarks.field.measure import empty_field_row, measure_field_row
from benchmarks.results import ROOT
from benchmarks.zoo_models.measure import STAGES, result_of
from onnx_aot import sweep
from onnx_aot.sweep.rows import TIME

__all__ = ["LIMIT", "follow_row", "followed_of", "make_plan", "measure_row", "row_of"]

LIMIT = 1800.0
PRELOAD = ("benchmarks.field.preload",)


def make_plan(
    names: Iterable[str] | None = None,
    peer: bool = False,
    follow: bool = False,
    limit: float = LIMIT,
) -> sweep.Plan:
    """Returns the plan of a sweep: a row per model.

    Args:
        names: Names of models; None: all.
        peer: Whether torch.onnx exports each too.
        follow: Whether the models are exported with the fix that ``fixes`` has for them, instead
            of as they are.
        limit: Seconds that a row may take.
    """
    task = follow_row if follow else measure_row
    rows = [
        sweep.Row(
            name,
            task=f"{__name__}:{task.__name__}",
            settings={"name": name, "peer": peer},
            model=name,
            options={"group": FIELD[name].group},
            limits=sweep.Limits(seconds=limit),
        )
        for name in names or FIELD
    ]
    title = "the field suite, with fixes" if follow else "the field suite"
    return sweep.Plan(tuple(rows), preload=PRELOAD, folder=str(ROOT), name=title)


def measure_row(settings: Mapping[str, Any], progress: sweep.Progress) -> dict[str, Any]:
    """Measures a row in its own process; what there is of ``row`` is kept if the process ends."""
    row = empty_field_row(FIELD[settings["name"]])
    for row in measure_field_row(FIELD[settings["name"]], peer=settings["peer"]):
        progress.note(row=row)
    return result_of(row)


def follow_row(settings: Mapping[str, Any], progress: sweep.Progress) -> dict[str, Any]:
    """Follows the fix for a row in its own process."""
    followed = follow_fix(FIELD[settings["name"]], FIXES[settings["name"]])
    return {**result_of({**empty_field_row(FIELD[settings["name"]]), **followed}), "row": followed}


def row_of(result: sweep.Result) -> dict[str, Any]:
    """The row as ``benchmarks/results`` keeps it, also if its process ended without all of it."""
    row = result.metrics.get("row")
    if row is None:
        row = {**empty_field_row(FIELD[result.name]), "reason": result.reason}
    elif "plain" not in row["seconds"] and result.status in (TIME, "crashed"):
        row["torch_export"] = result.reason
    return {**row, "wall_seconds": round(result.seconds, 1)}


def followed_of(result: sweep.Result) -> dict[str, Any]:
    """Returns ``changed``, ``stage`` and ``reason`` of a row whose fix was followed."""
    unknown = {"changed": describe_fix(FIXES[result.name]), "stage": STAGES[0]}
    followed: dict[str, Any] = result.metrics.get("row") or {**unknown, "reason": result.reason}
    return followed
