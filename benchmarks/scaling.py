"""Measures how export time grows with depth: Llamas of 4 to 256 layers.

    python -m benchmarks.scaling [llama_4_layers ...]

Each depth runs in a process of its own, warmed up with 4 layers; the ways alternate. The exponent
is the least-squares slope of log(seconds) over log(layers), from 16 layers on, where costs that do
not depend on depth no longer matter. torch.onnx is skipped if twice its time at the previous depth
exceeds its limit.
"""

from __future__ import annotations

from typing import Any

from benchmarks import ways
from benchmarks.plots import Plot
from benchmarks.run import Benchmark, Settings, folder_of, run
from benchmarks.stages import seconds_of_stages
from benchmarks.subjects import LAYERS, case_of, llama_name
from benchmarks.tables import facts, number, remark, table
from benchmarks.timing import alternate, exponent, median

GROWTH_FROM = 16
SPEND = {"plain": 12.0, "ours": 12.0, "peer": 0.0}  # seconds; see ``alternate``


def main() -> None:
    """Runs the command line of this benchmark."""
    run(BENCHMARK)


def measure(name: str, settings: Settings) -> dict[str, Any]:
    """Measures the medians of the ways at one depth, in this process."""
    case = case_of(name)
    with folder_of(name, Settings()) as folder, seconds_of_stages() as stages:
        for way, warm_up in ways.make_subject(case_of(llama_name(LAYERS[0]))).ways(folder).items():
            if way != "peer" or settings.peer:
                warm_up()
        subject = ways.make_subject(case, search=False)
        to_call = subject.ways(folder)
        if not settings.peer:
            to_call.pop("peer")
        captures: list[float] = []
        export = to_call["ours"]

        def call_ours() -> None:
            export()
            captures.append(stages["capture"])

        to_call["ours"] = call_ours
        few = {"most": 1} if settings.quick else {"most": 3}
        times, errors = alternate(to_call, SPEND, settings.limit, **few)
    return {
        "layers": int(name.split("_")[1]),
        "seconds": {way: median(t.wall for t in measured) for way, measured in times.items()},
        "runs": {way: len(measured) for way, measured in times.items()},
        "capture_seconds": median(captures),
        "errors": errors,
    }


def summarize(rows: list[dict[str, Any]]) -> dict[str, Any]:
    """Returns the growth exponents."""
    summary = {}
    for part, points in _points_by_part(rows).items():
        deep = {layers: seconds for layers, seconds in points.items() if layers >= GROWTH_FROM}
        if len(deep) > 1:
            label = f"{part}: exponent, {min(deep)} to {max(deep)} layers"
            summary[label] = round(exponent(deep), 3)
    return summary


def _points_by_part(rows: list[dict[str, Any]]) -> dict[str, dict[int, float]]:
    points = {
        label: {row["layers"]: row["seconds"][way] for row in rows if way in row["seconds"]}
        for way, label in ways.LABELS.items()
    }
    points["onnx_aot after its capture"] = {
        row["layers"]: row["seconds"]["ours"] - row["capture_seconds"] for row in rows
    }
    return points


def render(rows: list[dict[str, Any]], summary: dict[str, Any]) -> str:
    """Returns the tables for the documentation."""
    body = []
    for row in rows:
        seconds = row["seconds"]
        ratios = [
            number(seconds[way] / seconds["plain"] if way in seconds else None)
            for way in ("ours", "peer")
        ]
        times = [number(seconds.get(way)) for way in ways.LABELS]
        after = number(seconds["ours"] - row["capture_seconds"])
        body.append([row["layers"], *times, after, *ratios, remark("", row["errors"])])
    head = ["Layers", *(f"{label}, s" for label in ways.LABELS.values())]
    head += ["onnx_aot after its capture, s", "onnx_aot / capture", "torch.onnx / capture"]
    return "\n\n".join(
        (
            facts(summary),
            "![Export time over layers](plots/scaling.svg)",
            table([*head, "Remark"], body),
        )
    )


def plot(rows: list[dict[str, Any]]) -> Plot:
    """Plots seconds over layers."""
    series = {
        label: list(points.items()) for label, points in _points_by_part(rows).items() if points
    }
    return Plot("Llama, growing depth", "seconds", series, "layers", log=True, bound=None)


def _peer_gave_up(rows: list[dict[str, Any]], limit: float) -> bool:
    last = rows[-1]["seconds"].get("peer") if rows else 0.0
    return last is None or 2 * last > limit


BENCHMARK = Benchmark(
    "scaling",
    lambda: [llama_name(layers) for layers in LAYERS],
    [llama_name(layers) for layers in LAYERS[:2]],
    measure,
    summarize,
    _peer_gave_up,
)

if __name__ == "__main__":
    main()
