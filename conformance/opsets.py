"""Reads, writes and summarizes the results of the same samples at each opset."""

from __future__ import annotations

import json
import os
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from conformance.outcome import Result
from conformance.report import make_heading, share
from conformance.samples import Case

__all__ = ["count_totals", "opset_row", "opset_table", "read_opsets", "write_opsets"]

Row = dict[str, Any]


def opset_row(case: Case, results: Sequence[Result], opsets: Sequence[int]) -> Row:
    """Returns a row of the file: the number of captured samples, and every outcome but a pass.

    ``results`` holds each sample at each opset, with the opset changing fastest. A sample that is
    not captured is left out.
    """
    row: Row = {"op": case.name, "dtype": case.dtype, "opsets": list(opsets), "samples": 0}
    others: dict[tuple[int, str, str], list[int]] = {}
    for start in range(0, len(results), len(opsets)):
        of_sample = results[start : start + len(opsets)]
        if any(result.outcome == "not_captured" for result in of_sample):
            continue
        for opset, result in zip(opsets, of_sample, strict=False):
            if result.outcome != "pass":
                key = row["samples"], result.outcome, result.reason[:160]
                others.setdefault(key, []).append(opset)
        row["samples"] += 1
    if others:
        row["others"] = [[*key, at] for key, at in others.items()]
    return row


def read_opsets(path: str) -> list[Row]:
    """Reads the rows of a results file; returns no rows if there is no file."""
    if not os.path.exists(path):
        return []
    with open(path, encoding="utf-8") as file:
        rows: list[Row] = json.load(file)["rows"]
    return rows


def write_opsets(path: str, samples: int, rows: Iterable[Row]) -> None:
    """Writes rows to the file, where they replace those of the same operator and data type."""
    merged = {(row["dtype"], row["op"]): row for row in (*read_opsets(path), *rows)}
    head = make_heading("onnx_aot", samples)
    lines = [f' "{key}": {json.dumps(value)}' for key, value in head.items()]
    body = ",\n".join(f"  {json.dumps(merged[key], ensure_ascii=False)}" for key in sorted(merged))
    beside = f"{path}.part"
    with open(beside, "w", encoding="utf-8") as file:
        file.write("{\n" + ",\n".join(lines) + ',\n "rows": [\n' + body + "\n ]\n}\n")
    os.replace(beside, path)


def count_totals(rows: Iterable[Mapping[str, Any]]) -> dict[str, dict[int, Counter[str]]]:
    """Counts the variants that are captured, right, refused and wrong, by data type and opset.

    A variant is refused if a sample ends in an ``OpsetError`` and the others are right.
    """
    found: dict[str, dict[int, Counter[str]]] = {}
    for row in rows:
        if not row["samples"]:
            continue
        for opset in row["opsets"]:
            outcomes = {kind for _, kind, _, at in row.get("others", ()) if opset in at}
            verdict = "right" if not outcomes else "wrong"
            verdict = "refused" if outcomes == {"opset_error"} else verdict
            counts = found.setdefault(row["dtype"], {}).setdefault(opset, Counter())
            counts.update(("captured", verdict))
    return found


def opset_table(rows: Iterable[Mapping[str, Any]]) -> str:
    """Formats the summary as a Markdown table."""
    lines = [
        "| | Opset | Variants | Right | Refused: the opset lacks it | Other failures |",
        "| --- | ---: | ---: | ---: | ---: | ---: |",
    ]
    for dtype, by_opset in count_totals(rows).items():
        for opset, n in sorted(by_opset.items()):
            cells = [n["captured"], share(n["right"], n["captured"]), n["refused"], n["wrong"]]
            lines.append(f"| {dtype} | {opset} | {' | '.join(map(str, cells))} |")
    return "\n".join(lines)
