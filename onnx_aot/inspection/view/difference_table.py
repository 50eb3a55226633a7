"""Looks up the results of a comparison with PyTorch by the names of values."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

__all__ = ["VERDICTS", "Differences", "find_worst"]

VERDICTS = ("deviates", "follows", "within")
"""The worst first. ``follows``: beyond the tolerance because of an earlier value."""

TO_BLAME = ("own", "runtime")
"""Origins of values that are wrong by themselves; later values may only inherit the error."""


class Differences:
    """The rows of a comparison, as ``compare`` returns them; empty without a comparison."""

    def __init__(self, comparison: Any) -> None:
        self._rows: dict[str, Any] = {}
        for row in () if comparison is None else comparison.rows:
            if row.onnx_value:
                self._rows.setdefault(str(row.onnx_value), row)
        verdicts = [row.within for row in self._rows.values() if row.within is not None]
        self.compared = len(verdicts)
        self.deviating = verdicts.count(False)
        self._first = None if comparison is None else comparison.first

    def describe_value(self, name: str) -> dict[str, Any] | None:
        """Information on a value that the view shows; None if it was not compared."""
        row = self._rows.get(name)
        if row is None:
            return None
        return {
            "verdict": self._decide_verdict(row),
            "origin": row.origin,
            "absolute": _number_text(row.max_absolute),
            "relative": _number_text(row.max_relative),
            "remark": str(row.remark or ""),
            "first": row is self._first,
        }

    def _decide_verdict(self, row: Any) -> str | None:
        if row.within is None:
            return None
        if row.within:
            return "within"
        blamed = self._first is not None and self._first.origin in TO_BLAME
        follows = row.origin == "inherited" or (blamed and row.origin not in TO_BLAME)
        return "follows" if follows else "deviates"


def find_worst(verdicts: Iterable[str | None]) -> str | None:
    """Returns the worst of some verdicts; None if there are none."""
    found = set(verdicts)
    return next((verdict for verdict in VERDICTS if verdict in found), None)


def _number_text(number: float | None) -> str:
    """Formats a number as text, because JSON has no infinity."""
    return "" if number is None else f"{number:.3g}"
