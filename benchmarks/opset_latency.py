"""Measures the latency of our own models by opset, to choose the default one.

    python -m benchmarks.opset_latency [NAME ...]

Each model is exported at every opset of ``OPSETS``. The files run alternately in one process on the
same inputs, with one thread. Newer opsets have operators for what older ones write out: attention,
rotary embeddings and RMS normalization since 23, and the runtime may compute them faster or slower.
"""

from __future__ import annotations

import dataclasses
import os
from typing import Any

from benchmarks import ways
from benchmarks.latency import make_feeds, time_samples
from benchmarks.run import Benchmark, Settings, folder_of, run
from benchmarks.subjects import QUICK, case_of, catalogue
from benchmarks.tables import facts, number, table
from benchmarks.timing import geomean, median

OPSETS = (17, 20, 23, 25)
DEFAULT = 20
SPEND = 2.5  # seconds per model
APART = 0.03
"""Share by which a file has to be faster or slower to count."""


def main() -> None:
    """Runs the command line of this benchmark."""
    run(BENCHMARK)


def measure(name: str, settings: Settings) -> dict[str, Any]:
    """Measures the median of each opset's file in this process, and the number of its nodes."""
    import onnx

    case = case_of(name)
    subject = ways.make_subject(case)
    with folder_of(f"{name}-opsets", settings) as folder:
        paths, nodes = {}, {}
        for opset in OPSETS:
            path = os.path.join(folder, f"{opset}.onnx")
            changed = dataclasses.replace(
                subject, options={**subject.options, "opset_version": opset}
            )
            changed.ours(path)
            paths[str(opset)] = path
            nodes[str(opset)] = len(onnx.load(path, load_external_data=False).graph.node)
        feeds = make_feeds(paths[str(DEFAULT)], subject.args, subject.kwargs)
        spend = 0.3 if settings.quick else SPEND
        found = time_samples(paths, dict.fromkeys(paths, feeds), 1, spend)
    seconds = {opset: median(found[opset, 0] + found[opset, 1]) for opset in paths}
    return {"seconds": seconds, "nodes": nodes}


def ratio(row: dict[str, Any], opset: int) -> float:
    """Latency at an opset over that at the default one."""
    seconds: dict[str, float] = row["seconds"]
    return seconds[str(opset)] / seconds[str(DEFAULT)]


def summarize(rows: list[dict[str, Any]]) -> dict[str, Any]:
    """Returns the mean of the ratios at each opset, and how many models it changes."""
    summary: dict[str, Any] = {}
    for opset in OPSETS:
        if rows and opset != DEFAULT:
            ratios = [ratio(row, opset) for row in rows]
            mean = f"opset {opset} / opset {DEFAULT}, geometric mean of {len(rows)} models"
            summary[mean] = round(geomean(ratios), 3)
            faster = f"opset {opset}: models faster by more than {APART:.0%}"
            summary[faster] = sum(r < 1 - APART for r in ratios)
            slower = f"opset {opset}: models slower by more than {APART:.0%}"
            summary[slower] = sum(r > 1 + APART for r in ratios)
    return summary


def render(rows: list[dict[str, Any]], summary: dict[str, Any]) -> str:
    """Returns the tables for the documentation."""
    others = [opset for opset in OPSETS if opset != DEFAULT]
    head = ["Model", f"Opset {DEFAULT}, ms", "Nodes"]
    for opset in others:
        head += [f"Opset {opset} / {DEFAULT}", "Nodes"]
    body = []
    for row in rows:
        nodes = row["nodes"]
        milliseconds = number(1e3 * row["seconds"][str(DEFAULT)], 3)
        cells = [row["name"], milliseconds, str(nodes[str(DEFAULT)])]
        for opset in others:
            cells += [number(ratio(row, opset)), str(nodes[str(opset)])]
        body.append(cells)
    return "\n\n".join((facts(summary), table(head, body)))


BENCHMARK = Benchmark("opset_latency", catalogue, QUICK, measure, summarize)

if __name__ == "__main__":
    main()
