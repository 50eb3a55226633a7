"""Writes pieces of Markdown: tables, code, and text whose names cannot become HTML."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

__all__ = ["escape_html", "fence_code", "format_table", "quote_code"]

CODE = re.compile(r"(?<!`)(`+)(?!`).+?(?<!`)\1(?!`)")
"""A span of code, in which ``<`` is shown as it is."""

TAG = re.compile(r"\\*<(?=[A-Za-z/!?])")
"""The beginning of an HTML tag, comment or link, with the backslashes before it."""


def format_table(header: Sequence[str], rows: Sequence[Sequence[Any]]) -> str:
    """A table whose columns line up as plain text."""
    cells = [[_escape_cell(cell) for cell in row] for row in (header, *rows)]
    widths = [max(len(row[column]) for row in cells) for column in range(len(header))]
    lines = [
        "| " + " | ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)) + " |"
        for row in cells
    ]
    lines.insert(1, "| " + " | ".join("-" * width for width in widths) + " |")
    return "\n".join(lines)


def _escape_cell(value: Any) -> str:
    return escape_html(" ".join(str(value).split())).replace("|", "\\|")


def fence_code(text: str, language: str = "") -> str:
    """A code block, fenced with more backticks than the text has."""
    longest = max((len(run) for run in re.findall(r"`+", text)), default=0)
    fence = "`" * max(3, longest + 1)
    return f"{fence}{language}\n{text.rstrip()}\n{fence}"


def quote_code(text: Any) -> str:
    """A span of code, which a backtick in the text does not end."""
    line = " ".join(str(text).split())
    longest = max((len(run) for run in re.findall(r"`+", line)), default=0)
    fence, space = "`" * (longest + 1), " " if longest else ""
    return f"{fence}{space}{line}{space}{fence}"


def escape_html(text: str) -> str:
    """Text on one line in which nothing is HTML; spans of code stay as they are."""
    line = " ".join(text.split())
    if "\\`" in line:  # such a backtick begins no span
        return TAG.sub(_escape_tag, line)
    parts, end = [], 0
    for span in CODE.finditer(line):
        parts += [TAG.sub(_escape_tag, line[end : span.start()]), span[0]]
        end = span.end()
    return "".join(parts) + TAG.sub(_escape_tag, line[end:])


def _escape_tag(match: re.Match[str]) -> str:
    """A backslash before the sign, or an entity if there is a backslash that would be escaped."""
    found = match[0]
    return "\\<" if found == "<" else f"{found[:-1]}&lt;"
