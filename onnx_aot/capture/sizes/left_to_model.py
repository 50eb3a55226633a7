"""Finds the dimensions that ``Dim.AUTO`` leaves to the model, and that the model fixes."""

from __future__ import annotations

from collections.abc import Sequence

import torch

from onnx_aot.capture.sizes.captured_dimensions import static_dimensions
from onnx_aot.capture.sizes.deciding_lines import find_symbol, lines_fixing
from onnx_aot.capture.sizes.dimension_requests import DynamicShapes, RequestedDim
from onnx_aot.capture.sizes.guards import Decision, Location
from onnx_aot.capture.sizes.unrolled_loops import is_for, is_loop

__all__ = ["describe_fixed", "is_fixed_by_loop"]

Fixed = tuple[RequestedDim, int, tuple[Location, ...]]


def _find_fixed(
    program: torch.export.ExportedProgram, requested: DynamicShapes, decisions: Sequence[Decision]
) -> list[Fixed]:
    """The dimensions with the sizes at which they are fixed, and the lines that fix them."""
    return [
        (dim, size, lines_fixing(find_symbol(dim, requested, decisions), decisions))
        for dim, size in static_dimensions(program, requested, left_to_model=True)
    ]


def is_fixed_by_loop(
    program: torch.export.ExportedProgram, requested: DynamicShapes, decisions: Sequence[Decision]
) -> bool:
    """True if a Python loop fixes such a dimension."""
    found = _find_fixed(program, requested, decisions)
    return any(is_loop(line.text) for _, _, lines in found for line in lines)


def describe_fixed(
    program: torch.export.ExportedProgram, requested: DynamicShapes, decisions: Sequence[Decision]
) -> tuple[list[str], list[str]]:
    """Sentences about the dimensions that Python loops fix, and about those that other code does.

    Args:
        program: The captured program.
        requested: The request of the user.
        decisions: The decisions of the capture, with the user's lines.
    """
    by_loops: list[str] = []
    by_others: list[str] = []
    for dim, size, lines in _find_fixed(program, requested, decisions):
        sentence = f"{dim} at {size}" + "".join(f", by {line.cited}" for line in lines)
        counted = {d.location for d in decisions if d.is_number or d.kind == "pieces"}
        is_unrolled = any(is_for(line.text) and line in counted for line in lines)
        (by_loops if is_unrolled else by_others).append(sentence)
    return by_loops, by_others
