"""Exports models of other people's packages, and compares them in ONNX Runtime.

    python -m benchmarks.field [NAME ...] [--group GROUP] [--limit SECONDS] [--jobs N] [--missing]

Each model is one row, in a process of its own. The example has batch 1; outputs are compared with
PyTorch's at its size and at another one. If a row is not right and ``fixes`` has the fix that its
message offers, the model is exported once more with it. ``torch.export`` and torch.onnx get the
same module, inputs and dynamic dimensions. The rows are a sweep in ``artifacts/field``, whose page
shows them; ``--missing`` goes on with it. Other stored rows stay.
Needs the packages of ``benchmarks/field/requirements.txt``: ``python -m nox -s field``.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from typing import Any

from benchmarks.field import FIELD, GROUPS, NAME, summarize_field
from benchmarks.field.fixes import FIXES
from benchmarks.field.rows import LIMIT, followed_of, make_plan, row_of
from benchmarks.results import ROOT, machine, read_json, write_json
from benchmarks.row_options import make_row_parser, parse_row_options
from benchmarks.zoo_models.measure import RIGHT
from onnx_aot import sweep


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
    if names:
        measured = [row_of(result) for result in _sweep(names, options)]
        failing = [r["name"] for r in measured if r["stage"] != RIGHT and r["name"] in FIXES]
        followed = {}
        if failing:
            swept = _sweep(failing, options, follow=True)
            followed = {result.name: followed_of(result) for result in swept}
        for row in measured:
            print(f"{row['name']}: {row['stage']} {row['reason']}".rstrip())
            if row["name"] in followed:
                row["followed"] = fix = followed[row["name"]]
                print(f"  {fix['changed']}: {fix['stage']} {fix['reason']}".rstrip())
        done = _store_rows(measured)
    for label, value in summarize_field([done[name] for name in names]).items():
        print(f"{label}: {value}")


def _sweep(
    names: Sequence[str], options: argparse.Namespace, follow: bool = False
) -> list[sweep.Result]:
    """Runs rows; ``--missing`` goes on with a run that was interrupted."""
    plan = make_plan(names, peer=options.peer, follow=follow, limit=options.limit)
    folder = ROOT / "artifacts" / ("field-followed" if follow else "field")
    swept = sweep.run(plan, folder, jobs=options.jobs, again=not options.missing)
    return [result for result in swept.results if result.name in names]


def _read_rows() -> dict[str, dict[str, Any]]:
    """Returns the stored rows by name."""
    kept = read_json(NAME)
    return {row["name"]: row for row in kept["rows"]} if kept else {}


def _store_rows(measured: Sequence[dict[str, Any]]) -> dict[str, dict[str, Any]]:
    """Writes rows beside the stored ones, which another run may have changed; returns all."""
    done = _read_rows()
    for row in measured:
        before = done.get(row["name"], {})
        kept = {key: before[key] for key in ("torch_onnx",) if key in before}
        done[row["name"]] = {**kept, **row}
    rows = [done[name] for name in FIELD if name in done]
    write_json(NAME, {"machine": machine(), "summary": summarize_field(rows), "rows": rows})
    return done


if __name__ == "__main__":
    main()
