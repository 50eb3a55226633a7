"""Compares two sweeps: rows that are newly broken, newly right, slower or larger."""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Iterable, Sequence

from onnx_aot.sweep.results import Result, Results
from onnx_aot.sweep.rows import RIGHT, first_line

__all__ = ["KINDS", "Change", "Difference", "compare_results", "compare_sweeps"]

KINDS: dict[str, str] = {
    "broken": "Newly broken",
    "fixed": "Newly right",
    "slower": "Slower",
    "larger": "Larger",
    "changed": "Not right for another reason",
    "added": "New rows",
    "removed": "Rows that are gone",
}
"""Kinds of changes, with the titles that people read."""

SLOWER, LARGER = 1.3, 1.02
LEAST_SECONDS = 0.5
LEAST_MILLISECONDS = 0.05


@dataclasses.dataclass(frozen=True)
class Change:
    """A row that is not as it was.

    Attributes:
        name: Name of the row.
        kind: A key of ``KINDS``.
        text: What changed.
    """

    name: str
    kind: str
    text: str


@dataclasses.dataclass(frozen=True)
class Difference:
    """All changes between two sweeps.

    Attributes:
        changes: The changes, by kind and name.
        compared: Number of rows that both sweeps have.
    """

    changes: tuple[Change, ...]
    compared: int

    def of(self, kind: str) -> tuple[Change, ...]:
        """The changes of a kind."""
        return tuple(change for change in self.changes if change.kind == kind)

    def to_markdown(self) -> str:
        """The changes as a list per kind."""
        counts = ", ".join(
            f"{len(self.of(kind))} {title[0].lower()}{title[1:]}"
            for kind, title in KINDS.items()
            if self.of(kind)
        )
        lines = [f"{self.compared} rows compared: {counts or 'nothing changed'}."]
        for kind, title in KINDS.items():
            found = self.of(kind)
            if found:
                lines += ["", f"### {title}", ""]
                lines += [f"- `{c.name}`{': ' if c.text else ''}{c.text}" for c in found]
        return "\n".join(lines)

    def __str__(self) -> str:
        lines = [f"{change.kind:8} {change.name}: {change.text}" for change in self.changes]
        return "\n".join([*lines, f"{self.compared} rows compared, {len(lines)} changes"])


def compare_sweeps(
    before: str | os.PathLike[str],
    after: str | os.PathLike[str],
    *,
    slower: float = SLOWER,
    larger: float = LARGER,
) -> Difference:
    """Compares the last results in two folders.

    Args:
        before: Folder of a sweep.
        after: Folder of another one.
        slower: Ratio of export times, or of latencies, from which a row is slower.
        larger: Ratio of nodes, or of bytes, from which a row is larger.

    Raises:
        InvalidOptionError: A folder has no sweep.
        SweepError: Results cannot be read.
    """
    with Results(before) as old, Results(after) as new:
        return compare_results(old.current(), list(new.current()), slower, larger)


def compare_results(
    before: Iterable[Result],
    after: Sequence[Result],
    slower: float = SLOWER,
    larger: float = LARGER,
) -> Difference:
    """Compares results by the names of their rows. Without any before, nothing is new."""
    old = {result.name: result for result in before}
    changes = []
    for result in after if old else ():
        was = old.get(result.name)
        if was is None:
            changes.append(Change(result.name, "added", result.status))
        else:
            changes += _changes(was, result, slower, larger)
    names = {result.name for result in after}
    gone = [Change(name, "removed", old[name].status) for name in old if name not in names]
    order = list(KINDS)
    found = sorted([*changes, *gone], key=lambda change: (order.index(change.kind), change.name))
    return Difference(tuple(found), len(names & old.keys()))


def _changes(was: Result, now: Result, slower: float, larger: float) -> list[Change]:
    if was.status == RIGHT != now.status:
        return [Change(now.name, "broken", f"{now.status}: {first_line(now.reason)}")]
    if was.status != RIGHT == now.status:
        return [Change(now.name, "fixed", f"was {was.status}: {first_line(was.reason)}")]
    if now.status != RIGHT:
        if (was.status, first_line(was.reason)) == (now.status, first_line(now.reason)):
            return []
        text = f"{now.status}: {first_line(now.reason)}; was {was.status}"
        return [Change(now.name, "changed", text)]
    found = []
    compared = (
        ("slower", "export", _export_time(was), _export_time(now), slower, LEAST_SECONDS, "s"),
        ("slower", "latency", was.latency_ms, now.latency_ms, slower, LEAST_MILLISECONDS, "ms"),
        ("larger", "nodes", was.nodes, now.nodes, larger, 0, ""),
        ("larger", "file", was.bytes, now.bytes, larger, 0, "bytes"),
    )
    for kind, what, old, new, ratio, least, unit in compared:
        if old and new and new > old * ratio and new - old > least:
            text = f"{what} {old:g} to {new:g} {unit}".rstrip()
            found.append(Change(now.name, kind, text))
    return found


def _export_time(result: Result) -> float | None:
    """Time of the export on processors, which depends least on what else the machine does."""
    seconds: float | None = result.metrics.get("export_cpu_seconds", result.export_seconds)
    return seconds
