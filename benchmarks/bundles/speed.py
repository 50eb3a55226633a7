"""Times generation with bundles beside the files that other exporters make for the same programs.

    python -m benchmarks.bundles.speed [FAMILY ...]

``python -m nox -s bundle-speed`` makes the environments. The peers are the model builder of
onnxruntime-genai and optimum's exporter. A ratio is the time of a bundle over that of its peer in
one process, which runs both in turns. The peer takes two turns, which shows the noise.
"""

from __future__ import annotations

import json
import subprocess
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from benchmarks.bundles import SPEED
from benchmarks.bundles.models import SPECIAL, make_model, save_source
from benchmarks.bundles.programs import (
    INSIDE,
    command_in,
    last_error,
    parse_families,
    read_versions,
)
from benchmarks.results import machine, write_json
from benchmarks.timing import geomean, median

SIZES = {
    "vocab_size": 32064,
    "hidden_size": 512,
    "intermediate_size": 1536,
    "num_hidden_layers": 12,
    "num_attention_heads": 8,
    "num_key_value_heads": 2,
    "max_position_embeddings": 2048,
    "tie_word_embeddings": True,
    **SPECIAL,
}
HEADS = {"head_dim": 64}  # optimum makes the empty cache of this size whatever the model has

MODELS: dict[str, tuple[str, str, dict[str, Any]]] = {
    "Llama": ("LlamaConfig", "LlamaForCausalLM", SIZES),
    "Qwen3": ("Qwen3Config", "Qwen3ForCausalLM", {**SIZES, **HEADS}),
    "Gemma": ("GemmaConfig", "GemmaForCausalLM", {**SIZES, **HEADS}),
    "Gemma3": ("Gemma3TextConfig", "Gemma3ForCausalLM", {**SIZES, **HEADS, "sliding_window": 512}),
    # optimum makes the empty cache of a Phi3 with the heads of the queries
    "Phi3": (
        "Phi3Config",
        "Phi3ForCausalLM",
        {**SIZES, "num_key_value_heads": 8, "original_max_position_embeddings": 2048},
    ),
}
"""Configuration, class and sizes by family: 50 to 60 million parameters."""

CELLS = (("genai", "fp32"), ("genai", "int4"), ("optimum", "fp32"))
PROMPT = [SPECIAL["bos_token_id"], *(3 + number * 37 % 60 for number in range(63))]
STEPS, RUNS = 64, 15
LIMIT = 1200


def main() -> None:
    """Measures the families that the command line names; all of them are written to the results."""
    from benchmarks.models.torchvision_cpu import load_torchvision

    load_torchvision()  # before transformers, which imports it
    families = parse_families(__doc__, MODELS)
    rows = []
    for family in families or MODELS:
        for row in measure_family(family):
            print(json.dumps(row), flush=True)
            rows.append(row)
    if not families:
        content = {"machine": machine(), "clients": read_versions(), "summary": summarize(rows)}
        write_json(SPEED, {**content, "rows": rows})


def summarize(rows: Sequence[dict[str, Any]]) -> dict[str, float]:
    """Returns geometric means and the largest ratios of each program and type of weights."""
    summary = {}
    for client, weights in CELLS:
        of_cell = [
            row
            for row in rows
            if (row["client"], row["weights"]) == (client, weights) and "error" not in row
        ]
        for kind in ("step", "prompt") if of_cell else ():
            ratios = [row[kind]["ratio"] for row in of_cell]
            name = f"{client}, {weights}: {kind}, time / peer"
            summary[f"{name}, geometric mean"] = round(geomean(ratios), 3)
            summary[f"{name}, largest"] = round(max(ratios), 3)
    return summary


def measure_family(family: str) -> list[dict[str, Any]]:
    """Returns a row per program and type of weights: times, ratios, and whether tokens agree."""
    from onnx_aot.generation import bundle

    model = make_model(*MODELS[family])
    parameters = sum(parameter.numel() for parameter in model.parameters())
    rows = []
    with tempfile.TemporaryDirectory() as folder:
        source = save_source(model, folder)
        for client, weights in CELLS:
            row = {"name": family, "client": client, "weights": weights, "parameters": parameters}
            ours = Path(folder, f"{client}-{weights}")
            bundle(source, ours, layout=client, weights=weights)
            peer = Path(folder, f"{client}-{weights}-peer")
            try:
                _run_inside(client, *_exporter_of(client, source, peer, weights), folder=folder)
                rows.append(row | _time_folders(client, (ours, peer, peer), folder))
            except subprocess.CalledProcessError as error:
                rows.append(row | {"error": last_error(error.stderr)})
    return rows


def _exporter_of(client: str, source: Path, peer: Path, weights: str) -> list[str]:
    """Returns the arguments for Python that make the file of the peer."""
    if client == "optimum":
        return [str(INSIDE / "export_optimum.py"), str(source), str(peer)]
    builder = ["-m", "onnxruntime_genai.models.builder", "-e", "cpu", "-p", weights]
    return [*builder, "-i", str(source), "-o", str(peer), "-c", f"{peer}-cache"]


def _time_folders(client: str, folders: Sequence[Path], folder: str) -> dict[str, Any]:
    given = (client, json.dumps(PROMPT), str(STEPS), str(RUNS), *map(str, folders))
    output = _run_inside(client, str(INSIDE / "time_steps.py"), *given, folder=folder)
    ours, peer, again = (json.loads(line) for line in output.splitlines() if line.startswith("{"))
    row: dict[str, Any] = {"tokens equal": ours["tokens"] == peer["tokens"]}
    for kind in ("step", "prompt"):
        row[kind] = {
            "milliseconds": round(1000 * median(ours[kind]), 3),
            "peer": round(1000 * median(peer[kind]), 3),
            "ratio": _ratio(ours[kind], peer[kind]),
            "peer / peer": _ratio(again[kind], peer[kind]),
        }
    return row


def _ratio(times: Sequence[float], others: Sequence[float]) -> float:
    """The median of the ratios of what was measured in one turn."""
    return round(median(time / other for time, other in zip(times, others, strict=True)), 3)


def _run_inside(client: str, *arguments: str, folder: str) -> str:
    """Returns what Python prints in the environment of a program."""
    done = subprocess.run(
        [command_in(client), *arguments],
        cwd=folder,
        capture_output=True,
        text=True,
        timeout=LIMIT,
        check=True,
    )
    return done.stdout


if __name__ == "__main__":
    main()
