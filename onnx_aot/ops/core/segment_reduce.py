"""Translates reductions over segments of one axis, given by lengths or offsets."""

from __future__ import annotations

import math
from typing import Any

import onnx_ir as ir

from onnx_aot.builder.builder import Builder
from onnx_aot.ops.core.indexing import range_of_length
from onnx_aot.ops.registry import FLOATING, LIMITS, REPORTED, register
from onnx_aot.torch_compat import aten

__all__: list[str] = []

Value = ir.Value
INT64 = ir.DataType.INT64

# ONNX reduction, the operator that adds the initial value, and the neutral number.
REDUCTIONS = {
    "max": ("ReduceMax", "Max", -math.inf),
    "mean": ("ReduceSum", "Add", 0.0),
    "min": ("ReduceMin", "Min", math.inf),
    "prod": ("ReduceProd", "Mul", 1.0),
    "sum": ("ReduceSum", "Add", 0.0),
}

LIMITS[aten.segment_reduce.default] = "max and min skip NaN"
REPORTED[aten.segment_reduce.default] = FLOATING


@register(aten.segment_reduce.default)
def aten_segment_reduce(
    op: Builder,
    data: Value,
    reduce: str,
    lengths: Value | None = None,
    indices: Value | None = None,
    offsets: Value | None = None,
    axis: int = 0,
    unsafe: bool = False,
    initial: float | None = None,
) -> Value:
    """Pairs every segment with every element and reduces over those that it contains."""
    name, combine, neutral = REDUCTIONS[reduce]
    axis = op.axis(data, axis)
    starts, ends = _segment_bounds(op, lengths, offsets)
    sizes = op.Sub(ends, starts)
    position = range_of_length(op, 0, op.size(data, axis))
    first, behind = op.Unsqueeze(starts, [-1]), op.Unsqueeze(ends, [-1])
    held = op.And(op.GreaterOrEqual(position, first), op.Less(position, behind))
    trailing = op.rank(data) - axis - 1
    held = _append_axes(op, held, trailing)
    elements = op.Unsqueeze(data, [axis])
    value = op.Where(held, elements, op.constant(neutral, data.dtype))
    start = op.constant(neutral if initial is None else initial, data.dtype)
    reduced = op.call_op(combine, [op.reduce(name, value, [axis + 1], False), start], {})
    if reduce != "mean":
        return reduced
    count = op.cast(_append_axes(op, sizes, trailing), data.dtype)
    empty = op.constant(math.nan if initial is None else initial, data.dtype)
    return op.Where(op.Equal(count, 0.0), empty, op.Div(reduced, count))


def _segment_bounds(op: Builder, lengths: Any, offsets: Any) -> tuple[Value, Value]:
    """Returns the start of each segment and the start of the next one."""
    if lengths is not None:
        ends = op.CumSum(op.cast(lengths, INT64), op.constant(op.rank(lengths) - 1, INT64))
        return op.Sub(ends, op.cast(lengths, INT64)), ends
    offsets = op.cast(offsets, INT64)
    return op.Slice(offsets, [0], [-1], [-1]), op.Slice(offsets, [1], [2**63 - 1], [-1])


def _append_axes(op: Builder, value: Value, trailing: int) -> Value:
    rank = op.rank(value)
    return op.Unsqueeze(value, list(range(rank, rank + trailing))) if trailing else value
