"""Where benchmark results are kept: JSON beside the scripts, tables in the documentation."""

from __future__ import annotations

import datetime
import json
import os
import platform
from importlib import metadata
from pathlib import Path
from typing import Any

__all__ = ["RESULTS", "machine", "read_json", "update_page", "write_json"]

RESULTS = Path(__file__).parent / "results"
PAGE = Path(__file__).parent.parent / "docs" / "benchmarks.md"
PACKAGES = ("torch", "onnx", "onnx_ir", "onnxscript", "onnxruntime", "torchvision", "transformers")


def machine() -> dict[str, Any]:
    """What the figures were measured on."""
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
    """Keeps the results of one benchmark."""
    RESULTS.mkdir(exist_ok=True)
    path = RESULTS / f"{name}.json"
    path.write_text(json.dumps(content, indent=1) + "\n", encoding="utf-8")


def read_json(name: str) -> Any:
    """The results that were kept of one benchmark, or None."""
    path = RESULTS / f"{name}.json"
    return json.loads(path.read_text(encoding="utf-8")) if path.exists() else None


def update_page(name: str, table: str) -> None:
    """Replaces the part of the documentation between this benchmark's markers."""
    start, end = f"<!-- {name}: generated -->", f"<!-- {name}: end -->"
    text = PAGE.read_text(encoding="utf-8")
    before, found, rest = text.partition(start)
    if not found:
        raise ValueError(f"{PAGE} has no line {start}")
    _, _, after = rest.partition(end)
    facts = machine()
    versions = ", ".join(f"{key} {value}" for key, value in facts["packages"].items())
    measured = (
        f"Measured {facts['date']} on {facts['cores']} cores ({facts['processor']}), "
        f"Python {facts['python']}, {versions}."
    )
    PAGE.write_text(f"{before}{start}\n\n{measured}\n\n{table}\n\n{end}{after}", encoding="utf-8")
