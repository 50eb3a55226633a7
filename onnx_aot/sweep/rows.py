"""Rows of a sweep, what came of them, and the key that says whether a row has to run again."""

from __future__ import annotations

import dataclasses
import hashlib
import json
import re
from collections.abc import Mapping
from typing import Any

__all__ = [
    "LOST",
    "MEMORY",
    "RIGHT",
    "STATUSES",
    "TIME",
    "Limits",
    "Outcome",
    "Row",
    "as_text",
    "first_line",
    "folder_name",
    "key_of",
]

RIGHT, MEMORY, TIME, LOST = "right", "memory", "time", "lost"

STATUSES: dict[str, str] = {
    RIGHT: "exported, and everything that was checked is right",
    "wrong": "exported, but a check found a difference",
    "refused": "the export was refused with an error of onnx_aot",
    "failed": "the model, or a check, raised another error",
    "crashed": "the process of the row ended by a signal or without a result",
    TIME: "took longer than its limit",
    MEMORY: "took more memory than its limit",
    LOST: "the machine that ran it went away, also at the second try",
}
"""Every status of a row, the best first."""

SCHEMA = 1
"""Part of every key: another number makes all rows run again."""


@dataclasses.dataclass(frozen=True)
class Limits:
    """Limits of a row's process.

    Attributes:
        seconds: Wall-clock time.
        memory: Resident bytes of the process and those that it starts; None: no limit.
    """

    seconds: float = 600.0
    memory: int | None = None


@dataclasses.dataclass(frozen=True)
class Row:
    """One export with its checks, or any other task, in a process of its own.

    Attributes:
        name: Its name, which no other row of the plan has.
        task: ``package.module:function``, called in the row's process with ``settings`` and a
            ``Progress``; what it returns is the result.
        settings: Argument of the task; can be written as JSON.
        model: Name of the model, which several rows may share.
        options: Values in the columns of the matrix by column.
        limits: Limits of the process.
        cores: Cores that it computes with.
        gpus: GPUs that a cluster reserves for it; may be a fraction.
        torch: Release of torch to run with; "" for the installed one.
        code: Modules whose source, and packages whose version, the result depends on, besides the
            task's.
        files: Files that the result depends on.
        keep: Whether the exported model is kept: ``"never"``, ``"failed"`` or ``"always"``.
    """

    name: str
    task: str = "onnx_aot.sweep.export_task:export_model"
    settings: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    model: str = ""
    options: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    limits: Limits = Limits()
    cores: int = 1
    gpus: float = 0.0
    torch: str = ""
    code: tuple[str, ...] = ()
    files: tuple[str, ...] = ()
    keep: str = "never"

    def to_json(self) -> dict[str, Any]:
        """The row as JSON."""
        return dataclasses.asdict(self)

    @classmethod
    def from_json(cls, content: Mapping[str, Any]) -> Row:
        """The row that ``to_json`` wrote."""
        known = {**content, "limits": Limits(**content["limits"])}
        return cls(**{**known, "code": tuple(known["code"]), "files": tuple(known["files"])})


@dataclasses.dataclass
class Outcome:
    """Result of one try to run a row.

    Attributes:
        name: Name of the row.
        status: A key of ``STATUSES``.
        stage: The last stage that the row began.
        error: Class of the exception, or "".
        reason: Message of the exception, or why the process ended; "" if the row is right.
        seconds: Wall-clock time of the process.
        cpu_seconds: Its time on processors.
        peak_memory: Its largest resident size in bytes.
        started: When it began, in seconds since 1970.
        worker: Machine and slot that ran it.
        machine: Whether the machine may be at fault, so that another try is worth it.
        metrics: Figures by name.
        files: Contents of the files of the row by name, if it ran on another machine.
    """

    name: str
    status: str
    stage: str = ""
    error: str = ""
    reason: str = ""
    seconds: float = 0.0
    cpu_seconds: float = 0.0
    peak_memory: int = 0
    started: float = 0.0
    worker: str = ""
    machine: bool = False
    metrics: dict[str, Any] = dataclasses.field(default_factory=dict)
    files: dict[str, bytes] = dataclasses.field(default_factory=dict)


def key_of(row: Row, depends_on: Mapping[str, str]) -> str:
    """Returns the key of a row: equal keys have equal results, as far as can be known.

    Args:
        row: The row. Its name, limits and resources are not part of the key.
        depends_on: Versions, and hashes of code and files, that the result depends on.
    """
    parts = [SCHEMA, row.task, row.settings, row.options, row.torch, dict(depends_on)]
    text = json.dumps(parts, sort_keys=True, separators=(",", ":"), default=str)
    return hashlib.sha256(text.encode()).hexdigest()[:24]


_NOT_IN_FILE_NAMES = re.compile(r"[^\w.=+-]+")


def folder_name(name: str) -> str:
    """Name of a folder for a row; a name with other characters gets a hash at its end."""
    plain = _NOT_IN_FILE_NAMES.sub("_", name).strip("_.")[:100]
    if plain == name:
        return plain
    return f"{plain}-{hashlib.sha256(name.encode()).hexdigest()[:8]}"


def first_line(reason: str) -> str:
    """First line of a reason, with the second if the first announces a list."""
    lines = [line.strip() for line in reason.splitlines() if line.strip()]
    if not lines:
        return ""
    more = len(lines) > 1 and lines[0].endswith(":")
    return " ".join(lines[: 2 if more else 1])


def as_text(value: Any) -> str:
    """A value of an option as a plan writes it."""
    return str(value).lower() if isinstance(value, bool) else str(value)
