"""Compares a value of the ONNX model with the captured one, at its type's tolerance."""

from __future__ import annotations

import dataclasses
from typing import Any

import torch

from onnx_aot.dtypes import TOLERANCES, to_torch
from onnx_aot.inspection.differences import OutputDifference, compare_outputs, compare_types
from onnx_aot.inspection.precision import is_near
from onnx_aot.inspection.value_mapping import Pair

__all__ = ["compare_pair", "with_remark"]

RANDOM = "random: only type and shape were compared"


def compare_pair(
    pair: Pair,
    expected: Any,
    actual: torch.Tensor,
    is_random: bool = False,
    precision: torch.dtype | None = None,
) -> OutputDifference:
    """Compares PyTorch's and the ONNX model's result for a value.

    Args:
        pair: The value.
        expected: A tensor or number, as the captured graph returns it.
        actual: The result of ONNX Runtime.
        is_random: Whether only type and shape are compared.
        precision: A less precise type, of values that both were computed from.
    """
    remark = ""
    if not isinstance(expected, torch.Tensor):
        number = torch.tensor(expected, dtype=actual.dtype)
        expected = number.reshape(actual.shape) if actual.numel() == 1 else number
    elif actual.dtype != expected.dtype and _is_held_wider(pair, expected.dtype):
        remark = f"{str(actual.dtype).removeprefix('torch.')} in the ONNX model"
        actual = actual.to(expected.dtype)
    if is_random:
        return compare_types(pair.onnx_name, expected, actual, RANDOM)
    (found,) = compare_outputs([pair.onnx_name], [expected], [actual])
    if not found.within and found.actual == found.expected and expected.dtype in TOLERANCES:
        tolerance = TOLERANCES[precision or expected.dtype]
        if tolerance != TOLERANCES[expected.dtype] and is_near(expected, actual, tolerance):
            found = dataclasses.replace(found, within=True, remark="")
            remark = remark or f"within the tolerance of {precision}, which it is computed from"
    return with_remark(found, remark)


def _is_held_wider(pair: Pair, dtype: torch.dtype) -> bool:
    """True if the target lacks the captured type and the model declares one at least as wide."""
    declared = pair.values[0].dtype
    if declared is None or dtype.is_complex:
        return False
    held = to_torch(declared)
    return held.is_floating_point == dtype.is_floating_point and held.itemsize >= dtype.itemsize


def with_remark(found: OutputDifference, remark: str) -> OutputDifference:
    """Adds a remark to those of a difference."""
    return dataclasses.replace(found, remark="; ".join(filter(None, (found.remark, remark))))
