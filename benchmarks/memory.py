"""Measures the memory that an export with saving needs beyond that of the capture.

    python -m benchmarks.memory [linear_0.1gb ...]

Every way runs once, in a fresh process, on a model with weights of the given size. The peaks of
resident memory of these processes are compared; the difference includes the code that a way
imports. Runs on Linux. Files are written to a temporary folder and removed.
"""

from __future__ import annotations

import math
import os
import re
import tempfile
import time
from typing import Any

from benchmarks import ways
from benchmarks.plots import Plot
from benchmarks.run import Benchmark, Settings, in_fresh_process, run
from benchmarks.tables import facts, number, remark, table
from benchmarks.timing import TooSlow, first_line, time_limit

SIZES = {
    "linear": (0.1, 0.25, 0.5, 1.0, 2.0, 4.0),
    "llama": (0.25, 1.0, 4.0),
}  # GB of weights
PEER_UP_TO = 1.0  # GB
SHARE, FIXED = 0.05, 64e6  # the bound: a share of the weights, plus bytes
WIDTH = 4096


def main() -> None:
    """Runs the command line of this benchmark."""
    run(BENCHMARK)


def list_rows() -> list[str]:
    """Names of all models, made of kind and size."""
    return [f"{kind}_{size:g}gb" for kind, sizes in SIZES.items() for size in sizes]


def measure(name: str, settings: Settings) -> dict[str, Any]:
    """Measures the peak of each way in a process of its own.

    Raises:
        RuntimeError: There is not enough free memory.
    """
    _, size = _parse_name(name)
    free = os.sysconf("SC_AVPHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    if free < (size * 1.5 + 1) * 1e9:
        raise RuntimeError(f"{name} needs {size * 1.5 + 1:.1f} GB of free memory")
    kept: dict[str, Any] = {"peaks": {}, "seconds": {}, "errors": {}}
    for way in ways.LABELS:
        if way == "peer" and (size > PEER_UP_TO or not settings.peer):
            continue
        seen = in_fresh_process(__name__, "peak", name, way, settings.limit)
        kept["weights"] = seen["weights"]
        kept["seconds"][way] = seen["seconds"]
        if seen["error"]:
            kept["errors"][way] = seen["error"]
        else:
            kept["peaks"][way] = seen["peak"]
    return kept


def peak(name: str, way: str, limit: float) -> dict[str, Any]:
    """Runs one way in this process; returns its peak memory, bytes of weights, and seconds."""
    model, args, shapes = _make_model(name)
    subject = ways.Subject(model, args, {}, shapes, ways.as_hints(shapes), "")
    error = ""
    with tempfile.TemporaryDirectory() as folder:
        start = time.perf_counter()
        try:
            if way == "peer":
                with time_limit(limit):
                    subject.peer(os.path.join(folder, "model.onnx"))
            else:
                subject.ways(folder)[way]()
        except (Exception, TooSlow) as caught:
            if way != "peer":
                raise
            error = first_line(caught)
        seconds = time.perf_counter() - start
    weights = sum(parameter.nbytes for parameter in model.parameters())
    return {"peak": _peak_memory(), "weights": weights, "seconds": seconds, "error": error}


def _peak_memory() -> int:
    """Peak resident bytes of this process; those of ``resource`` start at the parent's peak."""
    with open("/proc/self/status", encoding="ascii") as status:
        found = re.search(r"VmHWM:\s+(\d+) kB", status.read())
    assert found
    return 1024 * int(found.group(1))


def _parse_name(name: str) -> tuple[str, float]:
    kind, _, size = name.removesuffix("gb").partition("_")
    return kind, float(size)


def _make_model(name: str) -> tuple[Any, tuple[Any, ...], Any]:
    """Returns the model with distinct weights in memory, its inputs and its dimensions."""
    import torch

    kind, size = _parse_name(name)
    with torch.device("meta"):
        model = _make_linears(size) if kind == "linear" else _make_llama(size)
    model = model.to_empty(device="cpu").eval()
    with torch.no_grad():
        for number_, tensor in enumerate([*model.parameters(), *model.buffers()], 1):
            tensor.fill_(1e-4 * number_)
    if kind == "linear":
        return model, (torch.randn(2, WIDTH),), ({0: "batch"},)
    return model, (torch.zeros(2, 8, dtype=torch.int64),), ({0: "batch", 1: "seq"},)


def _make_linears(size: float) -> Any:
    from torch import nn

    count = math.ceil(size * 1e9 / (4 * WIDTH**2))
    layers = [
        layer for _ in range(count) for layer in (nn.Linear(WIDTH, WIDTH, bias=False), nn.ReLU())
    ]
    return nn.Sequential(*layers)


def _make_llama(size: float) -> Any:
    """Builds a Llama whose embedding and head are a quarter of its weights each."""
    from benchmarks.models.torchvision_cpu import load_torchvision

    load_torchvision()
    import transformers
    from torch import nn

    class Logits(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            width = 1024 if size < 1 else 2048
            layers = max(1, round(size * 1e9 / 2 / (4 * 11.5 * width**2)))
            config = transformers.LlamaConfig(
                vocab_size=round(size * 1e9 / 4 / (4 * width)),
                hidden_size=width,
                intermediate_size=3 * width,
                num_hidden_layers=layers,
                num_attention_heads=16,
                num_key_value_heads=4,
                use_cache=False,
            )
            self.model = transformers.LlamaForCausalLM(config)

        def forward(self, tokens: Any) -> Any:
            return self.model(input_ids=tokens).logits

    return Logits()


def _memory_above_capture(row: dict[str, Any], way: str) -> float | None:
    peaks = row["peaks"]
    return peaks[way] - peaks["plain"] if way in peaks else None


def summarize(rows: list[dict[str, Any]]) -> dict[str, Any]:
    """Returns the largest ratio of the memory above the capture to its bound."""
    if not rows:
        return {}
    used = {row["name"]: _memory_above_capture(row, "ours") / _memory_bound(row) for row in rows}
    worst = max(used, key=used.__getitem__)
    return {f"peak above the capture / bound, largest: {worst}": round(used[worst], 3)}


def _memory_bound(row: dict[str, Any]) -> float:
    return SHARE * row["weights"] + FIXED


def render(rows: list[dict[str, Any]], summary: dict[str, Any]) -> str:
    """Returns the tables for the documentation."""
    body = [
        [
            row["name"],
            *(_format_mb(value) for value in (row["weights"], row["peaks"]["plain"])),
            *(_format_mb(_memory_above_capture(row, way)) for way in ("ours", "peer")),
            _format_mb(_memory_bound(row)),
            number(row["seconds"].get("ours"), 1),
            number(row["seconds"].get("peer"), 1),
            remark("", row["errors"]),
        ]
        for row in rows
    ]
    head = ["Model", "Weights, MB", "Peak of the capture, MB", "onnx_aot above it, MB"]
    head += ["torch.onnx above it, MB", "Bound, MB", "onnx_aot, s", "torch.onnx, s", "Remark"]
    image = "![Peak memory above the capture's](plots/memory.svg)"
    return "\n\n".join((facts(summary), image, table(head, body)))


def _format_mb(value: float | None) -> str:
    return number(None if value is None else value / 1e6, 0)


def plot(rows: list[dict[str, Any]]) -> Plot:
    """Plots peaks above the capture's over the weights, and the bound."""
    linear = [row for row in rows if row["name"].startswith("linear")]
    series = {
        ways.LABELS[way]: [
            (row["weights"] / 1e6, above / 1e6)
            for row in linear
            if (above := _memory_above_capture(row, way)) is not None
        ]
        for way in ("ours", "peer")
    }
    series["bound"] = [(row["weights"] / 1e6, _memory_bound(row) / 1e6) for row in linear]
    label = "MB resident above the capture's peak"
    return Plot("Peak memory of export and save", label, series, "MB of weights", bound=None)


BENCHMARK = Benchmark("memory", list_rows, ["linear_0.1gb"], measure, summarize)

if __name__ == "__main__":
    main()
