"""What a comparison with PyTorch says of values, by their names."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

__all__ = ["Differences", "verdict"]


class Differences:
    """The rows of a comparison, as ``compare`` returns them; none without one."""

    def __init__(self, comparison: Any) -> None:
        self._rows: dict[str, Any] = {}
        for row in () if comparison is None else comparison.rows:
            if row.onnx_value:
                self._rows.setdefault(str(row.onnx_value), row)
        verdicts = [row.within for row in self._rows.values() if row.within is not None]
        self.compared = len(verdicts)
        self.deviating = verdicts.count(False)
        first = getattr(comparison, "first", None)
        self._first = None if first is None or not first.onnx_value else str(first.onnx_value)

    def of(self, name: str) -> dict[str, Any] | None:
        """What is told of a value; None where it was not compared."""
        row = self._rows.get(name)
        if row is None:
            return None
        return {
            "within": row.within,
            "absolute": _number_text(row.max_absolute),
            "relative": _number_text(row.max_relative),
            "remark": str(row.remark or ""),
            "first": name == self._first,
        }


def verdict(rows: Iterable[Mapping[str, Any]]) -> str | None:
    """``"deviates"`` where one of the rows does, ``"within"`` where none does; None without any."""
    verdicts = [row["within"] for row in rows if row["within"] is not None]
    if not verdicts:
        return None
    return "within" if all(verdicts) else "deviates"


def _number_text(number: float | None) -> str:
    """JSON has no infinity."""
    return "" if number is None else f"{number:.3g}"
