"""How long an export takes, against the capture alone and against torch.onnx.

    python -m benchmarks.export_time [NAME ...] [--torch-onnx-limit SECONDS]

Every model runs in a process of its own. In it, after one warm-up each, three things alternate:

* ``plain``: ``torch.export.export`` of the model, as PyTorch ships it;
* ``ours``: ``onnx_aot.export`` with saving;
* ``peer``: ``torch.onnx.export(dynamo=True)`` with saving.

The median of each is kept, in seconds of wall time and of CPU time; what is reported are ratios.
Where plain ``torch.export`` refuses the dimensions that are asked for, the baseline and the peer
have them fixed; such rows are shown with a remark and do not count in the means. Results are
written to ``benchmarks/results/export_time.json`` and ``docs/benchmarks.md``.
"""

from __future__ import annotations

import argparse
import contextlib
import io
import json
import logging
import math
import os
import re
import statistics
import subprocess
import sys
import tempfile
import time
import warnings
from collections.abc import Callable
from typing import Any

from benchmarks.results import machine, read_json, update_page, write_json

LAYERS = (4, 8, 16, 32, 64, 128)
GROWTH_FROM = 16  # layers; below it what does not depend on depth would make growth look flatter
RUNS = 5
SLOW = 5.0  # seconds: from here on fewer runs
TIMEOUT = 3600
COLOURS = re.compile(r"\x1b\[[0-9;]*m")
WAYS = {"plain": "plain capture", "ours": "onnx_aot", "peer": "torch.onnx"}
FIGURES = {
    "to_plain_geomean": "{} / capture, geometric mean",
    "to_plain_cpu_geomean": "{} / capture in CPU time, geometric mean",
    "to_plain_worst": "{} / capture, largest",
    "growth_exponent": "{}, growth exponent",
}


def main() -> None:
    """Runs the models named on the command line, or all of them, and writes the results."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument(
        "names",
        nargs="*",
        help="models; all by default. Rows of some are kept when the others' are of the same day "
        "and machine",
    )
    parser.add_argument("--one", help=argparse.SUPPRESS)
    parser.add_argument(
        "--torch-onnx-limit",
        type=float,
        default=120.0,
        help="skip torch.onnx's warm-up and repetitions above this many seconds",
    )
    arguments = parser.parse_args()
    if arguments.one:
        print(json.dumps(measure(arguments.one, arguments.torch_onnx_limit)))
        return
    rows = []
    for name in arguments.names or all_names():
        row = _in_process(name, arguments.torch_onnx_limit)
        rows.append(row)
        print(_line(row), flush=True)
    summary = summarize(rows)
    print(json.dumps(summary, indent=2))
    if arguments.names:
        rows = _among_the_kept(rows)
    if rows:
        summary = summarize(rows)
        content = {"command": "python -m benchmarks.export_time", "machine": machine()}
        write_json("export_time", {**content, "summary": summary, "rows": rows})
        update_page("export_time", render(rows, summary))


def _among_the_kept(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """All kept rows with these in the place of older ones; none where the machine is another."""
    kept = read_json("export_time")
    if kept is None or kept["machine"] != machine():
        return []
    newer = {row["model"]: row for row in rows}
    return [newer.get(row["model"], row) for row in kept["rows"]]


def all_names() -> list[str]:
    """The catalogue, Linear+ReLU, and Llamas of growing depth."""
    from benchmarks.models import MODELS

    return ["linear_relu", *MODELS, *(f"llama_{n}_layers" for n in LAYERS)]


def _case(name: str) -> Any:
    from benchmarks.models import MODELS
    from benchmarks.models.classic import LINEAR_RELU
    from benchmarks.models.transformer import llama

    if name == "linear_relu":
        return LINEAR_RELU
    if name.endswith("_layers"):
        return llama(int(name.split("_")[1]))
    return MODELS[name]


def _in_process(name: str, limit: float) -> dict[str, Any]:
    command = [sys.executable, "-m", "benchmarks.export_time", "--one", name]
    done = subprocess.run(
        [*command, "--torch-onnx-limit", str(limit)],
        capture_output=True,
        text=True,
        timeout=TIMEOUT,
        check=False,
    )
    if done.returncode != 0:
        raise RuntimeError(f"{name}: {done.stderr[-2000:]}")
    return json.loads(done.stdout.splitlines()[-1])


# --- one model -----------------------------------------------------------------------------------


def measure(name: str, limit: float) -> dict[str, Any]:
    """Medians of the three ways for one model, in this process."""
    import torch

    import onnx_aot
    from onnx_aot.errors import OnnxExporterError

    warnings.simplefilter("ignore")
    logging.disable(logging.WARNING)
    case = _case(name)
    model = case.make()
    args, kwargs = case.example()
    plain_shapes, fixed = _plain_shapes(case, model, args, kwargs)

    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "model.onnx")
        sizes: dict[str, int] = {}

        def plain() -> None:
            torch.export.export(model, args, kwargs, dynamic_shapes=plain_shapes)

        def ours() -> None:
            program = onnx_aot.export(
                model, args, path, kwargs=kwargs, dynamic_shapes=case.dynamic_shapes
            )
            sizes["ours"] = len(program.model.graph)

        def peer() -> None:
            with contextlib.redirect_stdout(io.StringIO()):
                program = torch.onnx.export(
                    model, args, path, kwargs=kwargs, dynamic_shapes=plain_shapes, dynamo=True
                )
            sizes["peer"] = len(program.model.graph)

        ways: dict[str, Callable[[], None]] = {"plain": plain, "ours": ours, "peer": peer}
        times: dict[str, list[tuple[float, float]]] = {way: [] for way in ways}
        errors: dict[str, str] = {}
        if plain_shapes is False:
            ways.pop("plain")
            ways.pop("peer")
            errors["plain"] = errors["peer"] = fixed
        for round_number in range(RUNS + 1):
            for way, run in list(ways.items()):
                if round_number > _rounds(times[way], limit if way == "peer" else 2 * limit):
                    continue
                try:
                    times[way].append(_timed(run))
                except (OnnxExporterError, RuntimeError, AssertionError, KeyError) as error:
                    first = COLOURS.sub("", str(error)).partition("\n")[0]
                    errors[way] = f"{type(error).__name__}: {first}"[:200]
                    del ways[way]
    medians = {way: _median(measured) for way, measured in times.items() if measured}
    return {
        "model": name,
        "baseline": fixed,
        "seconds": {way: wall for way, (wall, _) in medians.items()},
        "cpu_seconds": {way: cpu for way, (_, cpu) in medians.items()},
        "runs": {way: max(len(measured) - 1, 1) for way, measured in times.items() if measured},
        "nodes": sizes,
        "errors": errors,
    }


def _plain_shapes(case: Any, model: Any, args: Any, kwargs: Any) -> tuple[Any, str]:
    """The dynamic shapes that a plain capture takes, and what had to be fixed for it."""
    import torch

    for fixed, note in (
        ((), ""),
        (("seq",), "time fixed for capture and torch.onnx"),
        (("height", "width"), "height and width fixed for capture and torch.onnx"),
    ):
        shapes = _as_hints(case.dynamic_shapes, fixed)
        try:
            torch.export.export(model, args, kwargs, dynamic_shapes=shapes)
        except Exception:  # whatever it refuses
            continue
        return shapes, note
    return False, "plain torch.export refuses the model"


def _as_hints(spec: Any, fixed: tuple[str, ...]) -> Any:
    import torch

    if isinstance(spec, str):
        return torch.export.Dim.STATIC if spec in fixed else torch.export.Dim.DYNAMIC
    if isinstance(spec, dict):
        return {key: _as_hints(value, fixed) for key, value in spec.items()}
    if isinstance(spec, (list, tuple)):
        return type(spec)(_as_hints(value, fixed) for value in spec)
    return spec


def _rounds(measured: list[tuple[float, float]], limit: float) -> int:
    """How many rounds besides the warm-up a way gets, by how long it took so far."""
    if not measured:
        return RUNS
    slowest = max(wall for wall, _ in measured)
    if slowest > limit:
        return 0
    return 2 if slowest > SLOW else RUNS


def _timed(run: Callable[[], None]) -> tuple[float, float]:
    wall, cpu = time.perf_counter(), time.process_time()
    run()
    return time.perf_counter() - wall, time.process_time() - cpu


def _median(measured: list[tuple[float, float]]) -> tuple[float, float]:
    """Over all but the warm-up, which is all there is for what is very slow."""
    counted = measured[1:] or measured
    return (
        statistics.median(wall for wall, _ in counted),
        statistics.median(cpu for _, cpu in counted),
    )


# --- results -------------------------------------------------------------------------------------


def summarize(rows: list[dict[str, Any]]) -> dict[str, Any]:
    """Geometric means of the ratios to the plain capture, and exponents of growth with depth."""
    summary: dict[str, Any] = {}
    catalogue = [row for row in rows if row["model"] != "linear_relu" and not row["baseline"]]
    for way in ("ours", "peer"):
        ratios = [r for row in catalogue if (r := _ratio(row, way)) is not None]
        cpu = [r for row in catalogue if (r := _ratio(row, way, "cpu_seconds")) is not None]
        if ratios:
            summary[f"{way}_to_plain_geomean"] = _geomean(ratios)
            summary[f"{way}_to_plain_cpu_geomean"] = _geomean(cpu)
            summary[f"{way}_to_plain_worst"] = max(ratios)
    for way in ("plain", "ours", "peer"):
        exponent = _growth_exponent(rows, way)
        if exponent is not None:
            summary[f"{way}_growth_exponent"] = exponent
    return {key: round(value, 3) for key, value in summary.items() if value is not None}


def _ratio(row: dict[str, Any], way: str, key: str = "seconds") -> float | None:
    seconds = row[key]
    return seconds[way] / seconds["plain"] if way in seconds and "plain" in seconds else None


def _geomean(values: list[float]) -> float:
    return math.exp(statistics.fmean(map(math.log, values)))


def _growth_exponent(rows: list[dict[str, Any]], way: str) -> float | None:
    """Least-squares slope of log(seconds) over log(layers), where layers outweigh the rest."""
    points = [
        (layers, row["seconds"][way])
        for row in rows
        if row["model"].endswith("_layers") and way in row["seconds"]
        if (layers := int(row["model"].split("_")[1])) >= GROWTH_FROM
    ]
    if len(points) < 2:
        return None
    xs = [math.log(n) for n, _ in points]
    ys = [math.log(s) for _, s in points]
    mean_x, mean_y = statistics.fmean(xs), statistics.fmean(ys)
    top = sum((x - mean_x) * (y - mean_y) for x, y in zip(xs, ys, strict=True))
    return top / sum((x - mean_x) ** 2 for x in xs)


def _line(row: dict[str, Any]) -> str:
    parts = [f"{row['model']:34}"]
    for way in ("plain", "ours", "peer"):
        seconds = row["seconds"].get(way)
        parts.append(f"{way} {seconds:8.3f} s" if seconds is not None else f"{way}        - ")
    for way in ("ours", "peer"):
        ratio = _ratio(row, way)
        parts.append(f"{way}/plain {ratio:6.2f}" if ratio is not None else f"{way}/plain      -")
    if row["baseline"]:
        parts.append(f"({row['baseline']})")
    return "  ".join(parts)


def render(rows: list[dict[str, Any]], summary: dict[str, Any]) -> str:
    """The table for the documentation."""
    lines = [
        "| Model | Plain capture, s | onnx_aot / capture | torch.onnx / capture | "
        "Nodes, onnx_aot | Nodes, torch.onnx | Remark |",
        "| --- | ---: | ---: | ---: | ---: | ---: | --- |",
    ]
    for row in rows:
        plain = row["seconds"].get("plain")
        remark = row["baseline"] or "; ".join(
            f"{WAYS[way]}: {error}" for way, error in row["errors"].items()
        )
        cells = [
            row["model"],
            "-" if plain is None else f"{plain:.2f}",
            _number(_ratio(row, "ours")),
            _number(_ratio(row, "peer")),
            str(row["nodes"].get("ours", "-")),
            str(row["nodes"].get("peer", "-")),
            remark.replace("|", "\\|"),
        ]
        lines.append("| " + " | ".join(cells) + " |")
    facts = "\n".join(
        f"| {label.format(WAYS[way])} | {summary[f'{way}_{key}']} |"
        for key, label in FIGURES.items()
        for way in WAYS
        if f"{way}_{key}" in summary
    )
    return "\n".join(lines) + "\n\n| Figure | Value |\n| --- | ---: |\n" + facts


def _number(ratio: float | None) -> str:
    return "-" if ratio is None else f"{ratio:.2f}"


if __name__ == "__main__":
    main()
