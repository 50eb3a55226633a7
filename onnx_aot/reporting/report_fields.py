"""Data of the report of an export."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping

from onnx_aot.inspection.statistics import Contents
from onnx_aot.inspection.verification import Verification
from onnx_aot.reporting.failures import Failure

__all__ = [
    "DYNAMIC",
    "AdaptationReport",
    "Delivery",
    "Fusion",
    "OperatorUse",
    "ReportFields",
    "StageReport",
    "ValueReport",
]

DYNAMIC = "dynamic dimensions"
"""``Delivery.what`` of the entry on dynamic dimensions."""


@dataclasses.dataclass(frozen=True)
class StageReport:
    """One stage.

    Attributes:
        name: What it does.
        status: ``"ok"``, ``"failed"`` or ``"not reached"``; a stage that was not asked for is not
            reached either.
        seconds: How long it took.
        memory: Growth of the process's memory in bytes, which can be negative; None if the system
            does not report it.
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
        how: ``"direct"``: translated from onnx_aot's table; ``"custom"``: translated by a function
            of the user; ``"decomposed"``: expanded with torch's rules; ``"own name"``: not
            translated, but a node of its own name.
    """

    target: str
    count: int
    how: str


@dataclasses.dataclass(frozen=True)
class ValueReport:
    """An input or output of the model: its role, name, ONNX type, and shape with named sizes."""

    role: str
    name: str
    dtype: str
    shape: str


@dataclasses.dataclass(frozen=True)
class Fusion:
    """Fused nodes of one operator: how many there are, and how many nodes they replace."""

    op_type: str
    count: int
    replaced: int


@dataclasses.dataclass(frozen=True)
class AdaptationReport:
    """Change that the target needed for nodes of one operator and type.

    Attributes:
        op_type: The operator.
        dtype: The type that the target has no kernel for.
        surrogate: The type that the nodes run in, between casts; empty if they were rewritten with
            other operators.
        lossy: Whether values can differ because of it.
        count: Number of nodes.
    """

    op_type: str
    dtype: str
    surrogate: str
    lossy: bool
    count: int


@dataclasses.dataclass(frozen=True)
class Delivery:
    """One request: what was asked for, and what was delivered."""

    what: str
    asked: str
    delivered: str


@dataclasses.dataclass(frozen=True)
class ReportFields:
    """The data of a report.

    Fields about the model are empty if the export failed before there was one.

    Attributes:
        schema: Version of the fields.
        model: Qualified name of the model's class or function.
        started: When the export began, as ``YYYY-MM-DD_HH-MM-SS-ffffff``.
        succeeded: Whether the export ended without an error.
        failure: Why it failed, or None.
        stages: The stages, in order.
        strategy: The call of torch that captured the model.
        asked: Arguments of ``export`` that are not the defaults, as text.
        delivered: What was asked for, next to what was delivered.
        notes: What the user should know; most were warnings.
        note_codes: Codes of the pages that explain the notes, in their order.
        conditions: Conditions on input sizes under which the captured graph matches the model.
        dimensions: Ranges of the dynamic dimensions by name, with ``min`` and ``max``.
        relations: Relations between sizes of inputs.
        contents: What the model consists of: opset, nodes by operator, weights, bytes.
        inputs: Inputs of the graph.
        outputs: Outputs of the graph.
        largest: The largest weights: name, type with shape, bytes.
        hash: SHA-256 of the model as one file; empty above 256 MB, which would take too long.
        operators: Operators of the captured graph, and how each was translated.
        fusions: Nodes that replace several.
        optimizations: How often each pass and rule changed the model, by name.
        adaptations: Changes that the target needed.
        verification: Result of the comparison with PyTorch, if asked for.
        versions: Versions of Python and packages.
        script: Python script that repeats the export with random inputs.
        profile: Call profile as text, if asked for.
        file_suffix: End of the report file's name: the stage that failed, or ``"success"``.
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
    note_codes: tuple[str, ...]
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
