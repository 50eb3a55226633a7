"""Runs exported models in other programs, and applies other people's tools to them.

    python -m benchmarks.clients [MODEL ...] [--column NAME] [--files FOLDER] [--missing]

Each model is exported by this package and by torch.onnx. Each file runs in each client at two
sizes, in an environment of the client's own, which ``python -m nox -s clients`` makes, and in a
process of its own. Results are written after every model; other stored cells stay.
"""

from __future__ import annotations

import argparse
import os
import tempfile
from pathlib import Path
from typing import Any

from benchmarks.clients import NAME
from benchmarks.clients.cells import judge_cell
from benchmarks.clients.prepare import read_prepared
from benchmarks.clients.summary import summarize_cells
from benchmarks.clients.table import COLUMNS, EXPORTERS, MODELS, Client
from benchmarks.clients.versions import read_versions
from benchmarks.results import ROOT, machine, read_json, write_json
from onnx_aot import sweep

LIMIT = 240.0
EXPORT_LIMIT = 1800.0
PRELOAD = ("torch",)

Row = dict[str, Any]


def main() -> None:
    """Runs the cells that the command line names, and writes the results."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("names", nargs="*", metavar="MODEL", help="models; all by default")
    parser.add_argument("--column", action="append", choices=COLUMNS, help="may be repeated")
    parser.add_argument("--exporter", action="append", choices=EXPORTERS, help="may be repeated")
    parser.add_argument("--limit", type=float, default=LIMIT, help="seconds that a cell may take")
    parser.add_argument("--files", default="", help="folder that keeps the exported models")
    parser.add_argument("--missing", action="store_true", help="only cells without a result")
    parser.add_argument("--dry-run", action="store_true", help="write nothing")
    options = parser.parse_args()
    unknown = [name for name in options.names if name not in MODELS]
    if unknown:
        parser.error(f"no models {', '.join(unknown)}; see benchmarks/clients/table.py")
    for name in options.names or MODELS:
        _measure_model(name, options)


def _measure_model(name: str, options: argparse.Namespace) -> None:
    row = _read_rows().get(name, {"name": name, "cells": {}, "remarks": {}})
    wanted = [
        (column, exporter)
        for column in map(COLUMNS.__getitem__, options.column or COLUMNS)
        for exporter in options.exporter or EXPORTERS
        if not (options.missing and exporter in row["cells"].get(column.name, {}))
    ]
    if not wanted:
        return
    with tempfile.TemporaryDirectory() as temporary:
        prepared = _prepare(name, options.files or temporary)
        row["remarks"] = {
            exporter: prepared[exporter]["remark"]
            for exporter in EXPORTERS
            if prepared[exporter].get("remark")
        }
        for column, exporter in wanted:
            cell = judge_cell(column, _select_file(prepared, column, exporter), options.limit)
            row["cells"].setdefault(column.name, {})[exporter] = cell
            told = f"{name}, {column.name}, {EXPORTERS[exporter]}: {cell['stage']}"
            print(f"{told} {cell.get('error', '')} {cell['reason']}".rstrip(), flush=True)
            if not options.dry_run:
                _store_row(row)


def _prepare(name: str, files: str) -> dict[str, Any]:
    """Returns the entries of ``prepare_model``; files that are there already are used again."""
    folder = str(Path(files).absolute() / name)
    kept = read_prepared(folder)
    if kept is not None:
        return kept
    os.makedirs(folder, exist_ok=True)
    row = sweep.Row(
        name,
        task="benchmarks.clients.prepare:prepare_row",
        settings={"name": name, "folder": folder},
        limits=sweep.Limits(seconds=EXPORT_LIMIT),
    )
    plan = sweep.Plan((row,), PRELOAD, folder=str(ROOT), name="models for clients")
    with tempfile.TemporaryDirectory() as temporary:
        result = sweep.run(plan, temporary).results[0]
    if result.status != "right":
        raise RuntimeError(f"{name} was not exported: {result.reason}")
    made: dict[str, Any] = result.metrics["prepared"]
    return made


def _select_file(prepared: dict[str, Any], column: Client, exporter: str) -> dict[str, Any]:
    key = f"{exporter} {column.target}".strip() if exporter == "ours" else exporter
    return prepared[key]


def _read_rows() -> dict[str, Row]:
    kept = read_json(NAME)
    return {row["name"]: row for row in kept["rows"]} if kept else {}


def _store_row(row: Row) -> None:
    done = _read_rows()
    done[row["name"]] = row
    rows = [done[name] for name in MODELS if name in done]
    content = {"machine": machine(), "clients": read_versions(), "summary": summarize_cells(rows)}
    write_json(NAME, {**content, "rows": rows})


if __name__ == "__main__":
    main()
