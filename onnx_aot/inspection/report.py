"""The markdown report of an export: readable in a terminal and on a code host."""

from __future__ import annotations

import collections
import platform
import re
from collections.abc import Sequence
from importlib import metadata
from typing import Any

from onnx_aot.inspection.record import ExportRecord
from onnx_aot.inspection.verify import describe_sizes

__all__ = ["render_report"]

PACKAGES = ("onnx-aot", "torch", "onnx", "onnx_ir", "onnxscript", "onnxruntime")


def render_report(record: ExportRecord, program: Any = None) -> str:
    """The report of a successful or failed export.

    Args:
        record: What happened.
        program: The ``ONNXProgram``, when it came so far.
    """
    parts = [
        f"# ONNX export of {record.model}: {'failed' if record.error else 'succeeded'}",
        _error(record),
        _stages(record),
        _notes(record),
        _asked(record),
        _conditions(record),
    ]
    if program is not None:
        parts += [_interface(program), _contents(program)]
    parts += [_operators(record), _optimizations(record), _adaptations(record)]
    parts += [_verification(record), _profile(record), _versions()]
    if record.traceback:
        parts.append(f"## Traceback\n\n```pytb\n{record.traceback.rstrip()}\n```")
    return "\n\n".join(part for part in parts if part) + "\n"


def _table(header: Sequence[str], rows: Sequence[Sequence[Any]]) -> str:
    """A markdown table whose columns line up as plain text."""
    cells = [[str(cell).replace("|", "\\|") for cell in row] for row in (header, *rows)]
    widths = [max(len(row[column]) for row in cells) for column in range(len(header))]
    lines = [
        "| " + " | ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)) + " |"
        for row in cells
    ]
    lines.insert(1, "| " + " | ".join("-" * width for width in widths) + " |")
    return "\n".join(lines)


def _error(record: ExportRecord) -> str:
    if record.error is None:
        return ""
    return f"## What went wrong\n\n```\n{type(record.error).__name__}: {record.error}\n```"


def _stages(record: ExportRecord) -> str:
    words = {True: "ok", False: "FAILED", None: "-"}
    rows = [
        (stage.name, words[stage.succeeded], f"{stage.seconds:.3f}" if stage.seconds else "")
        for stage in record.stages.values()
    ]
    how = f"\n\nCaptured with `{record.strategy}`." if record.strategy else ""
    return "## Stages\n\n" + _table(("Stage", "Status", "Seconds"), rows) + how


def _notes(record: ExportRecord) -> str:
    if not record.notes:
        return ""
    return "## Notes\n\n" + "\n".join(f"- {note}" for note in record.notes)


def _asked(record: ExportRecord) -> str:
    given = [(name, f"`{value}`") for name, value in record.asked.items() if value is not None]
    return "## What was asked\n\n" + _table(("Option", "Value"), given) if given else ""


def _conditions(record: ExportRecord) -> str:
    if not record.conditions:
        return ""
    lines = "\n".join(re.sub(r"L\['(\w+)'\]", r"\1", code) for code in record.conditions)
    return (
        "## Conditions on sizes\n\nThe captured graph is the model's where these hold; elsewhere "
        f"the model may take other branches.\n\n```python\n{lines}\n```"
    )


def _interface(program: Any) -> str:
    graph = program.model.graph
    rows = [("input", *_described(value)) for value in graph.inputs]
    rows += [("output", *_described(value)) for value in graph.outputs]
    return "## Inputs and outputs\n\n" + _table(("", "Name", "Type", "Shape"), rows)


def _described(value: Any) -> tuple[str, str, str]:
    dtype = value.dtype.name if value.dtype is not None else "?"
    return f"`{value.name}`", dtype, str(value.shape)


def _contents(program: Any) -> str:
    model = program.model
    counts = collections.Counter(node.op_type for node in model.graph)
    initializers = [v.const_value for v in model.graph.initializers.values()]
    size = sum(tensor.nbytes for tensor in initializers if tensor is not None)
    summary = (
        f"Opset {model.opset_imports.get('')}, IR version {model.ir_version}, "
        f"{len(model.graph)} nodes, {len(initializers)} initializers of {size:,} bytes. "
        f"SHA-256 `{program.hash}` of the model as one file."
    )
    return (
        "## The ONNX model\n\n" + summary + "\n\n" + _table(("Node", "Count"), counts.most_common())
    )


def _operators(record: ExportRecord) -> str:
    rows = [(f"`{t}`", n, "table") for t, n in record.direct.most_common()]
    rows += [(f"`{t}`", n, "decomposed") for t, n in record.decomposed.most_common()]
    rows += [(f"`{t}`", n, "NOT TRANSLATED") for t, n in record.unsupported.most_common()]
    if not rows:
        return ""
    return "## Operators of the model\n\n" + _table(("Operator", "Count", "Translated by"), rows)


def _optimizations(record: ExportRecord) -> str:
    """Which passes and rules changed the model, and how often."""
    if not record.optimizations:
        return ""
    rows = [(f"`{name}`", count) for name, count in record.optimizations.most_common()]
    return "## What was optimized\n\n" + _table(("Pass or rule", "Times"), rows)


def _adaptations(record: ExportRecord) -> str:
    """What was written differently for the target."""
    if not record.adaptations:
        return ""
    rows = [
        (
            a.op_type,
            a.dtype,
            a.count,
            f"casts to {a.surrogate}" if a.surrogate is not None else "other operators",
            "values can differ" if a.lossy else "",
        )
        for a in record.adaptations
    ]
    header = ("Node", "Type without a kernel", "Count", "Runs as", "")
    return "## What the target needed\n\n" + _table(header, rows)


def _verification(record: ExportRecord) -> str:
    if not record.verification:
        return ""
    rows = []
    for result in record.verification:
        sizes = describe_sizes(result)
        refused = result.torch_refuses or result.runtime_refuses
        if refused:
            status = "FAILED" if result.failed else "not run"
            who = "PyTorch" if result.torch_refuses else "ONNX Runtime"
            rows.append((sizes, "", status, "", "", "", f"{who} refuses: {refused}"))
        for d in result.differences:
            status = "ok" if d.within else "FAILED"
            types = d.expected if d.expected == d.actual else f"{d.expected}, ONNX {d.actual}"
            distances = f"{d.max_absolute:.3g}", f"{d.max_relative:.3g}"
            rows.append((sizes, f"`{d.name}`", status, *distances, types, d.remark))
    header = ("Sizes", "Output", "Status", "Max abs", "Max rel", "PyTorch", "")
    return "## Verification against PyTorch\n\n" + _table(header, rows)


def _profile(record: ExportRecord) -> str:
    return f"## Profile\n\n```\n{record.profile.rstrip()}\n```" if record.profile else ""


def _versions() -> str:
    rows = [("python", platform.python_version())]
    for package in PACKAGES:
        try:
            rows.append((package, metadata.version(package)))
        except metadata.PackageNotFoundError:
            continue
    return "## Versions\n\n" + _table(("Package", "Version"), rows)
