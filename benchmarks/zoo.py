"""Measures which architectures export, and whether the models are right in ONNX Runtime.

    python -m benchmarks.zoo [NAME ...] [--group GROUP] [--limit SECONDS] [--jobs N] [--missing]

Each architecture is one row, with small random weights and dynamic batch and length, or height and
width. Each runs in a process of its own, which is killed after ``--limit`` seconds. Its outputs are
compared with PyTorch's at the size of the example and at another one, with the tolerances of the
package. A dynamic dimension that neither ``torch.export`` nor this package accepts is fixed.
torch.onnx gets the capture of ``torch.export``; its model is compared and timed in the same way.
The rows are a sweep in ``artifacts/zoo``, whose page shows them; ``--missing`` goes on with it.
Stored rows of the same day and machine stay.

    onnx-aot sweep benchmarks.zoo:make_plan -o FOLDER    exports and compares, without torch.onnx
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from benchmarks.results import ROOT, machine, read_kept_rows, write_json
from benchmarks.row_options import make_row_parser, parse_row_options
from onnx_aot import sweep

__all__ = [
    "LATENCY_RATIO",
    "NAME",
    "TIME_RATIO",
    "main",
    "make_plan",
    "measure_row",
    "row_of",
    "summarize",
]

NAME = "zoo"
LIMIT = 400.0
PRELOAD = ("benchmarks.zoo_models.preload",)

TIME_RATIO = "CPU time of the export / plain capture, geometric mean"
LATENCY_RATIO = "latency / latency of torch.onnx's model, geometric mean"


def main() -> None:
    """Measures the rows that the command line names, and writes the results."""
    from benchmarks.zoo_models import GROUPS, ZOO

    parser = make_row_parser(__doc__, GROUPS, LIMIT)
    parser.add_argument("--results", default=NAME, help="name of the file in benchmarks/results")
    options = parse_row_options(parser, ZOO, "benchmarks/zoo_models")
    kept = read_kept_rows(options.results)
    done = {name: row for name, row in kept.items() if row["stage"] != "nothing"}
    names = [
        name
        for name in options.names or ZOO
        if options.group in (None, ZOO[name].group) and not (options.missing and name in done)
    ]
    if names:
        plan = make_plan(names, plain=True, peer=options.peer, limit=options.limit)
        folder = ROOT / "artifacts" / options.results
        swept = sweep.run(plan, folder, jobs=options.jobs, again=not options.missing)
        done |= {result.name: row_of(result) for result in swept.results}
    rows = [done[name] for name in ZOO if name in done]
    results = {"machine": machine(), "summary": summarize(rows), "rows": rows}
    write_json(options.results, results)
    for label, value in summarize([done[name] for name in names]).items():
        print(f"{label}: {value}")


def make_plan(
    names: Sequence[str] | None = None,
    plain: bool = False,
    peer: bool = False,
    compare: bool = True,
    limit: float = LIMIT,
) -> sweep.Plan:
    """Returns the plan of a sweep: a row per architecture.

    Args:
        names: Names of architectures; None: all.
        plain: Whether ``torch.export`` captures each too.
        peer: Whether torch.onnx exports that capture too.
        compare: Whether the models are compared with PyTorch; otherwise they are only exported.
        limit: Seconds that a row may take.
    """
    from benchmarks.zoo_models import ZOO

    rows = [
        sweep.Row(
            name,
            task="benchmarks.zoo:measure_row",
            settings={"name": name, "plain": plain, "peer": peer, "compare": compare},
            model=name,
            options={"group": ZOO[name].group},
            limits=sweep.Limits(seconds=limit),
        )
        for name in names or ZOO
    ]
    return sweep.Plan(tuple(rows), preload=PRELOAD, folder=str(ROOT), name="the zoo")


def measure_row(settings: dict[str, Any], progress: sweep.Progress) -> dict[str, Any]:
    """Measures a row in its own process; ``row`` is what ``benchmarks/results`` keeps."""
    from benchmarks.zoo_models import ZOO
    from benchmarks.zoo_models.measure import RIGHT, measure, result_of

    asked = {key: value for key, value in settings.items() if key != "name"}
    row = measure(ZOO[settings["name"]], **asked)
    return result_of(row, RIGHT if settings["compare"] else "exported")


def row_of(result: sweep.Result) -> dict[str, Any]:
    """The row as ``benchmarks/results`` keeps it, also if its process ended without one."""
    from benchmarks.zoo_models import ZOO
    from benchmarks.zoo_models.measure import empty_row

    row = result.metrics.get("row") or {**empty_row(ZOO[result.name]), "reason": result.reason}
    return {**row, "wall_seconds": round(result.seconds, 1)}


def summarize(rows: list[dict[str, Any]]) -> dict[str, Any]:
    """Counts the rows, and returns figures over those that are right."""
    from benchmarks.timing import geomean
    from benchmarks.zoo_models.measure import RIGHT

    counted = [row for row in rows if not row["torch_export"]]
    refused = [row for row in rows if row["torch_export"]]
    right = [row for row in rows if row["stage"] == RIGHT]
    seconds = [row["seconds"] for row in right if len(row["seconds"]) == 2]
    peers = [row["torch_onnx"] for row in counted if row.get("torch_onnx")]
    latencies = [peer["latency"] for peer in peers if "latency" in peer]
    summary: dict[str, Any] = {
        "architectures": len(rows),
        "torch.export captures": len(counted),
        "of these right at both sizes": _count_right(counted),
        "given to torch.onnx": len(peers),
        "of these right with torch.onnx": _count_right(peers),
        "torch.export refuses": len(refused),
        "of these right at both sizes all the same": _count_right(refused),
    }
    if seconds:
        ratio = geomean([way["ours"] / way["plain"] for way in seconds])
        summary[TIME_RATIO] = round(ratio, 2)
    if latencies:
        ratio = geomean([way["ours"] / way["peer"] for way in latencies])
        summary[LATENCY_RATIO] = round(ratio, 2)
    return summary


def _count_right(rows: list[dict[str, Any]]) -> int:
    from benchmarks.zoo_models.measure import RIGHT

    return sum(row["stage"] == RIGHT for row in rows)


if __name__ == "__main__":
    main()
