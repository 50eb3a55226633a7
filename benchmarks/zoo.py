"""Measures which architectures export, and whether the models are right in ONNX Runtime.

    python -m benchmarks.zoo [NAME ...] [--group GROUP] [--limit SECONDS] [--jobs N] [--missing]

Each architecture is one row, with small random weights and dynamic batch and length, or height and
width. Each runs in a process of its own, which is killed after ``--limit`` seconds. Its outputs are
compared with PyTorch's at the size of the example and at another one, with the tolerances of the
package. A dynamic dimension that neither ``torch.export`` nor this package accepts is fixed.
torch.onnx gets the capture of ``torch.export``; its model is compared and timed in the same way.
Results are written after every row; stored rows of the same day and machine stay.
"""

from __future__ import annotations

import os
from concurrent.futures import ThreadPoolExecutor, as_completed
from typing import Any

from benchmarks.isolation import run_isolated
from benchmarks.results import machine, read_json, write_json
from benchmarks.row_options import make_row_parser, parse_row_options

__all__ = ["LATENCY_RATIO", "NAME", "TIME_RATIO", "main", "summarize"]

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
    done = _read_kept_rows(options.results)
    names = [
        name
        for name in options.names or ZOO
        if options.group in (None, ZOO[name].group) and not (options.missing and name in done)
    ]
    os.environ.setdefault("OMP_NUM_THREADS", "1")  # before the first import of torch in a child
    with ThreadPoolExecutor(options.jobs) as pool:
        futures = [pool.submit(_in_process, name, options.peer, options.limit) for name in names]
        for future in as_completed(futures):
            row = future.result()
            done[row["name"]] = row
            print(f"{row['name']}: {row['stage']} {row['reason']}".rstrip(), flush=True)
            rows = [done[name] for name in ZOO if name in done]
            results = {"machine": machine(), "summary": summarize(rows), "rows": rows}
            write_json(options.results, results)
    for label, value in summarize([done[name] for name in names]).items():
        print(f"{label}: {value}")


def _read_kept_rows(name: str) -> dict[str, Any]:
    """Rows that were measured on this day and machine, by name, without those at ``nothing``."""
    kept = read_json(name)
    if kept is None or kept["machine"] != machine():
        return {}
    return {row["name"]: row for row in kept["rows"] if row["stage"] != "nothing"}


def _in_process(name: str, peer: bool, limit: float) -> dict[str, Any]:
    """Returns the row, or one with the reason if its process ended early or took too long."""
    from benchmarks.zoo_models import ZOO
    from benchmarks.zoo_models.measure import empty_row

    row, ended, seconds = run_isolated(_measure_row, (name, peer), limit, PRELOAD)
    row = row or {**empty_row(ZOO[name]), "reason": ended}
    return {**row, "wall_seconds": seconds}


def _measure_row(name: str, peer: bool) -> dict[str, Any]:
    """Measures a row in its own process."""
    from benchmarks.zoo_models import ZOO
    from benchmarks.zoo_models.measure import measure

    return measure(ZOO[name], peer=peer)


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
