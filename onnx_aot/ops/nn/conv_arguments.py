"""Helpers shared by convolutions and pools: per-axis arguments, batch dimension, windows."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import onnx_ir as ir

from onnx_aot.builder.builder import Builder, Size
from onnx_aot.ops.core.size_math import add_sizes, multiply_sizes, subtract_sizes

__all__ = [
    "NARROW",
    "apply_batched",
    "apply_in_float",
    "gather_windows",
    "multiply_axis",
    "pad_last_axes",
    "per_axis",
]

NARROW = frozenset({ir.DataType.FLOAT16, ir.DataType.BFLOAT16})
"""Types for which PyTorch computes in float32 and rounds once at the end."""


def per_axis(values: Sequence[int], axes: int) -> list[int]:
    """Repeats a single number for all axes; a list of another length is returned as it is."""
    return list(values) * axes if len(values) == 1 else list(values)


def apply_batched(
    op: Builder, value: ir.Value, spatial: int, apply: Callable[[ir.Value], Any]
) -> Any:
    """Applies an operator that needs a batch dimension, which torch allows to be absent.

    ``apply`` returns a value or a list of them.
    """
    if op.rank(value) == spatial + 2:
        return apply(value)
    results = apply(op.Unsqueeze(value, [0]))
    if isinstance(results, list):
        return [op.Squeeze(result, [0]) for result in results]
    return op.Squeeze(results, [0])


def apply_in_float(op: Builder, value: ir.Value, apply: Callable[[ir.Value], ir.Value]) -> ir.Value:
    """Applies a computation in float32 if the value is float16 or bfloat16."""
    if value.dtype not in NARROW:
        return apply(value)
    return op.cast(apply(op.cast(value, ir.DataType.FLOAT)), value.dtype)


def pad_last_axes(
    op: Builder,
    value: ir.Value,
    before: Sequence[Size],
    after: Sequence[Size],
    fill: float | None = None,
) -> ir.Value:
    """Pads the last axes by that many elements, or crops where negative; zeros by default."""
    if all(op.number(size) == 0 for size in (*before, *after)):
        return value
    rest = [0] * (op.rank(value) - len(before))
    pads = op.sizes([*rest, *before, *rest, *after])
    wide: ir.Value = op.Pad(value, pads, fill)
    return wide


def gather_windows(
    op: Builder,
    value: ir.Value,
    kernel: Sequence[Size],
    strides: Sequence[int],
    dilations: Sequence[int],
) -> ir.Value:
    """Gathers the windows of ``[N, C, *sizes]`` into ``[N, C, *kernel, *windows]``."""
    spatial = len(kernel)
    for axis in reversed(range(spatial)):
        reach = multiply_sizes(op, dilations[axis], add_sizes(op, kernel[axis], -1))
        starts = op.Range(0, subtract_sizes(op, op.size(value, axis + 2), reach), strides[axis])
        within = op.Mul(op.Range(0, kernel[axis], 1), dilations[axis])
        positions = op.Add(op.Unsqueeze(within, [1]), starts)
        value = op.Gather(value, positions, axis=axis + 2)
    places = [2 + 2 * axis for axis in range(spatial)]
    return op.Transpose(value, perm=[0, 1, *places, *(place + 1 for place in places)])


def multiply_axis(op: Builder, value: ir.Value, axis: int, matrix: ir.Value) -> ir.Value:
    """Multiplies an axis, as a vector, by a matrix ``[size, wanted]``.

    ONNX Runtime's matrix product of an empty batch of transposed matrices fails, so a value that
    may be empty is reshaped to a single matrix.
    """
    last = op.rank(value) - 1
    order = list(range(last + 1))
    order[axis], order[last] = last, axis
    moved = op.Transpose(value, perm=order)
    sizes = list(value.shape or ())
    if all(isinstance(size, int) and size for size in sizes):
        return op.Transpose(op.MatMul(moved, matrix), perm=order)
    rows = op.MatMul(op.Reshape(moved, op.sizes([-1, op.size(matrix, 0)])), matrix)
    wanted = [op.size(value, place) for place in order[:-1]]
    product = op.Reshape(rows, op.sizes([*wanted, op.size(matrix, 1)]), allowzero=1)
    assert matrix.shape is not None
    product.shape = ir.Shape([*(sizes[place] for place in order[:-1]), matrix.shape[1]])
    return op.Transpose(product, perm=order)
