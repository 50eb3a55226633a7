"""Measures which language models of transformers generate the same tokens when exported.

    python -m benchmarks.decoders [NAME ...] [--limit SECONDS] [--jobs N] [--missing]

The rows are all model types of transformers' mappings for text generation, each with small random
weights, in a process of its own. ``export_decoder``, and ``export_encoder`` where there is one,
export it; then ``Decoder`` generates in ONNX Runtime, and ``model.generate`` in PyTorch. The
rows are a sweep in ``artifacts/decoders``; ``--missing`` goes on with it. Stored rows of the same
day and machine stay.
"""

from __future__ import annotations

import argparse
from collections.abc import Mapping, Sequence
from typing import Any

from benchmarks.results import ROOT, machine, read_kept_rows, write_json
from benchmarks.tables import facts, table
from onnx_aot import sweep

__all__ = ["NAME", "main", "measure_row", "render", "summarize"]

NAME = "decoders"
LIMIT, MEMORY = 300.0, 10 << 30
PRELOAD = ("benchmarks.zoo_models.preload", "onnx_aot.generation.exports")


def main() -> None:
    """Measures the rows that the command line names, and writes the results."""
    from benchmarks.zoo_models.generating import model_types

    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("names", nargs="*", metavar="NAME", help="rows; all by default")
    parser.add_argument("--limit", type=float, default=LIMIT, help="seconds that a row may take")
    parser.add_argument("--jobs", type=int, default=1, help="processes at a time")
    parser.add_argument("--missing", action="store_true", help="only rows without a result")
    options = parser.parse_args()
    known = list(model_types())
    unknown = [name for name in options.names if name not in known]
    if unknown:
        parser.error(f"no rows {', '.join(unknown)}; there are {', '.join(known)}")
    done = read_kept_rows(NAME)
    names = [name for name in options.names or known if not (options.missing and name in done)]
    limits = sweep.Limits(seconds=options.limit, memory=MEMORY)
    task = "benchmarks.decoders:measure_row"
    rows = [sweep.Row(name, task, {"name": name}, model=name, limits=limits) for name in names]
    if rows:
        plan = sweep.Plan(tuple(rows), preload=PRELOAD, folder=str(ROOT), name="language models")
        folder = ROOT / "artifacts" / NAME
        swept = sweep.run(plan, folder, jobs=options.jobs, again=not options.missing)
        done |= {result.name: _row_of(result) for result in swept.results}
    kept = [done[name] for name in known if name in done]
    write_json(NAME, {"machine": machine(), "summary": summarize(kept), "rows": kept})
    for label, value in summarize(kept).items():
        print(f"{label}: {value}")


def measure_row(settings: dict[str, Any], progress: sweep.Progress) -> dict[str, Any]:
    """Measures a row in its own process."""
    import transformers

    from benchmarks.zoo_models.generating import NOTHING, generate_both

    transformers.logging.set_verbosity_error()  # type: ignore[no-untyped-call]
    found = generate_both(settings["name"])
    outcome = found["outcome"]
    status = "failed" if outcome == NOTHING else outcome
    return {"status": status, "reason": found["reason"], "row": found}


def _row_of(result: sweep.Result) -> dict[str, Any]:
    """The row as ``benchmarks/results`` keeps it, also if its process ended without one."""
    row = result.metrics.get("row") or {"outcome": result.status, "reason": result.reason}
    return {"name": result.name, **row, "seconds": round(result.seconds, 1)}


def summarize(rows: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Counts the rows, and those whose tokens are right."""
    from benchmarks.zoo_models.generating import NOTHING, RIGHT, WRONG

    compared = [row for row in rows if row["outcome"] != NOTHING]
    right = [row for row in compared if row["outcome"] == RIGHT]
    return {
        "model types": len(rows),
        "small model that generates in PyTorch": len(compared),
        "of these the same tokens": len(right),
        "of these only with by_token=True": sum(bool(row["reason"]) for row in right),
        "of these other tokens": sum(row["outcome"] == WRONG for row in compared),
    }


def render(rows: Sequence[Mapping[str, Any]], summary: Mapping[str, Any]) -> str:
    """Returns tables of the counts and of the rows that need a remark."""
    from benchmarks.zoo_models.generating import NOTHING, RIGHT

    counts = facts(summary)
    shown = [row for row in rows if row["outcome"] != NOTHING and row["reason"]]
    remarks = [
        (f"`{row['name']}`", f"{row['outcome']}: {row['reason']}")
        for row in sorted(shown, key=lambda row: row["outcome"] != RIGHT)
    ]
    parts = [counts, table(("Model", "Remark"), remarks)] if remarks else [counts]
    none = [f"`{row['name']}`" for row in rows if row["outcome"] == NOTHING]
    if none:
        parts.append(f"Nothing to compare: {', '.join(none)}.")
    return "\n\n".join(parts)


if __name__ == "__main__":
    main()
