"""Counts the cells of the matrix."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from benchmarks.clients.cells import STAGES
from benchmarks.clients.table import COLUMNS, EXPORTERS

__all__ = ["find_behind", "summarize_cells"]


def summarize_cells(rows: Sequence[Mapping[str, Any]]) -> dict[str, dict[str, dict[str, int]]]:
    """Counts models by stage for each client and exporter; leaves out stages without models."""
    summary: dict[str, dict[str, dict[str, int]]] = {}
    for column in COLUMNS:
        cells = [row["cells"].get(column, {}) for row in rows]
        summary[column] = {
            exporter: _count([cell[exporter]["stage"] for cell in cells if exporter in cell])
            for exporter in EXPORTERS
        }
    return summary


def _count(stages: Sequence[str]) -> dict[str, int]:
    return {stage: stages.count(stage) for stage in reversed(STAGES) if stage in stages}


def find_behind(rows: Iterable[Mapping[str, Any]]) -> list[tuple[str, str]]:
    """The models and clients of the cells in which torch.onnx's file gets further than ours."""
    return [
        (row["name"], column)
        for row in rows
        for column, cell in row["cells"].items()
        if set(cell) == set(EXPORTERS)
        and STAGES.index(cell["ours"]["stage"]) < STAGES.index(cell["peer"]["stage"])
    ]
