"""Models that tests run end to end and that benchmarks time: one row per model.

A row builds a module with random weights, makes inputs of any size, and specifies the dynamic
dimensions. ``MODELS`` maps names to rows; ``BENCHMARKED`` has additional rows, which only the
benchmarks use.
"""

from __future__ import annotations

from benchmarks.models import classic, timm_vision, transformer, vision
from benchmarks.models.case import ModelCase

__all__ = ["BENCHMARKED", "MODELS", "ModelCase"]

MODELS: dict[str, ModelCase] = {
    case.name: case for case in (*classic.CASES, *vision.CASES, *transformer.CASES)
}

BENCHMARKED: dict[str, ModelCase] = MODELS | {
    case.name: case for case in (*vision.MORE, *timm_vision.CASES, *transformer.MORE)
}
