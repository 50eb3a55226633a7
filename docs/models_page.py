"""Writes ``docs/models.md`` from the results of ``python -m benchmarks.zoo``."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from benchmarks.results import RESULTS, read_json
from benchmarks.row_options import describe_measurement
from benchmarks.tables import number, table
from benchmarks.zoo import LATENCY_RATIO, NAME, TIME_RATIO, summarize
from benchmarks.zoo_models import ZOO
from benchmarks.zoo_models.measure import RIGHT

__all__ = ["make_models_page"]

Row = Mapping[str, Any]

HEAD = """# Models

Look up here whether an architecture exports correctly, how long it takes, and why it fails
otherwise. `python -m docs.generate` writes this page from `benchmarks/results/zoo.json`, and
`python -m nox -s zoo` measures again.

The architectures come from transformers, torchvision and timm, and some are written out in
`benchmarks/zoo_models`. All have small random weights. Batch and length, or height and width, are
dynamic if the architecture allows it. Each model is exported with default options, loaded in ONNX
Runtime and compared with eager PyTorch at the size of the example and at one other size, within the
tolerances of `onnx_aot/dtypes.py`; *right* means both sizes. If PyTorch in float32 differs and
is as far from float64 itself, the row is right with the remark *judged by float64*: deep networks
with random weights can amplify rounding beyond the tolerance, in PyTorch as in ONNX Runtime.

`torch.export` gets the same dynamic dimensions. Models that it refuses are not counted; they are
listed separately with the result of onnx_aot. A dimension that neither accepts as dynamic is static
for both, and the table names it.

torch.onnx gets the same capture (`torch.onnx.export(captured, dynamo=True)`) and is judged at the
same sizes with the same tolerances.

{measured}"""

NOT_MEASURED = "# Models\n\nNot measured yet: `python -m benchmarks.zoo`.\n"
RATIO = """*Export / capture* is the CPU time of one export, including saving, relative to that of
one plain `torch.export.export`. Both are measured in one fresh process, the export first. *Latency*
is relative to torch.onnx's model; both models run alternately in ONNX Runtime with one thread, and
below 1 is faster. In models this small, the latency measures the runtime's cost per node more than
its arithmetic."""


def make_models_page() -> str:
    """Returns the text of the page."""
    results = read_json(NAME)
    if results is None:
        return NOT_MEASURED
    rows, facts = results["rows"], results["machine"]
    measured = describe_measurement(facts, len(rows), len(ZOO))
    head = HEAD.format(measured=measured)
    failed = [row for row in rows if row["stage"] != RIGHT and not row["torch_export"]]
    refused = [row for row in rows if row["torch_export"]]
    parts = [head, _shares_table(rows)]
    parts += ["## Failures", _failures_table(failed)]
    parts += ["## Models that torch.export refuses", _refusals_table(refused)]
    parts += _other_releases(rows)
    parts += ["## Models that are right only with onnx_aot", _wrong_elsewhere(rows)]
    parts += ["## Models that are right", RATIO]
    for group, members in _by_group(rows).items():
        parts += [f"### {group}", _right_table(row for row in members if row["stage"] == RIGHT)]
    return "\n\n".join(parts) + "\n"


def _by_group(rows: Iterable[Row]) -> dict[str, list[Row]]:
    groups: dict[str, list[Row]] = {}
    for row in rows:
        groups.setdefault(row["group"], []).append(row)
    return groups


def _shares_table(rows: list[Row]) -> str:
    """Returns a table with a line per group and one for all."""
    body = []
    for group, members in (*_by_group(rows).items(), ("all", rows)):
        found = summarize(list(members))
        ratios = [number(found.pop(key, None)) for key in (TIME_RATIO, LATENCY_RATIO)]
        body.append([group, *found.values(), *ratios])
    head = ("Group", "Architectures", "Captured by torch.export", "of these right")
    head += ("Given to torch.onnx", "of these right with it")
    head += ("Refused by torch.export", "of these right", "Export / capture", "Latency")
    return table(head, body)


def _failures_table(rows: list[Row]) -> str:
    if not rows:
        return "None."
    body = (
        [_format_code(row["name"]), row["stage"], _escape_reason(row["reason"])] for row in rows
    )
    return _text_table(("Model", "Reached", "Reason"), body)


def _refusals_table(rows: list[Row]) -> str:
    if not rows:
        return "None."
    body = (
        [
            _format_code(row["name"]),
            row["stage"]
            if row["stage"] == RIGHT
            else f"{row['stage']}: {_escape_reason(row['reason'])}",
            _escape_reason(row["torch_export"]),
        ]
        for row in rows
    )
    return _text_table(("Model", "onnx_aot", "Reason of torch.export"), body)


def _wrong_elsewhere(rows: list[Row]) -> str:
    """Returns a table of captures that onnx_aot converts correctly and torch.onnx does not."""
    body = [
        [_format_code(row["name"]), peer["stage"], _escape_reason(peer["reason"])]
        for row in rows
        if (peer := row.get("torch_onnx")) and row["stage"] == RIGHT != peer["stage"]
    ]
    return _text_table(("Model", "Reached", "Reason"), body) if body else "None."


def _other_releases(rows: list[Row]) -> list[str]:
    """Returns results for the architectures on other releases of torch, with the differences."""
    paths = sorted(RESULTS.glob(f"{NAME}-torch-*.json"))
    before, parts = {row["name"]: row["stage"] for row in rows}, []
    for found in (read_json(path.stem) for path in paths):
        release = f"torch {found['machine']['packages']['torch'].partition('+')[0]}"
        counts = {key: value for key, value in summarize(found["rows"]).items() if value}
        body = [
            [
                _format_code(row["name"]),
                before[row["name"]],
                row["stage"],
                _escape_reason(row["reason"]),
            ]
            for row in found["rows"]
            if row["stage"] != before.get(row["name"], row["stage"])
        ]
        head = ("Model", "Above", release, "Reason")
        parts += [f"## With {release}", table(("", "Rows"), [[*item] for item in counts.items()])]
        parts.append("Differences:" if body else "Every architecture has the same result as above.")
        parts += [_text_table(head, body)] if body else []
    return parts


def _right_table(rows: Iterable[Row]) -> str:
    body = [
        [
            _format_code(row["name"]),
            row["nodes"].get("fx", "-"),
            row["nodes"]["ours"],
            row.get("torch_onnx", {}).get("nodes", "-"),
            number(_export_ratio(row)),
            number(_latency_ratio(row)),
            f"{row['max_absolute']:.1e}",
            _describe_remark(row),
        ]
        for row in rows
    ]
    if not body:
        return "None."
    head = ("Model", "FX nodes", "ONNX nodes", "torch.onnx's nodes", "Export / capture", "Latency")
    return table((*head, "Largest difference", "Remark"), body)


def _describe_remark(row: Row) -> str:
    """Lists fixed dimensions, a reference in float64, and the warnings of the export."""
    fixed = [f"{', '.join(row['fixed'])} fixed"] if row["fixed"] else []
    judged = ["judged by float64"] if row.get("float64") else []
    return "; ".join([*fixed, *judged, *row.get("warnings", ())])


def _export_ratio(row: Row) -> float | None:
    seconds = row["seconds"]
    return seconds["ours"] / seconds["plain"] if "plain" in seconds else None


def _latency_ratio(row: Row) -> float | None:
    seconds = row.get("torch_onnx", {}).get("latency")
    return seconds["ours"] / seconds["peer"] if seconds else None


def _text_table(head: tuple[str, ...], rows: Iterable[list[str]]) -> str:
    """Formats a table of text."""
    lines = (head, ["---"] * len(head), *rows)
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def _format_code(name: str) -> str:
    return f"`{name}`"


def _escape_reason(reason: str) -> str:
    """Formats a reason as code in one cell, with nothing that Markdown would interpret."""
    return f"`{reason.replace('`', chr(39)).replace('|', chr(92) + '|')}`"
