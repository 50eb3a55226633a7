"""Models of other people's packages: ``python -m benchmarks.field``, one file per field."""

from __future__ import annotations

from typing import Any

from benchmarks.field import (
    audio,
    drawn,
    lot,
    lot_policies,
    lot_signals,
    molecules,
    pictures,
    science,
    second_lot,
    sequences,
    synthesis,
    tables,
    text,
    vision,
)
from benchmarks.field.case import FieldCase
from benchmarks.field.not_tried import NOT_TRIED

__all__ = ["FIELD", "GROUPS", "NAME", "NOT_TRIED", "FieldCase", "summarize_field"]

NAME = "field"

_CASES = (
    *audio.CASES,
    *synthesis.CASES,
    *vision.CASES,
    *pictures.CASES,
    *science.CASES,
    *molecules.CASES,
    *tables.CASES,
    *sequences.CASES,
    *text.CASES,
    *drawn.CASES,
    *lot.CASES,
    *lot_policies.CASES,
    *lot_signals.CASES,
    *second_lot.CASES,
)

FIELD: dict[str, FieldCase] = {case.name: case for case in _CASES}

if len(FIELD) < len(_CASES):
    raise ValueError("two rows have one name")

GROUPS = tuple(dict.fromkeys(case.group for case in _CASES))


def summarize_field(rows: list[dict[str, Any]]) -> dict[str, Any]:
    """Counts the rows by outcome, with the speed of this package and of plain capture."""
    from benchmarks.timing import geomean
    from benchmarks.zoo_models.measure import RIGHT

    def count_right(members: list[dict[str, Any]]) -> int:
        return sum(row["stage"] == RIGHT for row in members)

    dynamic = [row for row in rows if not row["torch_export"]]
    static = [row for row in rows if row["torch_export"] and not row["torch_static"]]
    neither = [row for row in rows if row["torch_export"] and row["torch_static"]]
    trained = [row for row in rows if row["weights"]]
    peers = [row["torch_onnx"] for row in rows if "torch_onnx" in row]
    right = [row for row in rows if row["stage"] == RIGHT]
    followed = [row["followed"] for row in rows if "followed" in row]
    summary: dict[str, Any] = {
        "models": len(rows),
        "packages": len({row["package"] for row in rows}),
        "right at both sizes": len(right),
        "not right, and the fix of the message was followed": len(followed),
        "right after that": count_right(followed),
        "with trained weights": len(trained),
        "with trained weights, right": count_right(trained),
        "plain capture keeps the dimensions": len(dynamic),
        "plain capture keeps the dimensions, right": count_right(dynamic),
        "plain capture takes the model statically only": len(static),
        "plain capture takes the model statically only, right": count_right(static),
        "plain capture refuses the model": len(neither),
        "plain capture refuses the model, right": count_right(neither),
        "given to torch.onnx": len(peers),
        "given to torch.onnx, right": count_right(peers),
        "warnings per correct export": round(
            sum(len(row["warnings"]) for row in right) / max(len(right), 1), 2
        ),
    }
    timed = [row["seconds"] for row in right if not row["torch_export"]]
    if timed:
        ratio = geomean([way["ours"] / way["plain"] for way in timed])
        summary["CPU time of the export / plain capture, geometric mean"] = round(ratio, 2)
    return summary
