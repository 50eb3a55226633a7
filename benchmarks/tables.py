"""Formats tables in Markdown."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from benchmarks.ways import LABELS, STATIC_LABELS

__all__ = ["facts", "number", "remark", "table"]


def table(head: Sequence[str], rows: Iterable[Sequence[Any]]) -> str:
    """Formats a table; columns other than names and remarks are aligned to the right."""
    lines = [
        "---" if text in ("Model", "Group", "Way", "Remark", "Figure") else "---:" for text in head
    ]
    body = [[str(cell).replace("|", "\\|") for cell in row] for row in rows]
    return "\n".join(f"| {' | '.join(row)} |" for row in (head, lines, *body))


def facts(summary: Mapping[str, Any]) -> str:
    """Formats the figures over all rows as a table."""
    return table(("Figure", "Value"), summary.items())


def number(value: float | None, digits: int = 2) -> str:
    """Formats a number; ``-`` for None."""
    return "-" if value is None else f"{value:.{digits}f}"


def remark(text: str, errors: Mapping[str, str]) -> str:
    """Joins the remark on a row and its errors in one cell."""
    if text and all(error == text for error in errors.values()):
        return text
    labels = LABELS | STATIC_LABELS
    failed = (f"{labels[way]}: {error}" for way, error in errors.items())
    return "; ".join(filter(None, (text, *failed)))
