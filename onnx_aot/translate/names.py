"""Unique names, in constant time each."""

from __future__ import annotations

from collections.abc import Iterable

__all__ = ["Names"]


class Names:
    """Hands out names that nothing else in the graph has; names reserved first stay as asked."""

    def __init__(self, reserved: Iterable[str] = ()) -> None:
        self._taken = set(reserved)
        self._next: dict[str, int] = {}

    def unique(self, wanted: str) -> str:
        """``wanted``, or with the first free number appended: ``wanted_1``."""
        name = wanted
        while name in self._taken:
            number = self._next.get(wanted, 0) + 1
            self._next[wanted] = number
            name = f"{wanted}_{number}"
        self._taken.add(name)
        return name
