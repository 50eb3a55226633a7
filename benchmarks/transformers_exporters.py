"""Measures which models transformers' own ONNX exporter exports correctly.

    python -m benchmarks.transformers_exporters [NAME ...] [--limit SECONDS] [--way WAY ...]

transformers captures a model with ``torch.export`` and calls ``torch.onnx.export`` with the
program. For torch.onnx, it temporarily replaces functions of torch and of models, rewrites the
captured graph, and adds its own translations. Each row is exported with and without these patches,
by torch.onnx and by onnx_aot in its place (``onnx_aot.install``), each time in a new process. Then
the outputs are compared with PyTorch's at the size of the example and at another one.
"""

from __future__ import annotations

import argparse
import multiprocessing
import os
from collections.abc import Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from typing import Any

from benchmarks.results import machine, read_kept_rows, write_json
from benchmarks.tables import table

__all__ = ["NAME", "main", "render", "summarize"]

NAME = "transformers_exporters"
LIMIT = 600.0
IMPORTED = ("torch._dynamo", "onnxscript", "transformers.exporters.exporter_onnx")
"""Modules that every way imports; importing them takes seconds."""


def main() -> None:
    """Measures the rows that the command line names, and writes the results."""
    from benchmarks.zoo_models.through_transformers import ROWS, WAYS

    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("names", nargs="*", metavar="NAME", help="rows; all by default")
    parser.add_argument("--way", action="append", choices=list(WAYS), help="all by default")
    parser.add_argument("--limit", type=float, default=LIMIT, help="seconds that a way may take")
    options = parser.parse_args()
    unknown = [name for name in options.names if name not in ROWS]
    if unknown:
        parser.error(f"no rows {', '.join(unknown)}; there are {', '.join(ROWS)}")
    os.environ.setdefault("OMP_NUM_THREADS", "1")  # before the first import of torch in a child
    done = read_kept_rows(NAME)
    for name in options.names or ROWS:
        ways = done.setdefault(name, {"name": name, "ways": {}})["ways"]
        for label in options.way or WAYS:
            ways[label] = _in_process(name, label, options.limit)
            print(
                f"{name}, {label}: {ways[label]['stage']} {ways[label]['reason']}".rstrip(),
                flush=True,
            )
        rows = [done[name] for name in ROWS if name in done]
        write_json(NAME, {"machine": machine(), "summary": summarize(rows), "rows": rows})


def _in_process(name: str, label: str, limit: float) -> dict[str, Any]:
    """Measures one row in a new process, because exporters register classes and patch functions."""
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["benchmarks.zoo_models.preload", *IMPORTED])
    with ProcessPoolExecutor(1, mp_context=context) as pool:
        try:
            return pool.submit(_measure, name, label, limit).result()
        except BrokenProcessPool:
            return {"stage": "nothing", "reason": "the process ended", "fixed": []}


def _measure(name: str, label: str, limit: float) -> dict[str, Any]:
    import warnings

    import transformers

    from benchmarks.timing import TooSlow, time_limit
    from benchmarks.zoo_models.through_transformers import WAYS, measure

    warnings.simplefilter("ignore")
    transformers.logging.set_verbosity_error()
    try:
        with time_limit(limit):
            return measure(name, WAYS[label])
    except TooSlow as error:
        return {"stage": "nothing", "reason": str(error), "fixed": []}


def summarize(rows: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Counts exported rows and right ones, among the rows that were measured in all ways."""
    from benchmarks.zoo_models.through_transformers import STAGES, WAYS

    whole = [row for row in rows if row["ways"].keys() == WAYS.keys()]
    summary: dict[str, Any] = {"models": len(whole)}
    for label in WAYS:
        stages = [row["ways"][label]["stage"] for row in whole]
        summary[label] = {
            "exported": sum(stage != STAGES[0] for stage in stages),
            "right at both sizes": sum(stage == STAGES[-1] for stage in stages),
        }
    return summary


def render(rows: Sequence[Mapping[str, Any]], summary: Mapping[str, Any]) -> str:
    """Returns tables of the shares and of the rows that are not right."""
    from benchmarks.zoo_models.through_transformers import STAGES, WAYS

    shares = [
        (label, *(f"{counts[key]} of {summary['models']}" for key in counts))
        for label, counts in summary.items()
        if label in WAYS
    ]
    failures = [
        (f"`{row['name']}`", label, f"{found['stage']}: {found['reason']}")
        for row in rows
        for label, found in row["ways"].items()
        if found["stage"] != STAGES[-1]
    ]
    parts = [table(("Way", "exported", "right at both sizes"), shares)]
    if failures:
        parts.append(table(("Model", "Way", "Remark"), failures))
    return "\n\n".join(parts)


if __name__ == "__main__":
    main()
