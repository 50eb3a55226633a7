"""Normalization and rearranging layers."""

from __future__ import annotations

from collections.abc import Sequence

import onnx_ir as ir
import torch

from onnx_aot.dtypes import is_floating
from onnx_aot.ops.builder import Builder, Size
from onnx_aot.ops.creation import filled
from onnx_aot.ops.movement import reshaped
from onnx_aot.ops.registry import register
from onnx_aot.ops.sizes import as_value, product, times

__all__: list[str] = []

aten = torch.ops.aten
Value = ir.Value


@register(aten.layer_norm.default)
def aten_layer_norm(
    op: Builder,
    input: Value,
    normalized_shape: Sequence[int],
    weight: Value | None = None,
    bias: Value | None = None,
    eps: float = 1e-5,
    cudnn_enable: bool = True,
) -> Value:
    if weight is None:
        weight = filled(op, normalized_shape, 1, op.result_dtype)
    return op.LayerNormalization(input, weight, bias, axis=-len(normalized_shape), epsilon=eps)


@register(aten.rms_norm.default)
def aten_rms_norm(
    op: Builder,
    input: Value,
    normalized_shape: Sequence[int],
    weight: Value | None = None,
    eps: float | None = None,
) -> Value:
    """``x / sqrt(mean(x^2) + eps) * weight``; eps defaults to the type's machine epsilon."""
    eps = torch.finfo(op.result.dtype).eps if eps is None else eps
    axes = list(range(-len(normalized_shape), 0))
    if op.opset >= 23:
        if weight is None:
            weight = filled(op, normalized_shape, 1, op.result_dtype)
        return op.RMSNormalization(input, weight, axis=axes[0], epsilon=eps)
    square = op.reduce("ReduceMean", op.Mul(input, input), axes, True)
    normalized = op.Div(input, op.Sqrt(op.Add(square, eps)))
    return normalized if weight is None else op.Mul(normalized, weight)


@register(aten.group_norm.default)
def aten_group_norm(
    op: Builder,
    input: Value,
    num_groups: int,
    weight: Value | None = None,
    bias: Value | None = None,
    eps: float = 1e-5,
    cudnn_enabled: bool = True,
) -> Value:
    """InstanceNormalization over groups, then scale and shift per channel.

    GroupNormalization takes its scale per channel only since opset 21; this form runs everywhere.
    """
    batch, channels, *spatial = op.all_sizes(input)
    group = _divided(op, product(op, [channels, *spatial]), num_groups)
    grouped = reshaped(op, input, [batch, num_groups, group])
    ones = filled(op, [num_groups], 1, op.result_dtype)
    zeros = filled(op, [num_groups], 0, op.result_dtype)
    value: Value = op.InstanceNormalization(grouped, ones, zeros, epsilon=eps)
    if isinstance(group, int):
        value.shape = ir.Shape([*(input.shape or ())[:1], num_groups, group])
        value = reshaped(op, value, [batch, channels, *spatial])
    else:
        value = op.Reshape(value, op.Shape(input), allowzero=1)
    per_channel = [-1] + [1] * len(spatial)
    if weight is not None:
        value = op.Mul(value, op.Reshape(weight, per_channel))
    if bias is not None:
        value = op.Add(value, op.Reshape(bias, per_channel))
    return value


def _divided(op: Builder, size: Size, divisor: int) -> Size:
    """A size that is a multiple of the divisor, divided by it."""
    return size // divisor if isinstance(size, int) else op.Div(size, divisor)


@register(aten.batch_norm.default)
def aten_batch_norm(
    op: Builder,
    input: Value,
    weight: Value | None,
    bias: Value | None,
    running_mean: Value | None,
    running_var: Value | None,
    training: bool,
    momentum: float,
    eps: float,
    cudnn_enabled: bool,
) -> Value:
    if training or running_mean is None or running_var is None:
        return _normalized_by_batch(op, input, weight, bias, eps)[0]
    scale, shift = _affine(op, input, weight, bias)
    return op.BatchNormalization(input, scale, shift, running_mean, running_var, epsilon=eps)


def _affine(
    op: Builder, input: Value, weight: Value | None, bias: Value | None
) -> tuple[Value, Value]:
    channels = [op.size(input, 1)]
    scale = filled(op, channels, 1, op.result_dtype) if weight is None else weight
    shift = filled(op, channels, 0, op.result_dtype) if bias is None else bias
    return scale, shift


@register(aten._native_batch_norm_legit_functional.default)
def aten_batch_norm_training(
    op: Builder,
    input: Value,
    weight: Value | None,
    bias: Value | None,
    running_mean: Value,
    running_var: Value,
    training: bool,
    momentum: float,
    eps: float,
) -> list[Value]:
    """Output, saved mean and inverse deviation, and the running statistics after this batch.

    Torch keeps the unbiased variance in ``running_var``; ONNX BatchNormalization in training mode
    would keep the biased one, so the statistics are written out.
    """
    if not training:
        return _with_running_statistics(op, input, weight, bias, running_mean, running_var, eps)
    output, mean, variance = _normalized_by_batch(op, input, weight, bias, eps)
    inverse = op.Reciprocal(op.Sqrt(op.Add(variance, eps)))
    sizes = op.all_sizes(input)
    count = op.cast(as_value(op, product(op, [sizes[0], *sizes[2:]])), op.result_dtype)
    unbiased = op.Mul(variance, op.Div(count, op.Sub(count, 1.0)))
    return [
        output,
        mean,
        inverse,
        _moving(op, running_mean, mean, momentum),
        _moving(op, running_var, unbiased, momentum),
    ]


def _with_running_statistics(
    op: Builder,
    input: Value,
    weight: Value | None,
    bias: Value | None,
    mean: Value,
    variance: Value,
    eps: float,
) -> list[Value]:
    """Outside training nothing is saved and the statistics stay."""
    scale, shift = _affine(op, input, weight, bias)
    output = op.BatchNormalization(input, scale, shift, mean, variance, epsilon=eps)
    nothing = op.constant([], op.result_dtype)
    return [output, nothing, nothing, mean, variance]


def _moving(op: Builder, running: Value, current: Value, momentum: float) -> Value:
    return op.Add(op.Mul(running, 1.0 - momentum), op.Mul(current, momentum))


def _normalized_by_batch(
    op: Builder, input: Value, weight: Value | None, bias: Value | None, eps: float
) -> tuple[Value, Value, Value]:
    """Normalized by the batch's own statistics; with the mean and the biased variance."""
    rank = op.rank(input)
    axes = [axis for axis in range(rank) if axis != 1]
    mean = op.reduce("ReduceMean", input, axes, True)
    centred = op.Sub(input, mean)
    variance = op.reduce("ReduceMean", op.Mul(centred, centred), axes, True)
    value = op.Div(centred, op.Sqrt(op.Add(variance, eps)))
    per_channel = [-1] + [1] * (rank - 2)
    if weight is not None:
        value = op.Mul(value, op.Reshape(weight, per_channel))
    if bias is not None:
        value = op.Add(value, op.Reshape(bias, per_channel))
    return value, op.Squeeze(mean, axes), op.Squeeze(variance, axes)


@register(aten.instance_norm.default)
def aten_instance_norm(
    op: Builder,
    input: Value,
    weight: Value | None,
    bias: Value | None,
    running_mean: Value | None,
    running_var: Value | None,
    use_input_stats: bool,
    momentum: float,
    eps: float,
    cudnn_enabled: bool,
) -> Value:
    scale, shift = _affine(op, input, weight, bias)
    if not use_input_stats and running_mean is not None and running_var is not None:
        return op.BatchNormalization(input, scale, shift, running_mean, running_var, epsilon=eps)
    return op.InstanceNormalization(input, scale, shift, epsilon=eps)


@register(aten.pixel_shuffle.default)
def aten_pixel_shuffle(op: Builder, self: Value, upscale_factor: int) -> Value:
    """DepthToSpace in column-row-depth order, which takes four dimensions of floats."""
    if op.rank(self) == 4 and is_floating(self.dtype):
        return op.DepthToSpace(self, blocksize=upscale_factor, mode="CRD")
    *batch, channels, height, width = op.all_sizes(self)
    r, c = upscale_factor, _divided(op, channels, upscale_factor**2)
    first = len(batch)
    split = reshaped(op, self, [*batch, c, r, r, height, width])
    order = [*range(first + 1), *(first + axis for axis in (3, 1, 4, 2))]
    mixed = op.Transpose(split, perm=order)
    return reshaped(op, mixed, [*batch, c, times(op, height, r), times(op, width, r)])
