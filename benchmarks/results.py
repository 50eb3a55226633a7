"""Where benchmark results are kept: JSON beside the scripts, tables and plots in the docs."""

from __future__ import annotations

import datetime
import importlib
import json
import os
import platform
from importlib import metadata
from pathlib import Path
from typing import Any

__all__ = [
    "BENCHMARKS",
    "PAGE",
    "RESULTS",
    "ROOT",
    "machine",
    "page",
    "read_json",
    "write_json",
    "write_page",
]

BENCHMARKS = ("export_time", "scaling", "memory", "big_model", "graph_size", "latency")
"""The scripts, in the order in which they run; each has ``BENCHMARK`` and ``render``."""

ROOT = Path(__file__).parent.parent
RESULTS = Path(__file__).parent / "results"
PAGE = ROOT / "docs" / "benchmarks.md"
PACKAGES = (
    "torch",
    "onnx",
    "onnx_ir",
    "onnxscript",
    "onnxruntime",
    "torchvision",
    "timm",
    "transformers",
)
NOT_MEASURED = "Not measured yet: `python -m benchmarks.{}`."


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
    path.write_text(json.dumps(content, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")


def read_json(name: str) -> Any:
    """The results that were kept of one benchmark, or None."""
    path = RESULTS / f"{name}.json"
    return json.loads(path.read_text(encoding="utf-8")) if path.exists() else None


def page() -> str:
    """``docs/benchmarks.md`` with every generated part made from the results that are kept."""
    text = PAGE.read_text(encoding="utf-8")
    for name in BENCHMARKS:
        start, end = f"<!-- {name}: generated -->", f"<!-- {name}: end -->"
        before, found, rest = text.partition(start)
        _, closed, after = rest.partition(end)
        if not found or not closed:
            raise ValueError(f"{PAGE} has no lines {start} and {end}")
        text = f"{before}{start}\n\n{_part(name)}\n\n{end}{after}"
    return text


def write_page() -> None:
    """Writes the page and its plots anew."""
    from benchmarks.plots import write_plots

    PAGE.write_text(page(), encoding="utf-8")
    write_plots()


def _part(name: str) -> str:
    results = read_json(name)
    if results is None:
        return NOT_MEASURED.format(name)
    facts = results["machine"]
    versions = ", ".join(f"{key} {value}" for key, value in facts["packages"].items())
    measured = (
        f"Measured {facts['date']} on {facts['cores']} cores ({facts['processor']}), "
        f"Python {facts['python']}, {versions}."
    )
    script = importlib.import_module(f"benchmarks.{name}")
    return f"{measured}\n\n{script.render(results['rows'], results['summary'])}"
