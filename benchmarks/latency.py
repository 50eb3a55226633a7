"""Measures the latency of the exported models in ONNX Runtime.

    python -m benchmarks.latency [NAME ...]

First the outputs of both models are compared with PyTorch's. Then both run alternately in one
process on the same inputs, with one thread and with the default number of threads; the median of
all runs is kept. Each model has two sessions: the difference between them shows how large a
difference between models must be to be significant.
"""

from __future__ import annotations

import time
from typing import Any

from benchmarks import ways
from benchmarks.plots import Plot
from benchmarks.run import Benchmark, Settings, folder_of, run
from benchmarks.subjects import QUICK, case_of, catalogue
from benchmarks.tables import facts, number, table
from benchmarks.timing import geomean, median

THREADS = {"one thread": 1, "default threads": 0}
SPEND = 2.0  # seconds per number of threads
LEAST, MOST = 12, 1500  # rounds
SAME = 1.02
BOTH = ("ours", "peer")


def main() -> None:
    """Runs the command line of this benchmark."""
    run(BENCHMARK)


def measure(name: str, settings: Settings) -> dict[str, Any]:
    """Measures the medians of both models for each number of threads, in this process."""
    case = case_of(name)
    with folder_of(name, settings) as folder:
        made, paths = ways.export_both(case, folder)
        if len(paths) < len(BOTH):
            return {"different": "", "seconds": {}, "itself": {}, "runs": {}}
        model = case.make() if made is None else made.model
        args, kwargs = case.example()
        feeds = {way: make_feeds(path, args, kwargs) for way, path in paths.items()}
        different = _find_different(model, args, kwargs, paths, feeds)
        del model, made
        seconds, itself, runs = {}, {}, {}
        for label, threads in THREADS.items():
            found = time_samples(paths, feeds, threads, 0.3 if settings.quick else SPEND)
            seconds[label] = {way: median(found[way, 0] + found[way, 1]) for way in BOTH}
            itself[label] = median(found["ours", 0]) / median(found["ours", 1])
            runs[label] = 2 * len(found["ours", 0])
    return {"different": different, "seconds": seconds, "itself": itself, "runs": runs}


def create_session(path: str, threads: int) -> Any:
    """A session on the CPU with a number of threads; 0: its default."""
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = threads
    options.log_severity_level = 3
    return onnxruntime.InferenceSession(path, options, providers=["CPUExecutionProvider"])


def make_feeds(path: str, args: Any, kwargs: Any) -> dict[str, Any]:
    """Maps input names to arrays, in order if the names are not those of the arguments."""
    from torch.utils import _pytree as pytree

    names = [given.name for given in create_session(path, 0).get_inputs()]
    if set(names) == set(kwargs) and not args:
        return {name: kwargs[name].numpy() for name in names}
    leaves = pytree.tree_leaves((args, kwargs))
    return {name: leaf.numpy() for name, leaf in zip(names, leaves, strict=True)}


def _find_different(model: Any, args: Any, kwargs: Any, paths: Any, feeds: Any) -> str:
    """Labels of the models whose outputs differ from PyTorch's beyond the package's tolerances."""
    import torch
    from torch.utils import _pytree as pytree

    from onnx_aot.inspection.differences import compare_outputs

    with torch.no_grad():
        returned = pytree.tree_leaves(model(*args, **kwargs))
    expected = [leaf for leaf in returned if isinstance(leaf, torch.Tensor)]
    found = []
    for way, path in paths.items():
        actual = [torch.from_numpy(a) for a in create_session(path, 0).run(None, feeds[way])]
        names = [str(number_) for number_ in range(len(expected))]
        if not all(d.within for d in compare_outputs(names, expected, actual)):
            found.append(ways.LABELS[way])
    return ", ".join(found)


def time_samples(
    paths: dict[str, str], feeds: dict[str, Any], threads: int, spend: float
) -> dict[tuple[str, int], list[float]]:
    """Seconds of every run of two sessions per file, which alternate, by the key of the file."""
    sessions = [
        ((way, number_), create_session(path, threads))
        for number_ in (0, 1)
        for way, path in paths.items()
    ]
    seconds: dict[tuple[str, int], list[float]] = {key: [] for key, _ in sessions}
    for (way, _), session in sessions:  # the first runs allocate
        for _ in range(3):
            session.run(None, feeds[way])
    begun = time.perf_counter()
    for round_number in range(MOST):
        if round_number >= LEAST and time.perf_counter() - begun > spend:
            break
        for key, session in sessions if round_number % 2 else sessions[::-1]:
            feed = feeds[key[0]]
            start = time.perf_counter()
            session.run(None, feed)
            seconds[key].append(time.perf_counter() - start)
    return seconds


def ratio(row: dict[str, Any], label: str) -> float | None:
    """Ratio of ours to torch.onnx's, or None if they were not measured."""
    seconds = row["seconds"].get(label)
    return seconds["ours"] / seconds["peer"] if seconds else None


def summarize(rows: list[dict[str, Any]]) -> dict[str, Any]:
    """Returns the means and the largest of the ratios."""
    summary: dict[str, Any] = {}
    for label in THREADS:
        ratios = {row["name"]: r for row in rows if (r := ratio(row, label)) is not None}
        if not ratios:
            continue
        worst = max(ratios, key=ratios.__getitem__)
        slower = sum(r > SAME for r in ratios.values())
        apart = [abs(row["itself"][label] - 1) for row in rows if row["itself"]]
        summary |= {
            f"{label}: onnx_aot / torch.onnx, geometric mean of {len(ratios)} models": geomean(
                ratios.values()
            ),
            f"{label}: largest, {worst}": ratios[worst],
            f"{label}: models above {SAME}": slower,
            f"{label}: a model to itself differs by, median": median(apart),
        }
    return {key: round(value, 3) for key, value in summary.items()}


def render(rows: list[dict[str, Any]], summary: dict[str, Any]) -> str:
    """Returns the tables for the documentation."""
    body = []
    for row in rows:
        cells = [row["name"]]
        for label in THREADS:
            seconds = row["seconds"].get(label, {})
            cells += [_format_ms(seconds.get(way)) for way in BOTH]
            cells += [number(ratio(row, label)), number(row["itself"].get(label))]
        body.append([*cells, _describe_row(row)])
    head = ["Model"]
    for label in THREADS:
        head += [f"onnx_aot, ms, {label}", "torch.onnx, ms", "Ratio", "Itself"]
    image = "![Latency beside torch.onnx's](plots/latency.svg)"
    return "\n\n".join((facts(summary), image, table([*head, "Remark"], body)))


def _format_ms(value: float | None) -> str:
    return number(None if value is None else 1e3 * value, 3)


def _describe_row(row: dict[str, Any]) -> str:
    if not row["seconds"]:
        return f"{ways.LABELS['peer']} does not export it"
    return row["different"] and f"wrong outputs: {row['different']}"


def plot(rows: list[dict[str, Any]]) -> Plot:
    """Plots the ratios by model."""
    first = next(iter(THREADS))
    models = sorted((row for row in rows if ratio(row, first)), key=lambda row: ratio(row, first))
    series = {label: [(row["name"], ratio(row, label)) for row in models] for label in THREADS}
    return Plot("Latency in ONNX Runtime", "onnx_aot / torch.onnx", series, by_name=True)


BENCHMARK = Benchmark("latency", catalogue, QUICK, measure, summarize)

if __name__ == "__main__":
    main()
