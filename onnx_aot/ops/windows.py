"""What convolutions and pools share: arguments per spatial axis, and the batch dimension."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import onnx_ir as ir

from onnx_aot.ops.builder import Builder

__all__ = ["batched", "per_axis"]


def per_axis(values: Sequence[int], axes: int) -> list[int]:
    """One number for all axes, or one per axis; an empty list stays empty."""
    return list(values) * axes if len(values) == 1 else list(values)


def batched(op: Builder, value: ir.Value, spatial: int, apply: Callable[[ir.Value], Any]) -> Any:
    """Applies an operator that wants a batch dimension, which torch lets be absent.

    ``apply`` returns a value or a list of them.
    """
    if op.rank(value) == spatial + 2:
        return apply(value)
    results = apply(op.Unsqueeze(value, [0]))
    if isinstance(results, list):
        return [op.Squeeze(result, [0]) for result in results]
    return op.Squeeze(results, [0])
