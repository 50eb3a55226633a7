"""Definition of a clean-up rule's case."""

from __future__ import annotations

from typing import NamedTuple

__all__ = ["Case"]


class Case(NamedTuple):
    """A rule, a graph, and the operators that it leaves (None where the rule does not apply)."""

    rule: str
    graph: str
    left: str | None
    name: str = ""
