"""Formats text for reports, tables and commands."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

__all__ = ["align_columns", "size_text"]


def align_columns(rows: Sequence[Sequence[Any]]) -> list[str]:
    """Formats rows of equal length as lines whose columns line up."""
    cells = [[str(cell) for cell in row] for row in rows]
    widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
    return [
        "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip()
        for row in cells
    ]


def size_text(size: int) -> str:
    """Formats a number of bytes in powers of 1000, such as ``-1.5 MB``."""
    amount, unit = float(size), "bytes"
    for larger in ("kB", "MB", "GB", "TB"):
        if abs(amount) < 1000:
            break
        amount, unit = amount / 1000, larger
    return f"{size} bytes" if unit == "bytes" else f"{amount:.1f} {unit}"
