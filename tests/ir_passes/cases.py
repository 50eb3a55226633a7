"""What a case of a clean-up rule consists of."""

from __future__ import annotations

from typing import NamedTuple

__all__ = ["Case"]


class Case(NamedTuple):
    """A rule, a graph, and the operators that it leaves; None where it does not apply."""

    rule: str
    graph: str
    left: str | None
    name: str = ""
