"""Fills docs/generation.md with the results of ``python -m benchmarks.bundles``."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from benchmarks.bundles import NAME
from benchmarks.results import read_json

__all__ = ["make_generation_page"]

PAGE = Path(__file__).with_name("generation.md")
BEGIN, END = "<!-- bundles: generated -->", "<!-- bundles: end -->"


def make_generation_page() -> str:
    """Returns the page with the current results."""
    before, _, rest = PAGE.read_text(encoding="utf-8").partition(BEGIN)
    after = rest.partition(END)[2]
    return f"{before}{BEGIN}\n\n{_render(read_json(NAME))}\n\n{END}{after}"


def _render(results: dict[str, Any] | None) -> str:
    if results is None:
        return "Not measured yet: `python -m nox -s bundles`."
    rows = results["rows"]
    columns: dict[str, list[str]] = {}
    for cell in rows[0]["cells"]:
        client, weights = cell.split(", ")
        columns.setdefault(client, []).append(weights)
    versions = ", ".join(f"{client} {version}" for client, version in results["clients"].items())
    lines = [
        f"Measured {results['machine']['date']} with {versions}; numbers of the four types of "
        "weights that are right.",
        "",
        f"| Family | {' | '.join(columns)} |",
        f"| --- |{' ---: |' * len(columns)}",
    ]
    reasons = []
    for row in rows:
        counts = []
        for client, all_weights in columns.items():
            cells = [row["cells"][f"{client}, {weights}"] for weights in all_weights]
            counts.append(f"{cells.count('right')} of {len(cells)}")
            wrong = {cell for cell in cells if cell != "right"}
            reasons += [f"* {row['name']}, {client}: {reason}" for reason in sorted(wrong)]
        lines.append(f"| {row['name']} | {' | '.join(counts)} |")
    return "\n".join([*lines, *(["", *reasons] if reasons else [])])
