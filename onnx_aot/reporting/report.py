"""Builds the report of an export, an immutable result; ``markdown.py`` renders it as text."""

from __future__ import annotations

import ast
import collections
import json
import os
import platform
from importlib import metadata
from typing import Any

import torch

from onnx_aot.inspection.statistics import count_contents
from onnx_aot.inspection.verification import Verification, as_json
from onnx_aot.metadata.keys import DIMENSIONS, FUSED, OUTPUT_KIND
from onnx_aot.reporting.failures import failure_of
from onnx_aot.reporting.markdown import render
from onnx_aot.reporting.record import ExportRecord
from onnx_aot.reporting.report_fields import (
    DYNAMIC,
    AdaptationReport,
    Delivery,
    Fusion,
    OperatorUse,
    ReportFields,
    StageReport,
    ValueReport,
)
from onnx_aot.reporting.repro_script import make_script
from onnx_aot.torch_compat import without_locals

__all__ = ["ExportReport", "build_report"]

SCHEMA = 1
"""Version of what ``to_json`` writes; it rises if a field is removed or changes its meaning."""

PACKAGES = ("onnx-aot", "torch", "onnx", "onnx_ir", "onnxscript", "onnxruntime")
LARGEST = 5
HASHED = 256 * 10**6
"""Bytes of weights up to which the report includes the model's hash."""

STATUS = {True: "ok", False: "failed", None: "not reached"}


class ExportReport(ReportFields):
    """Report of an export, as data, text and JSON.

    Fields about the model are empty if the export failed before there was one.
    """

    def to_markdown(self) -> str:
        """Returns the report as text, for terminals and code hosts; what matters comes first."""
        return render(self)

    def to_json(self) -> str:
        """Returns all fields as JSON; ``schema`` is the version of their meaning."""
        return json.dumps(as_json(self), indent=2)

    @property
    def file_name(self) -> str:
        """``onnx_export_<time>_<stage that failed, or success>.md``, as torch.onnx names it."""
        return f"onnx_export_{self.started}_{self.file_suffix}.md"

    def save(self, folder: str | os.PathLike[str]) -> str:
        """Writes the text into a folder, which is created if it is missing.

        Returns:
            The path of the file.

        Raises:
            OSError: The file cannot be written.
        """
        os.makedirs(folder, exist_ok=True)
        path = os.path.join(folder, self.file_name)
        with open(path, "w", encoding="utf-8") as file:
            file.write(self.to_markdown())
        return path


def build_report(record: ExportRecord, program: Any = None) -> ExportReport:
    """Builds the report of an export that has ended.

    Args:
        record: Record of the export.
        program: The ``ONNXProgram``, or None if the export failed before there was one.
    """
    failed = [stage for stage in record.stages.values() if stage.succeeded is False]
    verification = Verification(tuple(record.verification)) if record.verification else None
    saved = bool(failed) and failed[0] is record.stages["save"]
    error = record.error
    return ExportReport(
        schema=SCHEMA,
        model=record.model,
        started=record.started,
        succeeded=error is None,
        failure=None
        if error is None
        else failure_of(error, failed[0].name if failed else "", record.traceback),
        stages=tuple(
            StageReport(stage.name, STATUS[stage.succeeded], stage.seconds, stage.memory)
            for stage in record.stages.values()
        ),
        strategy=record.strategy,
        asked={name: _shorten_repr(value) for name, value in record.asked.items()},
        notes=tuple(record.notes),
        note_codes=tuple(record.notes.values()),
        conditions=tuple(map(without_locals, record.conditions)),
        operators=_list_operators(record),
        optimizations=dict(record.optimizations.most_common()),
        adaptations=tuple(
            AdaptationReport(a.op_type, str(a.dtype), str(a.surrogate or ""), a.lossy, a.count)
            for a in record.adaptations
        ),
        verification=verification,
        versions=_read_versions(),
        script=make_script(record.source, record.training, record.inputs, record.asked, saved),
        profile=record.profile,
        file_suffix=failed[0].file_suffix if failed else "success",
        **_of_program(record, program),
    )


def _of_program(record: ExportRecord, program: Any) -> dict[str, Any]:
    """Fields of the report that are about the model."""
    if program is None:
        names = ("delivered", "relations", "inputs", "outputs", "largest", "fusions")
        return {**dict.fromkeys(names, ()), "contents": None, "dimensions": {}, "hash": ""}
    model = program.model
    graph = model.graph
    written = graph.metadata_props.get(DIMENSIONS)
    known = json.loads(written) if written else {}
    found = count_contents(model)
    inputs = tuple(_report_value("input", value) for value in graph.inputs)
    outputs = tuple(_report_value("output", value) for value in graph.outputs)
    return {
        "delivered": _list_deliveries(record, program),
        "dimensions": known.get("dimensions", {}),
        "relations": tuple(known.get("relations", ())),
        "contents": found,
        "inputs": inputs,
        "outputs": outputs,
        "largest": _find_largest_weights(graph),
        "hash": program.hash if found.bytes <= HASHED else "",
        "fusions": _count_fusions(graph),
    }


def _shorten_repr(value: Any) -> str:
    text = " ".join(repr(value).split())
    return text if len(text) <= 200 else text[:197] + "..."


def _report_value(role: str, value: Any) -> ValueReport:
    dtype = value.dtype.name if value.dtype is not None else "?"
    return ValueReport(role, str(value.name), dtype, str(value.shape))


def _list_deliveries(record: ExportRecord, program: Any) -> tuple[Delivery, ...]:
    graph, asked = program.model.graph, record.asked
    inputs, outputs = ([str(v.name) for v in values] for values in (graph.inputs, graph.outputs))
    sizes = [size for value in graph.inputs for size in value.shape or ()]
    dynamic = dict.fromkeys(str(size) for size in sizes if not isinstance(size, int))
    kinds = ((str(v.name), v.metadata_props.get(OUTPUT_KIND, "USER_OUTPUT")) for v in graph.outputs)
    state = [name for name, kind in kinds if kind != "USER_OUTPUT"]
    shapes = asked.get("dynamic_shapes", asked.get("dynamic_axes"))
    rows = [
        Delivery(
            "opset_version",
            str(asked.get("opset_version", "the default")),
            str(program.model.opset_imports.get("")),
        ),
        Delivery(
            DYNAMIC,
            "none" if shapes is None else _shorten_repr(shapes),
            ", ".join(dynamic) or "none",
        ),
    ]
    for option, names in (("input_names", inputs), ("output_names", outputs)):
        if asked.get(option):
            rows.append(Delivery(option, ", ".join(asked[option]), ", ".join(names)))
    if state or "state" in asked:
        rows.append(Delivery("state", asked.get("state", "outputs"), ", ".join(state) or "none"))
    return tuple(rows)


def _find_largest_weights(graph: Any) -> tuple[tuple[str, str, int], ...]:
    held = {name: v.const_value for name, v in graph.initializers.items() if v.const_value}
    return tuple(
        (str(name), f"{tensor.dtype.name}{list(map(int, tensor.shape))}", int(tensor.nbytes))
        for name, tensor in sorted(held.items(), key=lambda item: -item[1].nbytes)[:LARGEST]
    )


def _count_fusions(graph: Any) -> tuple[Fusion, ...]:
    counts: collections.Counter[str] = collections.Counter()
    replaced: collections.Counter[str] = collections.Counter()
    for node in graph.all_nodes():
        names = node.metadata_props.get(FUSED)
        if names:
            counts[node.op_type] += 1
            replaced[node.op_type] += len(ast.literal_eval(names))
    return tuple(Fusion(op, count, replaced[op]) for op, count in counts.most_common())


def _list_operators(record: ExportRecord) -> tuple[OperatorUse, ...]:
    counters = {
        "direct": record.direct,
        "custom": record.custom,
        "decomposed": record.decomposed,
        "own name": record.unsupported,
    }
    return tuple(
        OperatorUse(target, count, how)
        for how, counter in counters.items()
        for target, count in counter.most_common()
    )


def _read_versions() -> dict[str, str]:
    found = {"python": platform.python_version()}
    for package in PACKAGES:
        try:
            found[package] = metadata.version(package)
        except metadata.PackageNotFoundError:
            continue
    return found | {"torch": torch.__version__}  # with the build, such as +cpu
