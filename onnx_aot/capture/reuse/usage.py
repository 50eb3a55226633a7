"""Tells what became of the calls of layers that repeat."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable

__all__ = ["Usage", "describe_reuse"]


@dataclasses.dataclass(frozen=True)
class Usage:
    """Counts of alike calls of modules of one class.

    Attributes:
        kind: The class.
        traced: The number of calls that were traced and compared.
        copied: The number of calls that were copied.
        reason: Why calls were not copied, or an empty string.
    """

    kind: str
    traced: int
    copied: int
    reason: str = ""


def describe_reuse(usages: Iterable[Usage]) -> str:
    """A sentence for the report: how many calls were copied, and why others were not."""
    copied: dict[str, list[int]] = {}
    refused: dict[str, str] = {}
    for usage in usages:
        counts = copied.setdefault(usage.kind, [0, 0])
        counts[0] += usage.traced
        counts[1] += usage.copied
        if usage.reason:
            refused[usage.kind] = usage.reason
    parts = [
        f"{kind}: {traced} calls traced, {count} copied"
        for kind, (traced, count) in copied.items()
        if count
    ]
    parts += [f"{kind}: all calls traced, because {reason}" for kind, reason in refused.items()]
    return f"layers that repeat are traced and compared, then copied: {'; '.join(parts)}"
