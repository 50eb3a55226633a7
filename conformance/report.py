"""Reads, writes and summarizes the results file."""

from __future__ import annotations

import collections
import datetime
import json
import os
import platform
from collections.abc import Iterable, Mapping, Sequence
from importlib import metadata
from typing import Any

from conformance.outcome import OUTCOMES, Result
from conformance.samples import Case

__all__ = [
    "Row",
    "count_captured",
    "format_table",
    "is_right",
    "make_heading",
    "read_results",
    "row_of",
    "share",
    "summarize",
    "write_results",
]

PACKAGES = ("torch", "onnx", "onnx_ir", "onnxscript", "onnxruntime")

Row = dict[str, Any]
Key = tuple[str, str, str]


def row_of(case: Case, results: Sequence[Result]) -> Row:
    """Returns a row of the file: outcomes of all samples, and the reasons of failures."""
    row: Row = {
        "op": case.name,
        "dtype": case.dtype,
        "group": case.group,
        "outcomes": dict(collections.Counter(r.outcome for r in results)),
    }
    flags = sorted({r.flag for r in results if r.flag})
    if flags:
        row["flags"] = flags
    failures = [
        [i, r.outcome, r.reason[:160], r.sample[:120]]
        for i, r in enumerate(results)
        if r.outcome not in ("pass", "not_captured")
    ]
    if failures:
        row["failures"] = failures
    targets = dict.fromkeys(t for r in results if r.outcome == "pass" for t in r.targets)
    if targets:
        row["targets"] = list(targets)
    return row


def count_captured(row: Mapping[str, Any]) -> int:
    """Number of samples that torch.export captured."""
    outcomes: dict[str, int] = row["outcomes"]
    return sum(outcomes.values()) - outcomes.get("not_captured", 0)


def is_right(row: Mapping[str, Any]) -> bool:
    """True if samples were captured and all of those are right."""
    passed: int = row["outcomes"].get("pass", 0)
    return 0 < count_captured(row) == passed


def key_of(row: Mapping[str, Any]) -> Key:
    """Key of a row; a later run replaces rows with the same key."""
    return row["group"], row["dtype"], row["op"]


def read_results(path: str) -> dict[str, Any]:
    """Reads a results file: ``rows``, ``targets`` by operator, ``totals`` and the heading.

    If there is no file, these are empty and there is no heading.
    """
    if not os.path.exists(path):
        return {"rows": [], "targets": {}, "totals": {}}
    with open(path, encoding="utf-8") as file:
        content: dict[str, Any] = json.load(file)
    return content


def make_heading(exporter: str, samples: int) -> dict[str, Any]:
    """Returns the heading of a results file: exporter, samples, Python, date and packages."""
    return {
        "exporter": exporter,
        "samples": samples,
        "python": platform.python_version(),
        "date": datetime.date.today().isoformat(),
        "packages": {package: metadata.version(package) for package in PACKAGES},
    }


def write_results(path: str, exporter: str, samples: int, rows: Iterable[Row]) -> None:
    """Writes rows to the file, where they replace older ones of the same case."""
    rows = list(rows)
    kept = read_results(path)
    merged = {key_of(row): row for row in (*kept["rows"], *rows)}
    ordered = [merged[key] for key in sorted(merged)]
    targets = {name: set(used) for name, used in kept.get("targets", {}).items()}
    for row in rows:
        targets.setdefault(row["op"], set()).update(row.pop("targets", ()))
    head = {**make_heading(exporter, samples), "totals": summarize(ordered)}
    lines = [f' "{key}": {json.dumps(value)}' for key, value in head.items()]
    of_operator = [
        f"  {json.dumps(name)}: {json.dumps(sorted(targets[name]))}"
        for name in sorted(targets)
        if targets[name]
    ]
    body = ",\n".join(f"  {json.dumps(row, ensure_ascii=False)}" for row in ordered)
    text = "{\n" + ",\n".join(lines) + ',\n "targets": {\n' + ",\n".join(of_operator)
    text += '\n },\n "rows": [\n' + body + "\n ]\n}\n"
    beside = f"{path}.part"
    with open(beside, "w", encoding="utf-8") as file:
        file.write(text)
    os.replace(beside, path)


def summarize(rows: Iterable[Row]) -> dict[str, dict[str, Any]]:
    """Counts variants and samples, captured and right, and outcomes, by group and dtype."""
    totals: dict[str, dict[str, Any]] = {}
    for row in rows:
        total = totals.setdefault(
            f"{row['group']} {row['dtype']}",
            {"variants": 0, "captured": 0, "right": 0, "samples": 0, "passed": 0, "outcomes": {}},
        )
        outcomes = row["outcomes"]
        total["variants"] += 1
        total["captured"] += count_captured(row) > 0
        total["right"] += is_right(row)
        total["samples"] += count_captured(row)
        total["passed"] += outcomes.get("pass", 0)
        for outcome, count in outcomes.items():
            total["outcomes"][outcome] = total["outcomes"].get(outcome, 0) + count
    return totals


def share(part: int, whole: int) -> str:
    """Formats a share in percent."""
    return f"{100 * part / whole:.1f} %" if whole else "-"


def format_table(totals: Mapping[str, Mapping[str, Any]]) -> str:
    """Formats the summary as a Markdown table."""
    lines = [
        "| | variants right | of captured | share | samples right | failures |",
        "| --- | ---: | ---: | ---: | ---: | --- |",
    ]
    for name, total in totals.items():
        counts = total["outcomes"]
        failures = ", ".join(
            f"{counts[outcome]} {outcome}" for outcome in OUTCOMES[1:] if counts.get(outcome)
        )
        lines.append(
            f"| {name} | {total['right']} | {total['captured']} | "
            f"{share(total['right'], total['captured'])} | "
            f"{share(total['passed'], total['samples'])} of {total['samples']} | {failures} |"
        )
    return "\n".join(lines)
