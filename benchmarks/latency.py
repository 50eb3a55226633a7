"""Measures the latency of the exported models in ONNX Runtime.

    python -m benchmarks.latency [NAME ...]

Beside our file run torch.onnx's, and that file after onnxslim and after ONNX Runtime's optimizer
for transformers; our file also runs in OpenVINO. First the outputs are compared with PyTorch's.
Then all files run alternately in one process on the same inputs, in batches of 1 and 8, with one
thread and with two; the median of all runs is kept. Each file has two sessions: the difference
between ours shows how large a difference between files must be to be significant.
"""

from __future__ import annotations

import os
import time
from typing import Any

from benchmarks import optimizers, ways
from benchmarks.plots import Plot
from benchmarks.run import Benchmark, Settings, folder_of, run
from benchmarks.subjects import QUICK, case_of, catalogue
from benchmarks.tables import facts, number, table
from benchmarks.timing import geomean, median

CONDITIONS = {
    f"batch {batch}, {said}": (batch, threads)
    for batch in (1, 8)
    for threads, said in ((1, "one thread"), (2, "two threads"))
}
SPEND = 0.8  # seconds per condition
LEAST, MOST = 6, 1500  # rounds
SAME = 1.02
OPTIMIZED = {"slimmed": "onnxslim", "fused": "transformers optimizer"}
OPENVINO = "openvino"
LABELS = {
    "ours": "onnx_aot",
    "peer": "torch.onnx",
    "slimmed": "torch.onnx and onnxslim",
    "fused": "torch.onnx and transformers optimizer",
    OPENVINO: "onnx_aot in OpenVINO",
}


def main() -> None:
    """Runs the command line of this benchmark."""
    run(BENCHMARK)


def measure(name: str, settings: Settings) -> dict[str, Any]:
    """Measures the medians of all files under each condition, in this process."""
    case = case_of(name)
    row: dict[str, Any] = {"different": "", "missing": {}, "seconds": {}, "itself": {}, "runs": {}}
    with folder_of(name, settings) as folder:
        made, paths = ways.export_both(case, folder)
        if "peer" in paths:
            paths |= _optimize(paths["peer"], folder, row["missing"])
        if "ours" not in paths:
            return row
        model = case.make() if made is None else made.model
        args, kwargs = case.example()
        row["different"] = _find_different(model, args, kwargs, paths)
        for label, (batch, threads) in CONDITIONS.items():
            args, kwargs = case.inputs(**{**case.sizes[0], "batch": batch})
            feeds = {way: make_feeds(path, args, kwargs) for way, path in paths.items()}
            spend = 0.3 if settings.quick else SPEND
            found = time_samples(paths, feeds, threads, spend)
            # By itself: the threads of the other runtime wait actively between runs.
            if openvino := _create_in_openvino(paths["ours"], threads, row["missing"]):
                feeds[OPENVINO] = feeds["ours"]
                found |= time_sessions([((OPENVINO, 0), openvino)], feeds, spend / 4)
            row["seconds"][label] = {
                way: median([each for key in found if key[0] == way for each in found[key]])
                for way, _ in found
            }
            row["itself"][label] = median(found["ours", 0]) / median(found["ours", 1])
            row["runs"][label] = len(found["ours", 0])
    return row


def _optimize(path: str, folder: str, missing: dict[str, str]) -> dict[str, str]:
    """Writes what each optimizer makes of a file; ``missing`` gets the reasons of failures."""
    import onnx

    written = {}
    for way, optimizer in OPTIMIZED.items():
        target = os.path.join(folder, f"{way}.onnx")
        try:
            with optimizers.silenced():
                onnx.save(optimizers.OPTIMIZERS[optimizer](path), target)
                create_session(target, 1)
        except Exception as error:  # what another package does
            missing[way] = optimizers.describe(error)
        else:
            written[way] = target
    return written


def _create_in_openvino(path: str, threads: int, missing: dict[str, str]) -> Any:
    """Compiles a file for OpenVINO in float32; ``missing`` gets the reason if that fails."""
    try:
        import openvino

        options = {"INFERENCE_NUM_THREADS": threads, "INFERENCE_PRECISION_HINT": "f32"}
        compiled = openvino.Core().compile_model(path, "CPU", options)
        return _OpenvinoSession(compiled)
    except Exception as error:  # not installed, or it does not take the model
        missing[OPENVINO] = optimizers.describe(error)
        return None


class _OpenvinoSession:
    """Runs a compiled model as a session of ONNX Runtime does."""

    def __init__(self, compiled: Any) -> None:
        self._request = compiled.create_infer_request()

    def run(self, _names: None, feeds: dict[str, Any]) -> Any:
        return self._request.infer(feeds)


def create_session(path: str, threads: int) -> Any:
    """A session on the CPU with a number of threads; 0: its default."""
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = threads
    options.log_severity_level = 3
    # Else the threads of one session still wait actively while the next one runs.
    options.add_session_config_entry("session.intra_op.allow_spinning", "0")
    return onnxruntime.InferenceSession(path, options, providers=["CPUExecutionProvider"])


def make_feeds(path: str, args: Any, kwargs: Any) -> dict[str, Any]:
    """Maps input names to arrays, in order if the names are not those of the arguments."""
    from torch.utils import _pytree as pytree

    names = [given.name for given in create_session(path, 0).get_inputs()]
    if set(names) == set(kwargs) and not args:
        return {name: kwargs[name].numpy() for name in names}
    leaves = pytree.tree_leaves((args, kwargs))
    return {name: leaf.numpy() for name, leaf in zip(names, leaves, strict=True)}


def _find_different(model: Any, args: Any, kwargs: Any, paths: dict[str, str]) -> str:
    """Labels of the files whose outputs differ from PyTorch's beyond the package's tolerances."""
    import torch
    from torch.utils import _pytree as pytree

    from onnx_aot.inspection.differences import compare_outputs

    with torch.no_grad():
        returned = pytree.tree_leaves(model(*args, **kwargs))
    expected = [leaf for leaf in returned if isinstance(leaf, torch.Tensor)]
    names = [str(number_) for number_ in range(len(expected))]
    found = []
    for way, path in paths.items():
        feeds = make_feeds(path, args, kwargs)
        actual = [torch.from_numpy(a) for a in create_session(path, 0).run(None, feeds)]
        if not all(d.within for d in compare_outputs(names, expected, actual)):
            found.append(LABELS[way])
    return ", ".join(found)


Key = tuple[str, int]
"""A file, and which of its sessions."""


def time_samples(
    paths: dict[str, str], feeds: dict[str, Any], threads: int, spend: float
) -> dict[Key, list[float]]:
    """Seconds of every run of two sessions per file, which alternate."""
    sessions = [
        ((way, number_), create_session(path, threads))
        for number_ in (0, 1)
        for way, path in paths.items()
    ]
    return time_sessions(sessions, feeds, spend)


def time_sessions(
    sessions: list[tuple[Key, Any]], feeds: dict[str, Any], spend: float
) -> dict[Key, list[float]]:
    """Seconds of every run of sessions, which alternate."""
    seconds: dict[Key, list[float]] = {key: [] for key, _ in sessions}
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


def ratio(row: dict[str, Any], label: str, way: str = "peer", of: str = "ours") -> float | None:
    """Ratio of our latency to another file's under a condition, or None if one was not measured."""
    seconds = row["seconds"].get(label, {})
    return seconds[of] / seconds[way] if of in seconds and way in seconds else None


def is_beaten(row: dict[str, Any], label: str) -> bool:
    """True if another ONNX file is faster than ours under a condition, beyond the noise."""
    ratios = [r for way in ("peer", *OPTIMIZED) if (r := ratio(row, label, way)) is not None]
    itself = row["itself"].get(label, 1.0)
    return max(ratios, default=0.0) > max(SAME, itself, 1 / itself)


def summarize(rows: list[dict[str, Any]]) -> dict[str, Any]:
    """Returns the means and the largest of the ratios."""
    summary: dict[str, Any] = {}
    for label in CONDITIONS:
        for way in ("peer", *OPTIMIZED):
            ratios = {row["name"]: r for row in rows if (r := ratio(row, label, way)) is not None}
            if not ratios:
                continue
            mean = f"{label}: onnx_aot / {LABELS[way]}, geometric mean of {len(ratios)} models"
            summary[mean] = geomean(ratios.values())
            if way == "peer":
                worst = max(ratios, key=ratios.__getitem__)
                summary[f"{label}: largest, {worst}"] = ratios[worst]
        slower = sum(is_beaten(row, label) for row in rows)
        summary[f"{label}: models of which another ONNX file is faster beyond the noise"] = slower
        apart = [abs(row["itself"][label] - 1) for row in rows if label in row["itself"]]
        if apart:
            summary[f"{label}: a model to itself differs by, median"] = median(apart)
        runtimes = [r for row in rows if (r := ratio(row, label, "ours", OPENVINO)) is not None]
        if runtimes:
            mean = f"{label}: OpenVINO / ONNX Runtime, geometric mean of {len(runtimes)} models"
            summary[mean] = geomean(runtimes)
    return {key: round(value, 3) for key, value in summary.items()}


def render(rows: list[dict[str, Any]], summary: dict[str, Any]) -> str:
    """Returns the tables for the documentation."""
    image = "![Latency beside torch.onnx's](plots/latency.svg)"
    parts = [facts(summary), image]
    head = ["Model", "onnx_aot, ms", "/ torch.onnx", "/ onnxslim", "/ transformers optimizer"]
    head += ["Itself", "OpenVINO / ONNX Runtime", "Remark"]
    for label in CONDITIONS:
        body = []
        for row in rows:
            ours = row["seconds"].get(label, {}).get("ours")
            cells = [row["name"], number(None if ours is None else 1e3 * ours, 3)]
            cells += [number(ratio(row, label, way)) for way in ("peer", *OPTIMIZED)]
            cells += [number(row["itself"].get(label)), number(ratio(row, label, "ours", OPENVINO))]
            body.append([*cells, _describe_row(row)])
        parts += [f"### {label[0].upper()}{label[1:]}", table(head, body)]
    return "\n\n".join(parts)


def _describe_row(row: dict[str, Any]) -> str:
    seconds = next(iter(row["seconds"].values()), {})
    said = [] if "peer" in seconds else [f"{LABELS['peer']} does not export it"]
    said += [f"wrong outputs: {row['different']}"] if row["different"] else []
    said += [f"{LABELS[way]}: {reason}" for way, reason in row["missing"].items()]
    return "; ".join(said)


def plot(rows: list[dict[str, Any]]) -> Plot:
    """Plots the ratios by model."""
    first = next(iter(CONDITIONS))
    models = sorted((row for row in rows if ratio(row, first)), key=lambda row: ratio(row, first))
    series = {label: [(row["name"], ratio(row, label)) for row in models] for label in CONDITIONS}
    return Plot("Latency in ONNX Runtime", "onnx_aot / torch.onnx", series, by_name=True)


BENCHMARK = Benchmark("latency", catalogue, QUICK, measure, summarize)

if __name__ == "__main__":
    main()
