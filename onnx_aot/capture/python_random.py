"""Detects random numbers drawn with Python or numpy, which become constants of the graph."""

from __future__ import annotations

import contextlib
import random
from collections.abc import Iterator
from typing import Any

import numpy as np

__all__ = ["draws_observed", "state_of_generators"]


@contextlib.contextmanager
def draws_observed() -> Iterator[list[str]]:
    """Collects the names of Python's and numpy's global generators that are used meanwhile.

    The list is filled on exit. Generators that the model creates itself are not noticed.
    """
    drawn: list[str] = []
    before = state_of_generators()
    yield drawn
    now = state_of_generators()
    drawn.extend(name for name in now if now[name] != before[name])


def state_of_generators() -> dict[str, Any]:
    """The states of Python's and numpy's global generators, by the name of the module."""
    name, keys, *rest = np.random.get_state()
    return {
        "random": random.getstate(),
        "numpy.random": (name, np.asarray(keys).tobytes(), *rest),
    }
