"""What an export did, as a result that does not change any more; ``markdown.py`` is its text."""

from __future__ import annotations

import ast
import collections
import dataclasses
import json
import os
import platform
from collections.abc import Mapping
from importlib import metadata
from typing import Any

import torch

from onnx_aot.inspection.contents import Contents, contents
from onnx_aot.inspection.failures import Failure, failure_of
from onnx_aot.inspection.record import ExportRecord
from onnx_aot.inspection.repro_script import script
from onnx_aot.inspection.verification import Verification, as_json
from onnx_aot.metadata_keys import DIMENSIONS, FUSED, OUTPUT_KIND
from onnx_aot.torch_compat import without_locals

__all__ = [
    "AdaptationReport",
    "Delivery",
    "ExportReport",
    "Fusion",
    "OperatorUse",
    "StageReport",
    "ValueReport",
    "build_report",
]

SCHEMA = 1
"""Version of what ``to_json`` writes: a field that goes away or changes its meaning raises it."""

PACKAGES = ("onnx-aot", "torch", "onnx", "onnx_ir", "onnxscript", "onnxruntime")
DYNAMIC = "dynamic dimensions"
"""What an entry of ``delivered`` is about."""

LARGEST = 5
HASHED = 256 * 10**6
"""Bytes of weights up to which the report has the model's hash."""

STATUS = {True: "ok", False: "failed", None: "not reached"}


@dataclasses.dataclass(frozen=True)
class StageReport:
    """One stage.

    Attributes:
        name: What it does.
        status: ``"ok"``, ``"failed"`` or ``"not reached"``; a stage that was not asked for is not
            reached either.
        seconds: How long it took.
        memory: How many bytes of memory the process has more after it, which can be negative; None
            where the system does not say.
    """

    name: str
    status: str
    seconds: float
    memory: int | None


@dataclasses.dataclass(frozen=True)
class OperatorUse:
    """An operator of the captured graph.

    Attributes:
        target: Its name.
        count: How many nodes call it.
        how: ``"direct"``: by a translation of its own; ``"custom"``: by a function of the user's;
            ``"decomposed"``: expanded with torch's rules; ``"own name"``: it has no translation,
            and is a node of its own name.
    """

    target: str
    count: int
    how: str


@dataclasses.dataclass(frozen=True)
class ValueReport:
    """An input or output of the model: its name, ONNX type and shape, names for dynamic sizes."""

    role: str
    name: str
    dtype: str
    shape: str


@dataclasses.dataclass(frozen=True)
class Fusion:
    """Nodes of one operator that stand for several: how many, and for how many."""

    op_type: str
    count: int
    replaced: int


@dataclasses.dataclass(frozen=True)
class AdaptationReport:
    """What the target needed for nodes of one operator and type.

    Attributes:
        op_type: The operator.
        dtype: The type that the target has no kernel for.
        surrogate: The type that they run in, between casts; empty where they were written with
            other operators.
        lossy: Whether values can differ because of it.
        count: For how many nodes.
    """

    op_type: str
    dtype: str
    surrogate: str
    lossy: bool
    count: int


@dataclasses.dataclass(frozen=True)
class Delivery:
    """What was asked and what came out."""

    what: str
    asked: str
    delivered: str


@dataclasses.dataclass(frozen=True)
class ExportReport:
    """What happened during an export.

    What is about the model is empty where the export did not come so far.

    Attributes:
        schema: Version of the fields.
        model: Qualified name of the model's class or function.
        started: When, as ``YYYY-MM-DD_HH-MM-SS-ffffff``.
        succeeded: Whether there is a program.
        failure: Why not.
        stages: In order.
        strategy: Which call of torch captured the model.
        asked: Arguments of ``export`` that are not the defaults, as text.
        delivered: What was asked beside what came out.
        notes: What the user should know; most were warnings.
        conditions: On sizes of inputs, under which the captured graph is the model's.
        dimensions: Ranges of the dynamic dimensions by name, with ``min`` and ``max``.
        relations: Between sizes of inputs.
        contents: What the model consists of: opset, nodes by operator, weights, bytes.
        inputs: Of the graph, and ``outputs``.
        largest: The largest weights: name, type with shape, bytes.
        hash: SHA-256 of the model as one file; empty above 256 MB, which take long to read.
        operators: Of the captured graph, and how each was translated.
        fusions: Nodes that stand for several.
        optimizations: How often each pass and rule changed the model.
        adaptations: What the target needed.
        verification: What came of comparing with PyTorch, if it was asked for.
        versions: Of Python and packages.
        script: Python that repeats the export with random inputs.
        profile: Call profile, if it was asked for.
        file_suffix: How the name of the file ends: the stage that failed, or ``"success"``.
    """

    schema: int
    model: str
    started: str
    succeeded: bool
    failure: Failure | None
    stages: tuple[StageReport, ...]
    strategy: str
    asked: Mapping[str, str]
    delivered: tuple[Delivery, ...]
    notes: tuple[str, ...]
    conditions: tuple[str, ...]
    dimensions: Mapping[str, Mapping[str, int]]
    relations: tuple[str, ...]
    contents: Contents | None
    inputs: tuple[ValueReport, ...]
    outputs: tuple[ValueReport, ...]
    largest: tuple[tuple[str, str, int], ...]
    hash: str
    operators: tuple[OperatorUse, ...]
    fusions: tuple[Fusion, ...]
    optimizations: Mapping[str, int]
    adaptations: tuple[AdaptationReport, ...]
    verification: Verification | None
    versions: Mapping[str, str]
    script: str
    profile: str
    file_suffix: str

    def to_markdown(self) -> str:
        """The report as text, for terminals and code hosts; the first screen says what matters."""
        from onnx_aot.inspection.markdown import render

        return render(self)

    def to_json(self) -> str:
        """All fields for programs; ``schema`` is the version of their meaning."""
        return json.dumps(as_json(self), indent=2)

    @property
    def file_name(self) -> str:
        """``onnx_export_<time>_<stage that failed, or success>.md``, as torch.onnx names it."""
        return f"onnx_export_{self.started}_{self.file_suffix}.md"

    def save(self, folder: str | os.PathLike[str]) -> str:
        """Writes the text into a folder, which is made where it is missing.

        Returns:
            The path of the file.

        Raises:
            OSError: It cannot be written.
        """
        os.makedirs(folder, exist_ok=True)
        path = os.path.join(folder, self.file_name)
        with open(path, "w", encoding="utf-8") as file:
            file.write(self.to_markdown())
        return path


def build_report(record: ExportRecord, program: Any = None) -> ExportReport:
    """The report of an export that has ended.

    Args:
        record: What happened.
        program: The ``ONNXProgram``, when it came so far.
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
        asked={name: _short(value) for name, value in record.asked.items()},
        notes=tuple(record.notes),
        conditions=tuple(map(without_locals, record.conditions)),
        operators=_operators(record),
        optimizations=dict(record.optimizations.most_common()),
        adaptations=tuple(
            AdaptationReport(a.op_type, str(a.dtype), str(a.surrogate or ""), a.lossy, a.count)
            for a in record.adaptations
        ),
        verification=verification,
        versions=_versions(),
        script=script(record.source, record.training, record.inputs, record.asked, saved),
        profile=record.profile,
        file_suffix=failed[0].file_suffix if failed else "success",
        **_of_program(record, program),
    )


def _of_program(record: ExportRecord, program: Any) -> dict[str, Any]:
    """The fields that are about the model."""
    if program is None:
        names = ("delivered", "relations", "inputs", "outputs", "largest", "fusions")
        return {**dict.fromkeys(names, ()), "contents": None, "dimensions": {}, "hash": ""}
    model = program.model
    graph = model.graph
    written = graph.metadata_props.get(DIMENSIONS)
    known = json.loads(written) if written else {}
    found = contents(model)
    inputs = tuple(_value("input", value) for value in graph.inputs)
    outputs = tuple(_value("output", value) for value in graph.outputs)
    return {
        "delivered": _delivered(record, program),
        "dimensions": known.get("dimensions", {}),
        "relations": tuple(known.get("relations", ())),
        "contents": found,
        "inputs": inputs,
        "outputs": outputs,
        "largest": _largest(graph),
        "hash": program.hash if found.bytes <= HASHED else "",
        "fusions": _fusions(graph),
    }


def _short(value: Any) -> str:
    text = " ".join(repr(value).split())
    return text if len(text) <= 200 else text[:197] + "..."


def _value(role: str, value: Any) -> ValueReport:
    dtype = value.dtype.name if value.dtype is not None else "?"
    return ValueReport(role, str(value.name), dtype, str(value.shape))


def _delivered(record: ExportRecord, program: Any) -> tuple[Delivery, ...]:
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
            "none" if shapes is None else _short(shapes),
            ", ".join(dynamic) or "none",
        ),
    ]
    for option, names in (("input_names", inputs), ("output_names", outputs)):
        if asked.get(option):
            rows.append(Delivery(option, ", ".join(asked[option]), ", ".join(names)))
    if state or "state" in asked:
        rows.append(Delivery("state", asked.get("state", "outputs"), ", ".join(state) or "none"))
    return tuple(rows)


def _largest(graph: Any) -> tuple[tuple[str, str, int], ...]:
    held = {name: v.const_value for name, v in graph.initializers.items() if v.const_value}
    return tuple(
        (str(name), f"{tensor.dtype.name}{list(map(int, tensor.shape))}", int(tensor.nbytes))
        for name, tensor in sorted(held.items(), key=lambda item: -item[1].nbytes)[:LARGEST]
    )


def _fusions(graph: Any) -> tuple[Fusion, ...]:
    counts: collections.Counter[str] = collections.Counter()
    replaced: collections.Counter[str] = collections.Counter()
    for node in graph.all_nodes():
        names = node.metadata_props.get(FUSED)
        if names:
            counts[node.op_type] += 1
            replaced[node.op_type] += len(ast.literal_eval(names))
    return tuple(Fusion(op, count, replaced[op]) for op, count in counts.most_common())


def _operators(record: ExportRecord) -> tuple[OperatorUse, ...]:
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


def _versions() -> dict[str, str]:
    found = {"python": platform.python_version()}
    for package in PACKAGES:
        try:
            found[package] = metadata.version(package)
        except metadata.PackageNotFoundError:
            continue
    return found | {"torch": torch.__version__}  # with the build, such as +cpu
