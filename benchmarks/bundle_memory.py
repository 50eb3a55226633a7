"""Measures the memory that a bundle of a checkpoint takes, beside loading the model alone.

    python -m benchmarks.bundle_memory [fp32 ...]

The checkpoint is a Llama with weights in bfloat16, in several files. Each row is one type of the
bundle's weights. The bundle, and ``AutoModelForCausalLM.from_pretrained`` in float32, run in
processes of their own. Compared are peaks of memory that the processes hold beyond their imports,
without pages of files, which the system takes back when it needs them. Runs on Linux.
"""

from __future__ import annotations

import contextlib
import os
import tempfile
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from benchmarks.run import Benchmark, Settings, in_fresh_process, run
from benchmarks.tables import facts, number, table

WEIGHTS = ("fp32", "fp16", "int8", "int4")
INTERVAL = 0.01
"""Seconds between two readings of the memory."""


def main() -> None:
    """Runs the command line of this benchmark."""
    run(BENCHMARK)


def measure(name: str, settings: Settings) -> dict[str, Any]:
    """Writes a checkpoint, bundles it with weights of one type, and loads it."""
    with tempfile.TemporaryDirectory() as folder:
        source = os.path.join(folder, "checkpoint")
        made = in_fresh_process(__name__, "write_checkpoint", source, settings.quick)
        ours = in_fresh_process(__name__, "bundled", source, os.path.join(folder, "made"), name)
        loaded = in_fresh_process(__name__, "loaded", source)
    return {**made, "ours": ours, "loaded": loaded}


def write_checkpoint(folder: str, small: bool) -> dict[str, int]:
    """Writes a model with random weights; returns bytes of its weights in float32."""
    import torch

    from benchmarks.models.torchvision_cpu import load_torchvision

    load_torchvision()  # before transformers, which imports it
    import transformers

    config = transformers.LlamaConfig(
        vocab_size=32000,
        hidden_size=1024,
        intermediate_size=4096,
        num_hidden_layers=2 if small else 16,
        num_attention_heads=16,
        num_key_value_heads=8,
        tie_word_embeddings=True,
    )
    model = transformers.LlamaForCausalLM(config).to(torch.bfloat16)
    model.save_pretrained(folder, max_shard_size="100MB")
    sizes = [4 * weight.numel() for weight in model.parameters()]
    return {"weights": sum(sizes), "largest": max(sizes)}


def bundled(source: str, folder: str, weights: str) -> dict[str, float]:
    """Bundles a checkpoint for genai in this process."""
    from benchmarks.models.torchvision_cpu import load_torchvision

    load_torchvision()
    import transformers  # noqa: F401 (before the memory is read)

    import onnx_aot.export  # noqa: F401
    from onnx_aot.generation import bundle

    with _measured() as found:
        bundle(source, folder, layout="genai", weights=weights)
    files = [path for path in Path(folder).iterdir() if path.name.startswith("model.onnx")]
    return {**found, "bytes": sum(path.stat().st_size for path in files)}


def loaded(source: str) -> dict[str, float]:
    """Loads a checkpoint in float32 in this process."""
    import torch

    from benchmarks.models.torchvision_cpu import load_torchvision

    load_torchvision()
    import transformers

    with _measured() as found:
        transformers.AutoModelForCausalLM.from_pretrained(source, dtype=torch.float32)
    return found


@contextlib.contextmanager
def _measured() -> Iterator[dict[str, float]]:
    """Yields a dictionary that gets the peak, in bytes, beyond the present, and the seconds."""
    found: dict[str, float] = {}
    start, before, peak = time.perf_counter(), _held(), [0]
    done = threading.Event()

    def watch() -> None:
        while not done.wait(INTERVAL):
            peak[0] = max(peak[0], _held())

    watcher = threading.Thread(target=watch)
    watcher.start()
    try:
        yield found
    finally:
        done.set()
        watcher.join()
    found.update(peak=max(peak[0], _held()) - before, seconds=time.perf_counter() - start)


def _held() -> int:
    """Bytes of this process that are not pages of files."""
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith("RssAnon:"):
            return 1024 * int(line.split()[1])
    raise RuntimeError("this system does not tell the memory of a process apart from its files")


def summarize(rows: list[dict[str, Any]]) -> dict[str, Any]:
    """Returns the largest ratios of the bundle's peak."""
    if not rows:
        return {}
    worst = max(rows, key=lambda row: row["ours"]["peak"])
    peak = worst["ours"]["peak"]
    return {
        f"memory of a bundle / weights in float32, largest: {worst['name']}": round(
            peak / worst["weights"], 3
        ),
        "memory of a bundle / memory of loading the model, largest": round(
            max(row["ours"]["peak"] / row["loaded"]["peak"] for row in rows), 3
        ),
    }


def render(rows: list[dict[str, Any]], summary: dict[str, Any]) -> str:
    """Returns the tables for the documentation."""
    body = [
        [
            row["name"],
            *(number(size / 1e6, 0) for size in (row["weights"], row["largest"])),
            *(number(row[way]["peak"] / 1e6, 0) for way in ("ours", "loaded")),
            number(row["ours"]["bytes"] / 1e6, 0),
            number(row["ours"]["seconds"], 1),
        ]
        for row in rows
    ]
    head = ["Weights", "In float32, MB", "Largest of them, MB", "Memory of the bundle, MB"]
    head += ["Memory of loading, MB", "Files, MB", "Bundle, s"]
    return "\n\n".join((facts(summary), table(head, body)))


BENCHMARK = Benchmark("bundle_memory", lambda: list(WEIGHTS), ["int4"], measure, summarize)

if __name__ == "__main__":
    main()
