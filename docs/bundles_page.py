"""Fills docs/generation.md with the results of benchmarks of language models."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from benchmarks import decoders
from benchmarks.bundles import NAME, SPEED
from benchmarks.page import fill_part
from benchmarks.results import read_json
from benchmarks.tables import number, table

__all__ = ["make_generation_page"]

PAGE = Path(__file__).with_name("generation.md")


def make_generation_page() -> str:
    """Returns the page with the current results."""
    page = PAGE.read_text(encoding="utf-8")
    parts = ((decoders.NAME, _render_decoders), (NAME, _render), (SPEED, _render_speed))
    for name, render in parts:
        page = fill_part(page, name, render(read_json(name)))
    return page


def _render_decoders(results: dict[str, Any] | None) -> str:
    if results is None:
        return "Not measured yet: `python -m benchmarks.decoders`."
    facts = results["machine"]
    measured = f"Measured {facts['date']} with transformers {facts['packages']['transformers']}."
    return f"{measured}\n\n{decoders.render(results['rows'], results['summary'])}"


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


def _render_speed(results: dict[str, Any] | None) -> str:
    if results is None:
        return "Not measured yet: `python -m nox -s bundle-speed`."
    lines, reasons = [], []
    for row in results["rows"]:
        name = f"{row['name']}, {row['client']}, {row['weights']}"
        if "error" in row:
            reasons.append(f"* {name}: the peer's exporter fails: {row['error']}")
            continue
        step, prompt = row["step"], row["prompt"]
        rates = [number(1000 / step[key], 0) for key in ("milliseconds", "peer")]
        ratios = [number(value) for value in (step["ratio"], step["peer / peer"], prompt["ratio"])]
        lines.append((name, *rates, *ratios))
    head = ("Model", "Tokens/s", "Peer, tokens/s", "Step / peer", "Peer / peer", "Prompt / peer")
    measured = f"Measured {results['machine']['date']}, on {results['machine']['cores']} cores:"
    parts = [measured, "", table(head, lines)]
    return "\n".join([*parts, *(["", *reasons] if reasons else [])])
