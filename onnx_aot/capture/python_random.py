"""Detects random numbers drawn with Python or numpy, which become constants of the graph."""

from __future__ import annotations

import contextlib
import random
from collections.abc import Iterator
from typing import Any

import numpy as np

__all__ = ["draws_observed"]


@contextlib.contextmanager
def draws_observed() -> Iterator[list[str]]:
    """Collects the names of Python's and numpy's global generators that are used meanwhile.

    The list is filled on exit. Generators that the model creates itself are not noticed.
    """
    drawn: list[str] = []
    before = random.getstate(), _numpy_state()
    yield drawn
    if random.getstate() != before[0]:
        drawn.append("random")
    if _numpy_state() != before[1]:
        drawn.append("numpy.random")


def _numpy_state() -> tuple[Any, ...]:
    name, keys, *rest = np.random.get_state()
    return (name, np.asarray(keys).tobytes(), *rest)
