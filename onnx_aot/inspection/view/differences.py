"""What a comparison with PyTorch says of values, by their names."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

__all__ = ["VERDICTS", "Differences", "worst"]

VERDICTS = ("deviates", "inherits", "within")
"""The worst first. ``inherits``: out of the tolerance, and right when computed from PyTorch's own
inputs."""


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
        first = None if comparison is None else comparison.first
        self._first = None if first is None or not first.onnx_value else str(first.onnx_value)

    def of(self, name: str) -> dict[str, Any] | None:
        """What is told of a value; None where it was not compared."""
        row = self._rows.get(name)
        if row is None:
            return None
        origin = getattr(row, "origin", "")
        return {
            "verdict": _verdict(row.within, origin),
            "origin": origin,
            "absolute": _number_text(row.max_absolute),
            "relative": _number_text(row.max_relative),
            "remark": str(row.remark or ""),
            "first": name == self._first,
        }


def worst(verdicts: Iterable[str | None]) -> str | None:
    """The worst of some verdicts; None where there is none."""
    found = set(verdicts)
    return next((verdict for verdict in VERDICTS if verdict in found), None)


def _verdict(within: bool | None, origin: str) -> str | None:
    if within is None:
        return None
    if within:
        return "within"
    return "inherits" if origin == "inherited" else "deviates"


def _number_text(number: float | None) -> str:
    """JSON has no infinity."""
    return "" if number is None else f"{number:.3g}"
