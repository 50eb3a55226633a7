"""The models that tests run end to end and that benchmarks time: one row per model.

A row builds a module with random weights, makes inputs of any size, and says which
dimensions are dynamic. ``MODELS`` maps the row's name to the row.
"""

from __future__ import annotations

from benchmarks.models import classic, transformer, vision
from benchmarks.models.case import ModelCase

__all__ = ["MODELS", "ModelCase"]

MODELS: dict[str, ModelCase] = {
    case.name: case for case in (*classic.CASES, *vision.CASES, *transformer.CASES)
}
