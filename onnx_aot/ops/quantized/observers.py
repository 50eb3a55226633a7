"""Quantization-aware training: the observer that tracks the range, and its fake quantization."""

from __future__ import annotations

import onnx_ir as ir
import torch

from onnx_aot.builder.builder import Builder
from onnx_aot.ops.quantized.affine import fake_quantize, mask_unclipped, reshape_to_scalar
from onnx_aot.ops.registry import register
from onnx_aot.torch_compat import aten

__all__: list[str] = []

Value = ir.Value
BOOL = ir.DataType.BOOL
DOUBLE = ir.DataType.DOUBLE
FLOAT = ir.DataType.FLOAT

# Smaller scales are raised to this, as in fbgemm.
LEAST_SCALE = float(torch.tensor(6.1e-5))


@register(aten._fused_moving_avg_obs_fq_helper_functional.default)
def aten_fused_moving_avg_obs_fq_helper(
    op: Builder,
    self: Value,
    observer_on: Value,
    fake_quant_on: Value,
    running_min: Value,
    running_max: Value,
    scale: Value,
    zero_point: Value,
    averaging_const: float,
    quant_min: int,
    quant_max: int,
    ch_axis: int,
    per_row_fake_quant: bool = False,
    symmetric_quant: bool = False,
) -> list[Value]:
    """Output, mask, and the observer's state: least and largest number, scale, zero point.

    The grid is recomputed whenever fake quantization is on, even if the observer is off.
    """
    observes, quantizes = (
        reshape_to_scalar(op, observer_on, BOOL),
        reshape_to_scalar(op, fake_quant_on, BOOL),
    )
    axis = op.axis(self, ch_axis) if per_row_fake_quant else None
    low = _update_moving_average(op, "ReduceMin", self, running_min, averaging_const, axis)
    high = _update_moving_average(op, "ReduceMax", self, running_max, averaging_const, axis)
    low, high = op.Where(observes, low, running_min), op.Where(observes, high, running_max)
    chosen = _choose_qparams(op, low, high, quant_min, quant_max, symmetric_quant)
    factor, offset = (
        op.Where(quantizes, op.cast(new, old.dtype), old)
        for new, old in zip(chosen, (scale, zero_point), strict=True)
    )
    present = [low, high, factor, offset]
    if axis is None:
        factor, offset = reshape_to_scalar(op, factor, FLOAT), op.Reshape(offset, [])
    quantized = fake_quantize(op, self, factor, offset, quant_min, quant_max, axis)
    inside = mask_unclipped(op, self, factor, offset, quant_min, quant_max, axis)
    output = op.Where(quantizes, quantized, self)
    mask = op.Or(inside, op.Not(quantizes))
    return [output, mask, *present]


def _update_moving_average(
    op: Builder, reduction: str, value: Value, running: Value, share: float, axis: int | None
) -> Value:
    """Moving average of an extreme; the first extreme if there is no average yet."""
    axes = None if axis is None else [a for a in range(op.rank(value)) if a != axis]
    extreme = op.cast(op.reduce(reduction, value, axes, False), running.dtype)
    moved = op.Add(running, op.Mul(op.Sub(extreme, running), float(share)))
    return op.Where(op.IsInf(running), extreme, moved)


def _choose_qparams(
    op: Builder, low: Value, high: Value, quant_min: int, quant_max: int, symmetric: bool
) -> tuple[Value, Value]:
    """Grid between two numbers; 0 is on it, placed by the end with the smaller rounding error."""
    low, high = op.Min(op.cast(low, DOUBLE), 0.0), op.Max(op.cast(high, DOUBLE), 0.0)
    steps = quant_max - quant_min
    around = op.And(op.Less(low, 0.0), op.Greater(high, 0.0))
    if symmetric:
        below, above = -(steps // 2 + 1), steps // 2
        widest = op.Max(op.Div(low, float(below)), op.Div(high, float(above)))
        low = op.Where(around, op.Mul(widest, float(below)), low)
        high = op.Where(around, op.Mul(widest, float(above)), high)
    exact = op.cast(op.cast(op.Div(op.Sub(high, low), float(steps)), FLOAT), DOUBLE)
    exact = op.Where(op.Equal(exact, 0.0), 0.1, exact)
    from_low, from_high = op.Div(low, exact), op.Div(high, exact)
    low_error = op.Sub(float(abs(quant_min)), op.Abs(from_low))
    high_error = op.Sub(float(abs(quant_max)), op.Abs(from_high))
    zero_point = op.Where(
        op.Less(low_error, high_error),
        op.Sub(float(quant_min), from_low),
        op.Sub(float(quant_max), from_high),
    )
    if symmetric:
        zero_point = op.Where(around, (quant_min + quant_max) / 2, zero_point)
    zero_point = op.Round(op.Clip(zero_point, float(quant_min), float(quant_max)))
    scale = op.Max(op.cast(exact, FLOAT), LEAST_SCALE)
    return scale, zero_point
