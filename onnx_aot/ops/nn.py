"""Normalization, embedding, dropout and rearranging layers."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import onnx_ir as ir
import torch

from onnx_aot.ops.builder import Builder
from onnx_aot.ops.creation import filled
from onnx_aot.ops.registry import register

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
    rank = op.rank(input)
    channels = op.size(input, 1)
    grouped = op.Reshape(input, [0, num_groups, -1])
    ones = filled(op, [num_groups], 1, op.result_dtype)
    zeros = filled(op, [num_groups], 0, op.result_dtype)
    normalized = op.InstanceNormalization(grouped, ones, zeros, epsilon=eps)
    value: Value = op.Reshape(normalized, op.sizes(op.all_sizes(input)))
    per_channel = [channels] + [1] * (rank - 2)
    if weight is not None:
        value = op.Mul(value, op.Reshape(weight, op.sizes(per_channel)))
    if bias is not None:
        value = op.Add(value, op.Reshape(bias, op.sizes(per_channel)))
    return value


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
    output, mean, variance, count = _normalized_by_batch(op, input, weight, bias, eps)
    inverse = op.Reciprocal(op.Sqrt(op.Add(variance, eps)))
    unbiased = op.Mul(variance, op.Div(count, op.Sub(count, 1.0)))
    return [
        output,
        mean,
        inverse,
        _moving(op, running_mean, mean, momentum),
        _moving(op, running_var, unbiased, momentum),
    ]


def _moving(op: Builder, running: Value, current: Value, momentum: float) -> Value:
    return op.Add(op.Mul(running, 1.0 - momentum), op.Mul(current, momentum))


def _normalized_by_batch(
    op: Builder, input: Value, weight: Value | None, bias: Value | None, eps: float
) -> tuple[Value, Value, Value, Value]:
    """Normalized by the batch's own statistics; with the mean, the biased variance, the count."""
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
    count = op.constant(1, ir.DataType.INT64)
    for axis in axes:
        count = op.Mul(count, op.size(input, axis))
    flat_mean, flat_variance = op.Squeeze(mean, axes), op.Squeeze(variance, axes)
    return value, flat_mean, flat_variance, op.cast(count, op.result_dtype)


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


@register(aten.dropout.default, aten.alpha_dropout.default, aten.feature_dropout.default)
def aten_dropout(op: Builder, input: Value, p: float, train: bool) -> Value:
    if not train or p == 0:
        return input
    return op.Dropout(input, p, op.constant(True))


@register(aten.embedding.default)
def aten_embedding(
    op: Builder,
    weight: Value,
    indices: Value,
    padding_idx: int = -1,
    scale_grad_by_freq: bool = False,
    sparse: bool = False,
) -> Value:
    return op.Gather(weight, indices, axis=0)


@register(aten.pixel_shuffle.default)
def aten_pixel_shuffle(op: Builder, self: Value, upscale_factor: int) -> Value:
    """DepthToSpace in column-row-depth order takes ``[batch, channels, h, w]`` only."""
    return _as_batch(op, self, lambda x: op.DepthToSpace(x, blocksize=upscale_factor, mode="CRD"))


def _as_batch(op: Builder, value: Value, apply: Any) -> Value:
    """Applies an operator that wants exactly one batch dimension before the last three."""
    rank = op.rank(value)
    if rank == 4:
        return apply(value)
    if rank == 3:
        return op.Squeeze(apply(op.Unsqueeze(value, [0])), [0])
    sizes = op.all_sizes(value)
    flat = op.Reshape(value, op.sizes([-1, *sizes[-3:]]))
    shuffled = apply(flat)
    tail = op.Shape(shuffled, start=1)
    return op.Reshape(shuffled, op.Concat(op.sizes(sizes[:-3]), tail, axis=0))
