"""What a report of an export holds."""

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
"""What an entry of ``delivered`` is about."""


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
class ReportFields:
    """The data of a report.

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
