"""Reads and writes the results of benchmarks, JSON files beside the scripts."""

from __future__ import annotations

import datetime
import json
import os
import platform
from importlib import metadata
from pathlib import Path
from typing import Any

__all__ = [
    "BENCHMARKS",
    "ON_A_GPU",
    "RESULTS",
    "ROOT",
    "machine",
    "read_json",
    "read_kept_rows",
    "write_json",
]

BENCHMARKS = (
    "export_time",
    "scaling",
    "memory",
    "big_model",
    "bundle_memory",
    "graph_size",
    "optimizers",
    "latency",
    "opset_latency",
    "refusals",
    "remarks",
)
"""The scripts, in the order in which they run; each has ``BENCHMARK`` and ``render``."""

ON_A_GPU = ("gpu",)
"""The same for scripts that need a GPU, and run by themselves."""

ROOT = Path(__file__).parent.parent
RESULTS = Path(__file__).parent / "results"
PACKAGES = (
    "torch",
    "onnx",
    "onnx_ir",
    "onnxscript",
    "onnxruntime",
    "onnxruntime-gpu",
    "onnxslim",
    "onnxsim",
    "torchvision",
    "timm",
    "transformers",
)


def machine() -> dict[str, Any]:
    """Describes the date, machine and packages of a measurement."""
    versions = {}
    for package in PACKAGES:
        try:
            versions[package] = metadata.version(package)
        except metadata.PackageNotFoundError:
            continue
    return {
        "date": datetime.date.today().isoformat(),
        "python": platform.python_version(),
        "processor": platform.machine(),
        "cores": os.cpu_count(),
        "packages": versions,
    }


def write_json(name: str, content: Any) -> None:
    """Writes the results of one benchmark."""
    RESULTS.mkdir(exist_ok=True)
    path = RESULTS / f"{name}.json"
    path.write_text(json.dumps(content, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")


def read_json(name: str) -> Any:
    """Returns the stored results of one benchmark, or None."""
    path = RESULTS / f"{name}.json"
    return json.loads(path.read_text(encoding="utf-8")) if path.exists() else None


def read_kept_rows(name: str) -> dict[str, Any]:
    """Returns the rows that were measured on this day and machine, by name."""
    kept = read_json(name)
    if kept is None or kept["machine"] != machine():
        return {}
    return {row["name"]: row for row in kept["rows"]}
