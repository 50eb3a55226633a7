"""Collects what happens during one export."""

from __future__ import annotations

import collections
import contextlib
import dataclasses
import os
import time
from collections.abc import Iterator, Sequence
from typing import Any

from onnx_aot.inspection.differences import SizeResult

__all__ = ["ExportRecord", "Stage"]


@dataclasses.dataclass
class Stage:
    """One stage: its name, its duration, and whether it succeeded (None: not reached).

    ``memory`` is the growth of the process's memory in bytes, or None if the system does not
    report it.
    """

    name: str
    file_suffix: str
    seconds: float = 0.0
    memory: int | None = None
    succeeded: bool | None = None


def _make_stages() -> dict[str, Stage]:
    stages = (
        Stage("Capture the model with torch.export", "pt_export"),
        Stage("Rewrite the captured graph", "decomp"),
        Stage("Translate operators to ONNX", "conversion"),
        Stage("Optimize the ONNX model", "optimization"),
        Stage("Fit the ONNX model to the target", "legalization"),
        Stage("Check what was delivered against what was asked", "checker"),
        Stage("Verify in ONNX Runtime", "accuracy"),
        Stage("Save", "save"),
    )
    keys = ("capture", "fx_passes", "translate", "ir_passes", "legalize", "check", "verify", "save")
    return dict(zip(keys, stages, strict=True))


def resident_memory() -> int | None:
    """Resident memory of the process in bytes; None if the system does not report it."""
    try:
        # no file object, which takes longer to make than the rest
        descriptor = os.open("/proc/self/statm", os.O_RDONLY)
        try:
            pages = os.read(descriptor, 128).split()[1]
        finally:
            os.close(descriptor)
        return int(pages) * os.sysconf("SC_PAGE_SIZE")
    except (OSError, ValueError, IndexError, AttributeError):
        return None


@dataclasses.dataclass
class ExportRecord:
    """Everything that a report is built from.

    Attributes:
        model: Qualified class name of the model.
        started: When the export began, as ``YYYY-MM-DD_HH-MM-SS-ffffff``.
        stages: By key, in order.
        source: The class or function that the model is, for the script that repeats the export.
        training: Whether the model was in training mode.
        inputs: Python code that makes inputs like the example's.
        asked: Arguments of ``export`` that are not the defaults, by name.
        strategy: How the model was captured.
        direct: Operators translated from the table, with counts.
        custom: Operators translated by functions of the user, with counts.
        decomposed: Operators that were expanded, with counts.
        unsupported: Operators with neither, which are nodes of their own names, with counts.
        conditions: Conditions on input sizes under which the model was captured.
        optimizations: How often each pass and rule changed the model, by name.
        adaptations: Changes that the target needed: entries with ``op_type``, ``dtype``,
            ``surrogate``, ``lossy`` and ``count``.
        notes: What the user should know, such as a fallback that was taken, with the code of each.
        verification: Results of the comparison with PyTorch, per set of sizes, if asked for.
        profile: Call profile as text, if asked for.
        error: The exception that ended the export.
        traceback: Its traceback as text.
    """

    model: str
    started: str
    stages: dict[str, Stage] = dataclasses.field(default_factory=_make_stages)
    source: Any = None
    training: bool = False
    inputs: str = "()"
    asked: dict[str, Any] = dataclasses.field(default_factory=dict)
    strategy: str = ""
    direct: collections.Counter[str] = dataclasses.field(default_factory=collections.Counter)
    custom: collections.Counter[str] = dataclasses.field(default_factory=collections.Counter)
    decomposed: collections.Counter[str] = dataclasses.field(default_factory=collections.Counter)
    unsupported: collections.Counter[str] = dataclasses.field(default_factory=collections.Counter)
    conditions: list[str] = dataclasses.field(default_factory=list)
    optimizations: collections.Counter[str] = dataclasses.field(default_factory=collections.Counter)
    adaptations: Sequence[Any] = ()
    notes: dict[str, str] = dataclasses.field(default_factory=dict)
    verification: list[SizeResult] = dataclasses.field(default_factory=list)
    profile: str = ""
    error: BaseException | None = None
    traceback: str = ""

    @contextlib.contextmanager
    def time_stage(self, key: str) -> Iterator[None]:
        """Times a stage and records whether it succeeded."""
        stage = self.stages[key]
        before, start = resident_memory(), time.perf_counter()
        stage.succeeded = False
        try:
            yield
            stage.succeeded = True
        finally:
            stage.seconds = time.perf_counter() - start
            after = resident_memory()
            stage.memory = None if before is None or after is None else after - before
