"""Measures memory and time of exports of large models with weights from safetensors shards.

    python -m benchmarks.big_model [llama_7b ...] [--files FOLDER]

A fresh process builds a Llama in fake mode, exports it, applies shards that were written before,
and saves the model, which is larger than the memory that the export may use. The peak of the
process's resident memory is recorded. Saving alternates with a file-by-file copy of the shards, and
the best time of each counts; both start with files that are not cached in memory and end when the
data is on disk. The written files, up to three times the size of the model, are removed.
Weightless rows save only the graph; loaded rows also run in ONNX Runtime.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import time
from typing import Any

from benchmarks.plots import Plot
from benchmarks.run import Benchmark, Settings, folder_of, in_fresh_process, run
from benchmarks.tables import facts, number, table

MODELS: dict[str, dict[str, Any]] = {
    "llama_0.3b": {"hidden_size": 1024, "intermediate_size": 2816, "num_hidden_layers": 12},
    "llama_0.8b_loaded": {
        "hidden_size": 2048,
        "intermediate_size": 5632,
        "num_hidden_layers": 13,
        "dtype": "float32",
    },
    "llama_7b": {
        "hidden_size": 4096,
        "intermediate_size": 11008,
        "num_hidden_layers": 32,
        "num_key_value_heads": 32,
    },
    "llama_70b_weightless": {
        "hidden_size": 8192,
        "intermediate_size": 28672,
        "num_hidden_layers": 80,
        "num_attention_heads": 64,
    },
}
"""Configurations of transformers' Llama; bfloat16 unless they have a dtype."""

VOCABULARY = 32000
HEADS, KEY_HEADS = 32, 8
SHARD = 5 * 10**9
BLOCK = 2**24  # elements per write
REPEATS = 2
PEAK_BOUND = 3e9
TIME_BOUND = 1.15


def main() -> None:
    """Runs the command line of this benchmark."""
    run(BENCHMARK)


def measure(name: str, settings: Settings) -> dict[str, Any]:
    """Measures the peak and the seconds of a row, each step in a process of its own.

    Raises:
        RuntimeError: There is not enough room on the disk.
    """
    with folder_of(f"big_model_{name}", settings) as folder:
        shards = os.path.join(folder, "shards")
        try:
            if name.endswith("_weightless"):
                return in_fresh_process(__name__, "save", name, folder, "")
            written = in_fresh_process(__name__, "write_shards", name, shards)
            kept = in_fresh_process(__name__, "save", name, folder, shards)
            if name.endswith("_loaded"):
                kept |= in_fresh_process(__name__, "load", folder)
            return {**kept, "weights": written}
        finally:
            for left in ("copy", "shards", "model"):
                shutil.rmtree(os.path.join(folder, left), ignore_errors=True)


def write_shards(name: str, folder: str) -> int:
    """Writes random weights as safetensors shards with an index; returns the number of bytes.

    Raises:
        RuntimeError: There is not enough room on the disk.
    """
    import torch

    state = {key: t for key, t in _make_model(name).state_dict().items() if t.is_meta}
    total = sum(tensor.nbytes for tensor in state.values())
    os.makedirs(folder)
    free = shutil.disk_usage(folder).free
    if free < 3.1 * total:
        raise RuntimeError(f"{name} needs {3.1 * total / 1e9:.0f} GB of disk, of {free / 1e9:.0f}")
    groups: list[dict[str, Any]] = [{}]
    for key, tensor in state.items():
        if sum(t.nbytes for t in groups[-1].values()) + tensor.nbytes > SHARD:
            groups.append({})
        groups[-1][key] = tensor
    block = torch.randn(BLOCK, generator=torch.Generator().manual_seed(0)) * 0.02
    index: dict[str, str] = {}
    for number_, group in enumerate(groups, 1):
        file = f"model-{number_:05d}-of-{len(groups):05d}.safetensors"
        _write_shard(os.path.join(folder, file), group, block)
        index |= dict.fromkeys(group, file)
    with open(os.path.join(folder, "model.safetensors.index.json"), "w", encoding="utf-8") as text:
        json.dump({"metadata": {"total_size": total}, "weight_map": index}, text)
    return total


def _write_shard(path: str, tensors: dict[str, Any], block: Any) -> None:
    import torch

    header, end = {}, 0
    for key, tensor in tensors.items():
        begin, end = end, end + tensor.nbytes
        kind = {torch.bfloat16: "BF16", torch.float32: "F32"}[tensor.dtype]
        header[key] = {"dtype": kind, "shape": list(tensor.shape), "data_offsets": [begin, end]}
    text = json.dumps(header).encode()
    text = text.ljust(-(-len(text) // 8) * 8)
    with open(path, "wb") as file:
        file.write(len(text).to_bytes(8, "little") + text)
        for tensor in tensors.values():
            data = block.to(tensor.dtype).view(torch.uint8).numpy()
            for start in range(0, tensor.nbytes, len(data)):
                file.write(data[: tensor.nbytes - start])


def _copy(source: str, destination: str) -> float:
    """Copies a folder's files one by one; returns the seconds. The copy is removed afterwards."""
    _out_of_memory(source)
    start = time.perf_counter()
    os.makedirs(destination)
    for name in sorted(os.listdir(source)):
        shutil.copyfile(os.path.join(source, name), os.path.join(destination, name))
    os.sync()
    seconds = time.perf_counter() - start
    shutil.rmtree(destination)
    return seconds


def save(name: str, folder: str, shards: str) -> dict[str, Any]:
    """Exports and saves; returns seconds per step, peak memory, and bytes of the files."""
    import torch

    import onnx_aot

    seconds = {}
    start = time.perf_counter()
    model = _make_model(name)
    seconds["build"] = time.perf_counter() - start
    start = time.perf_counter()
    program = onnx_aot.export(
        model,
        (),
        kwargs={"input_ids": torch.zeros(2, 8, dtype=torch.int64), "use_cache": False},
        dynamic_shapes={"input_ids": {0: "batch", 1: "sequence"}, "use_cache": None},
    )
    seconds["export"] = time.perf_counter() - start
    target = os.path.join(folder, "model")
    copies, saves = [], []
    if shards:
        start = time.perf_counter()
        program.apply_weights(shards)
        seconds["apply"] = time.perf_counter() - start
        for _ in range(REPEATS - 1):
            copies.append(_copy(shards, os.path.join(folder, "copy")))
            saves.append(_save(program, target, shards))
            shutil.rmtree(target)
        copies.append(_copy(shards, os.path.join(folder, "copy")))
    saves.append(_save(program, target, shards))
    seconds["save"] = min(saves)
    return {
        "peak": _peak_memory(),
        "seconds": seconds,
        "saves": saves,
        "copies": copies,
        "files": {file: os.path.getsize(os.path.join(target, file)) for file in os.listdir(target)},
        "parameters": sum(parameter.numel() for parameter in model.parameters()),
    }


def _save(program: Any, folder: str, shards: str) -> float:
    """Saves into a new folder; returns the seconds."""
    if shards:
        _out_of_memory(shards)
    os.makedirs(folder)
    start = time.perf_counter()
    program.save(os.path.join(folder, "model.onnx"), include_initializers=bool(shards))
    os.sync()
    return time.perf_counter() - start


def load(folder: str) -> dict[str, Any]:
    """Runs the saved model in ONNX Runtime; returns the seconds that creating the session took."""
    import numpy as np
    import onnxruntime

    start = time.perf_counter()
    session = onnxruntime.InferenceSession(os.path.join(folder, "model", "model.onnx"))
    seconds = time.perf_counter() - start
    (logits,) = session.run(None, {"input_ids": np.zeros((1, 3), np.int64)})
    assert logits.shape == (1, 3, VOCABULARY), logits.shape
    assert np.isfinite(logits).all()
    return {"session": seconds}


def _make_model(name: str) -> Any:
    """Builds a Llama without weights, in fake mode."""
    from benchmarks.models.torchvision_cpu import load_torchvision

    load_torchvision()
    import transformers

    import onnx_aot

    heads = {"num_attention_heads": HEADS, "num_key_value_heads": KEY_HEADS}
    options = {"dtype": "bfloat16", **heads, **MODELS[name]}
    config = transformers.LlamaConfig(vocab_size=VOCABULARY, use_cache=False, **options)
    with onnx_aot.enable_fake_mode():
        return transformers.AutoModelForCausalLM.from_config(config, dtype=options["dtype"]).eval()


def _out_of_memory(folder: str) -> None:
    """Evicts files from the page cache, so that they are read from disk."""
    os.sync()
    for name in os.listdir(folder):
        descriptor = os.open(os.path.join(folder, name), os.O_RDONLY)
        os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
        os.close(descriptor)


def _peak_memory() -> int:
    """Peak resident bytes of this process; those of ``resource`` start at the parent's peak."""
    with open("/proc/self/status", encoding="ascii") as status:
        found = re.search(r"VmHWM:\s+(\d+) kB", status.read())
    assert found
    return 1024 * int(found.group(1))


def _save_ratio(row: dict[str, Any]) -> float | None:
    return row["seconds"]["save"] / min(row["copies"]) if row["copies"] else None


def summarize(rows: list[dict[str, Any]]) -> dict[str, Any]:
    """Returns the largest peak, and the largest ratio of a save to a copy."""
    if not rows:
        return {}
    peaks = {row["name"]: row["peak"] / 1e9 for row in rows}
    worst = max(peaks, key=peaks.__getitem__)
    found = {f"peak of resident memory, GB, largest: {worst}": round(peaks[worst], 2)}
    ratios = {row["name"]: ratio for row in rows if (ratio := _save_ratio(row)) is not None}
    if ratios:
        slowest = max(ratios, key=ratios.__getitem__)
        found[f"save / copy of the shards, largest: {slowest}"] = round(ratios[slowest], 3)
    return found


def render(rows: list[dict[str, Any]], summary: dict[str, Any]) -> str:
    """Returns the tables for the documentation."""
    body = [
        [
            row["name"],
            number(row["parameters"] / 1e9, 1),
            number(sum(row["files"].values()) / 1e9, 2),
            number(row["peak"] / 1e9, 2),
            *(number(row["seconds"].get(step), 1) for step in ("build", "export", "apply", "save")),
            number(min(row["copies"], default=None), 1),
            number(_save_ratio(row)),
            number(row.get("session"), 1),
        ]
        for row in rows
    ]
    head = ["Model", "Parameters, 10^9", "Written, GB", "Peak, GB", "Build, s", "Export, s"]
    head += ["Apply, s", "Save, s", "Copy, s", "Save / copy", "Session, s"]
    bounds = f"Bounds: {PEAK_BOUND / 1e9:g} GB of peak, {TIME_BOUND} times a copy."
    image = "![Peak of resident memory](plots/big_model.svg)"
    return "\n\n".join((facts(summary), bounds, image, table(head, body)))


def plot(rows: list[dict[str, Any]]) -> Plot:
    """Plots peaks over the size of the written files."""
    points = [(sum(row["files"].values()) / 1e9, row["peak"] / 1e9) for row in rows]
    series = {"onnx_aot": sorted(points)}
    title = "Peak memory of export and save from shards"
    return Plot(title, "GB resident", series, "GB written", bound=PEAK_BOUND / 1e9)


BENCHMARK = Benchmark("big_model", lambda: list(MODELS), ["llama_0.3b"], measure, summarize)

if __name__ == "__main__":
    main()
