"""Result of comparing a captured graph with its ONNX model, value by value."""

from __future__ import annotations

import dataclasses
import json
import os
from collections.abc import Mapping, Sequence
from typing import Any

from onnx_aot.errors import InvalidOptionError
from onnx_aot.inspection.bisect import Bisection, find_guilty
from onnx_aot.inspection.compared_values import ComparedValue, Source
from onnx_aot.inspection.isolate import write_isolated
from onnx_aot.inspection.text import align_columns

__all__ = ["Comparison"]

SHOWN = 40
"""Up to this many rows are all printed; else those around the first that differs, and the last."""

AROUND = 4

SCHEMA = 1
"""Version of the format that ``to_json`` writes."""


@dataclasses.dataclass(frozen=True)
class Comparison:
    """Result of a comparison, value by value.

    Attributes:
        rows: One per value that was compared, in execution order.
        left_out: Numbers of values that were not compared, by reason.
    """

    rows: tuple[ComparedValue, ...]
    left_out: Mapping[str, int]
    _source: Source = dataclasses.field(repr=False, compare=False)

    @property
    def ok(self) -> bool:
        """True if no value is wrong by itself and the outputs of the model are right."""
        return all(row.within or row.drifts for row in self.rows)

    @property
    def first(self) -> ComparedValue | None:
        """The row to look at; None if all values agree.

        This is the first value that is wrong by itself. If there is none, it is the first that
        exceeds its tolerance: earlier differences add up there, until an output is wrong.
        """
        if self.ok:
            return None
        deviating = [row for row in self.rows if not row.within]
        to_blame = (row for row in deviating if row.origin in ("own", "runtime"))
        return next(to_blame, deviating[0])

    def isolate(self, folder: str | os.PathLike[str], row: ComparedValue | None = None) -> str:
        """Writes the ONNX nodes of one value as a model, with inputs and a script that runs it.

        The folder gets ``node.onnx``; ``inputs.npz`` and ``expected.npz`` with PyTorch's values of
        its inputs and outputs; and ``reproduce.py``, which needs only NumPy and ONNX Runtime.

        Args:
            folder: The folder to write to; created if needed. Files of these names are replaced.
            row: The value to isolate; by default ``first``.

        Returns:
            The folder.

        Raises:
            InvalidOptionError: All values agree and no row was given, or the row is not from this
                comparison.
            SaveError: The model cannot be written.
        """
        wanted = row or self.first
        if wanted is None:
            raise InvalidOptionError(
                "all values agree; pass one of rows to isolate it", code="OA607"
            )
        if wanted not in self.rows:
            raise InvalidOptionError(
                f"{wanted.fx_node} is not a row of this comparison", code="OA607"
            )
        return write_isolated(self._source, wanted, os.fspath(folder))

    def bisect(self) -> Bisection:
        """Finds the optimization passes and rules that make ``first`` wrong.

        The captured program is translated again, but not captured again: first without
        optimization and then, if the value is right, with subsets of the n passes and rules that
        changed the model. Each guilty one takes about log2(n) attempts.

        Returns:
            Their names, and the remaining ones for ``optimize=``; it prints as text.

        Raises:
            InvalidOptionError: All values agree, or the program was not exported in this process,
                such as one loaded from a file.
        """
        if self.first is None:
            raise InvalidOptionError("all values agree; there is nothing to find", code="OA607")
        return find_guilty(self._source, self.first)

    def to_json(self) -> str:
        """Returns everything as JSON; infinite differences are the string ``"inf"``."""
        first = self.first
        return json.dumps(
            {
                "schema": SCHEMA,
                "ok": self.ok,
                "first": None if first is None else self.rows.index(first),
                "rows": [_replace_infinity(dataclasses.asdict(row)) for row in self.rows],
                "left_out": dict(self.left_out),
            },
            indent=2,
        )

    def __str__(self) -> str:
        differ = sum(not (row.within or row.drifts) for row in self.rows)
        drift = sum(row.drifts for row in self.rows)
        random = sum(row.random for row in self.rows)
        lines = [
            f"{len(self.rows)} values compared: {f'{differ} differ' if differ else 'all agree'}"
        ]
        if drift:
            lines.append(
                f"  {drift} drift: rounding before them adds up, their own nodes are right"
            )
        if random:
            lines.append(f"  {random} random: only type and shape were compared")
        lines += [f"  not compared: {count} {why}" for why, count in self.left_out.items()]
        if self.first is not None:
            lines += ["", *_describe_first(self.first)]
        return "\n".join([*lines, "", *_format_table(self.rows, self.first)])


def _replace_infinity(row: dict[str, Any]) -> dict[str, Any]:
    infinite = float("inf")
    return {name: "inf" if value == infinite else value for name, value in row.items()}


SAID = {
    "own": "First value that is wrong by itself",
    "runtime": "First value that ONNX Runtime's own fusions change",
    "inherited": "No value is wrong by itself, differences add up; first beyond its tolerance",
    "": "First value that differs",
}


def _describe_first(row: ComparedValue) -> list[str]:
    """Describes the row that is to blame."""
    nodes = ", ".join(row.onnx_operators[:8]) + (", ..." if len(row.onnx_operators) > 8 else "")
    fields = (
        ("captured", row.operator),
        ("ONNX", f"{row.onnx_value}: {nodes}"),
        ("module", row.module),
        ("at", row.location),
        ("PyTorch", row.expected),
        ("ONNX gives", row.actual if row.actual != row.expected else ""),
        ("difference", f"max abs {row.max_absolute:.3g}, max rel {row.max_relative:.3g}"),
        *(("", remark) for remark in row.remark.split("; ")),
    )
    lines = [f"{SAID[row.origin]}: {row.fx_node}"]
    return lines + [f"  {label:<11}{text}" for label, text in fields if text]


def _format_table(rows: Sequence[ComparedValue], first: ComparedValue | None) -> list[str]:
    """Formats a line per row; if there are many, only those near the first that differs."""
    header = ("", "value", "operator", "module", "type", "max abs", "max rel", "ONNX nodes")
    shown = _select_rows_near(rows, first)
    lines = align_columns([header, *(_format_cells(rows[index]) for index in shown)])
    found = lines[:1]
    before = -1
    for index, line in zip(shown, lines[1:], strict=True):
        if index > before + 1:
            found.append(f"... {index - before - 1} more")
        found.append(line)
        before = index
    return [*found, *([f"... {len(rows) - before - 1} more"] if before + 1 < len(rows) else [])]


def _select_rows_near(rows: Sequence[ComparedValue], first: ComparedValue | None) -> list[int]:
    if len(rows) <= SHOWN:
        return list(range(len(rows)))
    middle = 0 if first is None else rows.index(first)
    near = range(max(middle - AROUND, 0), min(middle + AROUND + 1, len(rows)))
    return sorted({*near, len(rows) - 1})


def _format_cells(row: ComparedValue) -> tuple[str, ...]:
    operators = list(dict.fromkeys(row.onnx_operators))
    distances = f"{row.max_absolute:.2g}", f"{row.max_relative:.2g}"
    return (
        "ok" if row.within else "drift" if row.drifts else "FAIL",
        row.fx_node,
        row.operator,
        row.module,
        row.expected,
        *(("random", "") if row.random else distances),
        " ".join(operators[:4]) + (" ..." if len(operators) > 4 else ""),
    )
