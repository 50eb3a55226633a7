"""Exports models of other people's packages, and compares them in ONNX Runtime.

    python -m benchmarks.field [NAME ...] [--group GROUP] [--limit SECONDS] [--jobs N] [--missing]

Each model is one row, in a process of its own. The example has batch 1; outputs are compared with
PyTorch's at its size and at another one. If a row is not right and ``fixes`` has the fix that its
message offers, the model is exported once more with it. ``torch.export`` and torch.onnx get the
same module, inputs and dynamic dimensions. Results are written after every row; other stored rows
stay.
Needs the packages of ``benchmarks/field/requirements.txt``: ``python -m nox -s field``.
"""

from __future__ import annotations

import os
from concurrent.futures import ThreadPoolExecutor, as_completed
from typing import Any

from benchmarks.field import FIELD, GROUPS, NAME, summarize_field
from benchmarks.field.fixes import FIXES
from benchmarks.field.followed import describe_fix, follow_named_fix
from benchmarks.field.measure import empty_field_row, measure_named_row
from benchmarks.isolation import run_isolated
from benchmarks.results import machine, read_json, write_json
from benchmarks.row_options import make_row_parser, parse_row_options
from benchmarks.zoo_models.measure import RIGHT, STAGES

LIMIT = 1800.0
PRELOAD = ("benchmarks.field.preload",)


def main() -> None:
    """Measures the rows that the command line names, and writes the results."""
    parser = make_row_parser(__doc__, GROUPS, LIMIT)
    options = parse_row_options(parser, FIELD, "benchmarks/field")
    done = _read_rows()
    names = [
        name
        for name in options.names or FIELD
        if options.group in (None, FIELD[name].group) and not (options.missing and name in done)
    ]
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    with ThreadPoolExecutor(options.jobs) as pool:
        futures = [pool.submit(_run_row, name, options.peer, options.limit) for name in names]
        for future in as_completed(futures):
            row = future.result()
            done = _store_row(row)
            print(f"{row['name']}: {row['stage']} {row['reason']}".rstrip(), flush=True)
            if "followed" in row:
                followed = row["followed"]
                print(f"  {followed['changed']}: {followed['stage']} {followed['reason']}".rstrip())
    for label, value in summarize_field([done[name] for name in names]).items():
        print(f"{label}: {value}")


def _read_rows() -> dict[str, dict[str, Any]]:
    """Returns the stored rows by name."""
    kept = read_json(NAME)
    return {row["name"]: row for row in kept["rows"]} if kept else {}


def _store_row(row: dict[str, Any]) -> dict[str, dict[str, Any]]:
    """Writes a row beside the stored ones, which another run may have changed; returns all."""
    done = _read_rows()
    before = done.get(row["name"], {})
    kept = {key: before[key] for key in ("torch_onnx",) if key in before}
    done[row["name"]] = {**kept, **row}
    rows = [done[name] for name in FIELD if name in done]
    write_json(NAME, {"machine": machine(), "summary": summarize_field(rows), "rows": rows})
    return done


def _run_row(name: str, peer: bool, limit: float) -> dict[str, Any]:
    """Returns the row, or what there is of it, with the reason, if its process took too long."""
    row, ended, seconds = run_isolated(measure_named_row, (name, peer), limit, PRELOAD)
    if row is None:
        row = {**empty_field_row(FIELD[name]), "reason": ended}
    elif ended and "plain" not in row["seconds"]:
        row["torch_export"] = ended
    row = {**row, "wall_seconds": seconds}
    if row["stage"] != RIGHT and name in FIXES:
        followed, ended, _ = run_isolated(follow_named_fix, (name,), limit, PRELOAD)
        row["followed"] = followed or {
            "changed": describe_fix(FIXES[name]),
            "stage": STAGES[0],
            "reason": ended,
        }
    return row


if __name__ == "__main__":
    main()
