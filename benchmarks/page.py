"""Writes the page of results, ``docs/benchmarks.md``, from the stored results."""

from __future__ import annotations

import importlib

from benchmarks.plots import write_plots
from benchmarks.results import BENCHMARKS, ON_A_GPU, ROOT, read_json

__all__ = ["PAGE", "fill_part", "make_page", "write_page"]

PAGE = ROOT / "docs" / "benchmarks.md"
NOT_MEASURED = "Not measured yet: `python -m benchmarks.{}`."


def make_page() -> str:
    """Returns ``docs/benchmarks.md`` with every generated part made from the stored results."""
    text = PAGE.read_text(encoding="utf-8")
    for name in (*BENCHMARKS, *ON_A_GPU):
        text = fill_part(text, name, _render_part(name))
    return text


def fill_part(text: str, name: str, part: str) -> str:
    """Returns a page with another text between the two lines that name a generated part.

    Raises:
        ValueError: The page has no such lines.
    """
    start, end = f"<!-- {name}: generated -->", f"<!-- {name}: end -->"
    before, found, rest = text.partition(start)
    _, closed, after = rest.partition(end)
    if not found or not closed:
        raise ValueError(f"the page has no lines {start} and {end}")
    return f"{before}{start}\n\n{part}\n\n{end}{after}"


def write_page() -> None:
    """Writes the page and its plots."""
    PAGE.write_text(make_page(), encoding="utf-8")
    write_plots()


def _render_part(name: str) -> str:
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
