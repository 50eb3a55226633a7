"""Renders the report of an export as Markdown that is readable as plain text too."""

from __future__ import annotations

import os
import textwrap
from collections.abc import Mapping, Sequence
from typing import Any

from onnx_aot.errors import SourceLocation
from onnx_aot.inspection.statistics import Contents
from onnx_aot.inspection.text import size_text
from onnx_aot.inspection.verification import describe_sizes
from onnx_aot.inspection.weight_types import Storage
from onnx_aot.reporting.failures import Failure
from onnx_aot.reporting.markdown_text import escape_html, fence_code, format_table, quote_code
from onnx_aot.reporting.report_fields import DYNAMIC, ReportFields

__all__ = ["FIRST_SCREEN", "render"]

FIRST_SCREEN = 25
"""Lines within which the cause and the fix of a failure are shown."""

COLUMNS = 100
PLACES = 2
PARAGRAPH = 6
"""Lines of the cause and of the fix on the first screen; the whole message is below."""


def render(report: ReportFields) -> str:
    """Renders the whole report."""
    verdict = "succeeded" if report.succeeded else "failed"
    failure = report.failure
    parts = [
        f"# ONNX export of {escape_html(report.model)}: {verdict}",
        fence_code(
            _summarize_success(report) if failure is None else _first_screen(failure), "text"
        ),
        _stages_section(report),
        "" if failure is None else _details_section(failure),
        "" if failure is None else f"## What went wrong\n\n{fence_code(_format_message(failure))}",
        _notes_section(report),
        _pairs_section("What was asked", ("Option", "Value"), _quote_values(report.asked)),
        _delivery_section(report),
        _sizes_sections(report),
        _interface_section(report),
        _contents_section(report),
        _operators_section(report),
        _pairs_section(
            "What was optimized", ("Pass or rule", "Times"), _quote_names(report.optimizations)
        ),
        _adaptations_section(report),
        _verification_section(report),
        f"## Profile\n\n{fence_code(report.profile)}" if report.profile else "",
        _pairs_section("Versions", ("Package", "Version"), report.versions),
        _script(report),
        "" if failure is None else f"## Traceback\n\n{fence_code(failure.traceback, 'pytb')}",
    ]
    return "\n\n".join(part for part in parts if part) + "\n"


# --- pieces of text ------------------------------------------------------------------------------


def _notes_section(report: ReportFields) -> str:
    """Section with the notes, each with its code; ``onnx-aot explain CODE`` prints its page."""
    if not report.notes:
        return ""
    notes = zip(report.notes, report.note_codes, strict=True)
    return "## Notes\n\n" + "\n".join(f"- {escape_html(text)} ({code})" for text, code in notes)


def _pairs_section(title: str, header: tuple[str, str], entries: Mapping[str, Any]) -> str:
    return f"## {title}\n\n{format_table(header, list(entries.items()))}" if entries else ""


def _quote_names(entries: Mapping[str, Any]) -> dict[str, Any]:
    return {quote_code(name): value for name, value in entries.items()}


def _quote_values(entries: Mapping[str, str]) -> dict[str, str]:
    return {name: quote_code(value) for name, value in entries.items()}


# --- the first screen ----------------------------------------------------------------------------


def _first_screen(failure: Failure) -> str:
    """Cause, place and fix of a failure, within one screen."""
    lines = [f"stage  {failure.stage}"] if failure.stage else []
    lines += _label_text("cause", f"{failure.error}: {_without_name(failure)}")
    for number, place in enumerate(failure.places[:PLACES]):
        lines += _label_lines("where" if number == 0 else "", _describe_place(place))
    if len(failure.places) > PLACES:
        lines.append(f"       and {len(failure.places) - PLACES} more, below")
    lines += _label_text("fix", failure.fix)
    if failure.code:
        lines.append(f"see    onnx-aot explain {failure.code}")
    return "\n".join(lines)


def _without_name(failure: Failure) -> str:
    return failure.cause.removeprefix(f"{failure.error}: ")


def _label_text(label: str, text: str) -> list[str]:
    wrapped = [piece for line in text.splitlines() for piece in _wrap_line(line)]
    if len(wrapped) > PARAGRAPH:
        wrapped[PARAGRAPH - 1 :] = [f"{wrapped[PARAGRAPH - 1][: COLUMNS - 11]} ..."]
    return _label_lines(label, wrapped)


def _wrap_line(line: str) -> list[str]:
    """Wraps a line without breaks in paths, names and options."""
    return textwrap.wrap(line, COLUMNS - 7, break_long_words=False, break_on_hyphens=False) or [""]


def _label_lines(label: str, lines: Sequence[str]) -> list[str]:
    return [f"{label if i == 0 else '':<7}{line}" for i, line in enumerate(lines)]


def _describe_place(place: SourceLocation) -> list[str]:
    """Text for a line of the user's code, with its module and captured node."""
    of = [f"module {place.module}"] if place.module else []
    of += [f"captured node {place.node}"] if place.node else []
    code = [f"    {place.code[: COLUMNS - 11]}"] if place.code else []
    lines = [f"{_shorten_path(place.file)}:{place.line} in {place.function}", *code]
    if of:
        lines.append(", ".join(of))
    if place.caller is not None:
        first, *others = _describe_place(place.caller)
        lines += [f"called from {first}", *others]
    return lines


def _shorten_path(file: str) -> str:
    """Path of a file, relative to the working directory if the file is in it."""
    here = os.getcwd() + os.sep
    return file.removeprefix(here)


def _summarize_success(report: ReportFields) -> str:
    """Summary of a successful export, in a few lines."""
    lines, found = [], report.contents
    if found is not None:
        lines.append(
            f"model     opset {found.opsets.get('')}, {found.nodes:,} nodes, {found.weights:,} "
            f"tensors with {found.elements:,} elements ({size_text(found.bytes)})"
        )
        held, wide = _count_bytes(found.storage)
        types = ", ".join(f"{row.dtype} {size_text(row.bytes)}" for row in found.storage)
        if held < wide:
            lines.append(f"stored    {types}; {wide / held:.1f} times as much in float32")
    names = [row.delivered for row in report.delivered if row.what == DYNAMIC]
    seconds = sum(stage.seconds for stage in report.stages)
    lines += [f"dynamic   {text}" for text in names]
    lines.append(f"captured  with {report.strategy}; everything took {seconds:.2f} s")
    if report.verification is not None:
        verdict = "agrees" if report.verification.ok else "differs"
        count = len(report.verification.results)
        lines.append(f"verified  {verdict} with PyTorch at {count} set(s) of sizes")
    else:
        lines.append("verified  no; verify=True compares it with PyTorch")
    lines.append(f"notes     {len(report.notes) or 'none'}")
    return "\n".join(lines)


# --- sections ------------------------------------------------------------------------------------


def _format_message(failure: Failure) -> str:
    return f"{failure.error}: {failure.message}"


def _details_section(failure: Failure) -> str:
    """Section with all problems of a failure that has several."""
    if not failure.details:
        return ""
    parts = ["## All that is missing"]
    for detail in failure.details:
        parts.append(f"### {quote_code(detail.what)}")
        parts.append(escape_html(detail.reason))
        places = [line for place in detail.places for line in _describe_place(place)]
        if places:
            parts.append(fence_code("\n".join(places), "text"))
        if detail.stub:
            parts.append(fence_code(detail.stub, "python"))
    return "\n\n".join(parts)


def _stages_section(report: ReportFields) -> str:
    words = {"ok": "ok", "failed": "FAILED", "not reached": "-"}
    rows = [
        (
            stage.name,
            words[stage.status],
            f"{stage.seconds:.3f}" if stage.status != "not reached" else "",
            "" if stage.memory is None else size_text(stage.memory),
        )
        for stage in report.stages
    ]
    how = f"\n\nCaptured with `{report.strategy}`." if report.strategy else ""
    header = ("Stage", "Status", "Seconds", "Memory grew by")
    return f"## Stages\n\n{format_table(header, rows)}{how}"


def _delivery_section(report: ReportFields) -> str:
    if not report.delivered:
        return ""
    rows = [(row.what, row.asked, row.delivered) for row in report.delivered]
    return f"## What was delivered\n\n{format_table(('What', 'Asked', 'Delivered'), rows)}"


def _sizes_sections(report: ReportFields) -> str:
    """Sections with ranges, relations and conditions of the dynamic dimensions."""
    parts = []
    if report.dimensions:
        rows = [
            (quote_code(name), limits.get("min", ""), limits.get("max", ""))
            for name, limits in report.dimensions.items()
        ]
        parts.append(f"## Dynamic dimensions\n\n{format_table(('Name', 'From', 'To'), rows)}")
    if report.relations:
        parts.append(
            "## Relations of sizes\n\n" + fence_code("\n".join(report.relations), "python")
        )
    if report.conditions:
        parts.append(
            "## Conditions on sizes\n\nThe captured graph is the model's where these hold; "
            "elsewhere the model may take other branches.\n\n"
            + fence_code("\n".join(report.conditions), "python")
        )
    return "\n\n".join(parts)


def _interface_section(report: ReportFields) -> str:
    rows = [
        (value.role, quote_code(value.name), value.dtype, value.shape)
        for value in (*report.inputs, *report.outputs)
    ]
    header = ("", "Name", "Type", "Shape")
    return f"## Inputs and outputs\n\n{format_table(header, rows)}" if rows else ""


def _contents_section(report: ReportFields) -> str:
    found = report.contents
    if found is None:
        return ""
    opsets = ", ".join(
        f"{escape_html(domain or 'ai.onnx')} {version}" for domain, version in found.opsets.items()
    )
    text = (
        f"Opset {opsets}, IR version {found.ir_version}, {found.nodes} nodes, {found.weights} "
        f"initializers of {found.elements:,} elements and {found.bytes:,} bytes."
    )
    if report.hash:
        text += f" SHA-256 `{report.hash}` of the model as one file."
    parts = [
        "## The ONNX model",
        text,
        format_table(("Node", "Count"), list(found.operators.items())),
    ]
    parts += _storage_tables(found)
    if report.largest:
        rows = [(quote_code(name), kind, f"{size:,}") for name, kind, size in report.largest]
        parts.append(format_table(("Largest weights", "Type and shape", "Bytes"), rows))
    return "\n\n".join(parts)


INT8_BY_DEFAULT = (
    "Calls of the program and verification multiply with dequantized weights in float32. A session "
    "of ONNX Runtime rounds what it multiplies with them to int8 by default, unless its option "
    "`session.qdq_matmulnbits_accuracy_level` is `1`."
)


def _count_bytes(rows: Sequence[Storage]) -> tuple[int, int]:
    """Bytes that the weights take, and bytes that they would take as float32."""
    return sum(row.bytes for row in rows), sum(row.in_float32 for row in rows)


def _storage_tables(found: Contents) -> list[str]:
    """Tables of the weights by type, if they take less than in float32."""
    rows, (held, wide) = found.storage, _count_bytes(found.storage)
    if held >= wide:
        return []
    cells = [
        (row.dtype, row.tensors, *(f"{n:,}" for n in (row.elements, row.bytes, row.in_float32)))
        for row in rows
    ]
    header = ("Stored as", "Tensors", "Elements", "Bytes", "Bytes in float32")
    total = (
        f"The weights take {size_text(held)}; in float32 they would take {size_text(wide)}, "
        f"{wide / held:.1f} times as much. Scales and zero points count as nothing there."
    )
    dequantizes = "DequantizeLinear" in found.operators
    return [format_table(header, cells), total, *([INT8_BY_DEFAULT] if dequantizes else [])]


def _operators_section(report: ReportFields) -> str:
    words = {
        "direct": "its own translation",
        "custom": "yours",
        "decomposed": "expanded with torch's rules",
        "own name": "NOT TRANSLATED",
    }
    parts = []
    if report.operators:
        rows = [(quote_code(use.target), use.count, words[use.how]) for use in report.operators]
        header = ("Operator", "Count", "Translated by")
        parts.append(f"## Operators of the model\n\n{format_table(header, rows)}")
    if report.fusions:
        fused = [(f.op_type, f.count, f.replaced) for f in report.fusions]
        parts.append(format_table(("Fused into", "Nodes", "In place of"), fused))
    return "\n\n".join(parts)


def _adaptations_section(report: ReportFields) -> str:
    """Section with the nodes that were written differently for the target."""
    rows = [
        (
            a.op_type,
            a.dtype,
            a.count,
            f"casts to {a.surrogate}" if a.surrogate else "other operators",
            "values can differ" if a.lossy else "",
        )
        for a in report.adaptations
    ]
    header = ("Node", "Type without a kernel", "Count", "Runs as", "")
    return f"## What the target needed\n\n{format_table(header, rows)}" if rows else ""


def _verification_section(report: ReportFields) -> str:
    if report.verification is None:
        return ""
    rows, blocks = [], []
    for result in report.verification.results:
        sizes = describe_sizes(result)
        refused = result.torch_refuses or result.runtime_refuses
        if refused:
            status = "FAILED" if result.failed else "not run"
            who = "PyTorch" if result.torch_refuses else "ONNX Runtime"
            rows.append((sizes, "", status, "", "", "", "", f"{who} refuses: {refused}"))
        for d in result.differences:
            status = "ok" if d.right else "FAILED"
            types = d.expected if d.expected == d.actual else f"{d.expected}, ONNX {d.actual}"
            numbers = f"{d.max_absolute:.3g}", f"{d.max_relative:.3g}", d.accepted
            rows.append((sizes, quote_code(d.name), status, *numbers, types, d.details))
            if not d.right and d.bars:
                blocks.append(fence_code(f"{d.name} at {sizes}: {d.bars}", "text"))
    header = ("Sizes", "Output", "Status", "Max abs", "Max rel", "Accepted", "PyTorch", "")
    return "\n\n".join(["## Verification against PyTorch", format_table(header, rows), *blocks])


def _script(report: ReportFields) -> str:
    return (
        "## Repeat it\n\nWith random values in inputs of the same shapes and types. "
        f"{'It stops at what is to be filled in.' if 'raise SystemExit' in report.script else ''}"
        f"\n\n{fence_code(report.script, 'python')}"
    ).replace(" \n", "\n")
