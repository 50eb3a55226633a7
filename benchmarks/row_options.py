"""Command line of the benchmarks that measure one model per row, and the age of their results."""

from __future__ import annotations

import argparse
from collections.abc import Collection, Mapping, Sequence
from typing import Any

__all__ = ["describe_measurement", "make_row_parser", "parse_row_options"]


def make_row_parser(
    description: str, groups: Sequence[str], limit: float
) -> argparse.ArgumentParser:
    """Returns a parser for the names of rows and for how they are measured."""
    parser = argparse.ArgumentParser(
        description=description, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("names", nargs="*", metavar="NAME", help="rows; all by default")
    parser.add_argument("--group", choices=groups)
    parser.add_argument("--limit", type=float, default=limit, help="seconds that a row may take")
    parser.add_argument("--jobs", type=int, default=1, help="processes at a time")
    parser.add_argument("--without-torch-onnx", action="store_false", dest="peer")
    parser.add_argument("--missing", action="store_true", help="only rows without a result")
    return parser


def parse_row_options(
    parser: argparse.ArgumentParser, known: Collection[str], folder: str
) -> argparse.Namespace:
    """Parses the command line; ends the program with a message if it names an unknown row."""
    options = parser.parse_args()
    unknown = [name for name in options.names if name not in known]
    if unknown:
        parser.error(f"no rows {', '.join(unknown)}; see {folder}")
    return options


def describe_measurement(machine: Mapping[str, Any], measured: int, rows: int) -> str:
    """Describes the date and versions of results, and how many rows have none yet."""
    versions = ", ".join(f"{key} {value}" for key, value in machine["packages"].items())
    text = f"Measured {machine['date']} with {versions}."
    return text + (f" {rows - measured} of {rows} are not measured yet." if measured < rows else "")
