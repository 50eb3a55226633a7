"""Normalization layers, ``one_hot`` and ``pixel_shuffle``."""

from __future__ import annotations

from collections.abc import Sequence

import onnx_ir as ir
import torch

from onnx_aot.builder.builder import Builder, Size
from onnx_aot.dtypes import HALVES, is_floating, to_onnx
from onnx_aot.ops.core.creation import make_full
from onnx_aot.ops.core.movement import reshape
from onnx_aot.ops.core.size_math import as_value, divide_size, multiply_sizes, product
from onnx_aot.ops.nn.conv_arguments import NARROW
from onnx_aot.ops.registry import LIMITS, register
from onnx_aot.torch_compat import aten

__all__: list[str] = []

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
    if eps < 0:  # ONNX Runtime refuses it in SkipLayerNormalization, into which it may fuse this
        wide = op.cast(input, _statistics_type(input.dtype))
        axes = list(range(-len(normalized_shape), 0))
        value = _normalize_axes(op, wide, axes, eps)[0]
        value = value if weight is None else op.Mul(value, op.cast(weight, wide.dtype))
        value = value if bias is None else op.Add(value, op.cast(bias, wide.dtype))
        return op.cast(value, input.dtype)
    given = [value for value in (input, weight, bias) if value is not None]
    dtype = op.result_dtype
    if any(value.dtype != dtype for value in given):
        dtype = ir.DataType.FLOAT  # PyTorch takes weights of float32 beside an input of 16 bits
        input = op.cast(input, dtype)
        weight = None if weight is None else op.cast(weight, dtype)
        bias = None if bias is None else op.cast(bias, dtype)
    if weight is None:
        weight = make_full(op, normalized_shape, 1, dtype)
    axis = -len(normalized_shape)
    value = op.LayerNormalization(input, weight, bias, axis=axis, epsilon=eps)
    return op.cast(value, op.result_dtype)


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
            weight = make_full(op, normalized_shape, 1, op.result_dtype)
        return op.RMSNormalization(input, weight, axis=axes[0], epsilon=eps)
    # 16-bit numbers in float32 as in torch: their squares may overflow, and eps may be too small
    wide = ir.DataType.FLOAT if input.dtype in HALVES else input.dtype
    x = op.cast(input, wide)
    square = op.reduce("ReduceMean", op.Mul(x, x), axes, True)
    normalized = op.cast(op.Div(x, op.Sqrt(op.Add(square, eps))), input.dtype)
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

    GroupNormalization takes its scale per channel only since opset 21; this form works everywhere.
    """
    batch, channels, *spatial = op.all_sizes(input)
    group = divide_size(op, product(op, [channels, *spatial]), num_groups)
    grouped = reshape(op, input, [batch, num_groups, group])
    ones = make_full(op, [num_groups], 1, op.result_dtype)
    zeros = make_full(op, [num_groups], 0, op.result_dtype)
    value = op.InstanceNormalization(grouped, ones, zeros, epsilon=eps)
    if isinstance(group, int):
        value.shape = ir.Shape([*(input.shape or ())[:1], num_groups, group])
        value = reshape(op, value, [batch, channels, *spatial])
    else:
        value = op.Reshape(value, op.Shape(input), allowzero=1)
    return _scale_and_shift_channels(op, value, weight, bias, len(spatial))


@register(aten.native_group_norm.default)
def aten_native_group_norm(
    op: Builder,
    input: Value,
    weight: Value | None,
    bias: Value | None,
    N: Size,  # noqa: N803 - the schema's names
    C: Size,  # noqa: N803
    HxW: Size,  # noqa: N803
    group: int,
    eps: float,
) -> list[Value]:
    """Also returns each group's mean and inverse deviation; half precision is widened meanwhile."""
    wide = op.cast(input, _statistics_type(input.dtype))
    each = multiply_sizes(op, divide_size(op, C, group), HxW)
    grouped = reshape(op, wide, [N, group, each])
    value, mean, inverse = _normalize_axes(op, grouped, [2], eps)
    value = op.Reshape(value, op.Shape(input), allowzero=1)
    value.shape = input.shape
    value = _scale_and_shift_channels(op, value, weight, bias, op.rank(input) - 2)
    return _cast_to_recorded(op, [value, op.Squeeze(mean, [2]), op.Squeeze(inverse, [2])])


def _statistics_type(dtype: ir.DataType | None) -> ir.DataType | None:
    """Type in which PyTorch computes statistics."""
    return ir.DataType.FLOAT if dtype in NARROW else dtype


def _normalize_axes(
    op: Builder, value: Value, axes: Sequence[int], eps: float
) -> tuple[Value, Value, Value]:
    """Normalizes over axes; also returns the mean and the inverse deviation, of the same rank.

    A negative ``eps`` is subtracted, so that ONNX Runtime does not find a LayerNormalization here.
    """
    mean = op.reduce("ReduceMean", value, axes, True)
    centred = op.Sub(value, mean)
    variance = op.reduce("ReduceMean", op.Mul(centred, centred), axes, True)
    shifted = op.Sub(variance, -eps) if eps < 0 else op.Add(variance, eps)
    inverse = op.Reciprocal(op.Sqrt(shifted))
    return op.Mul(centred, inverse), mean, inverse


def _scale_and_shift_channels(
    op: Builder, value: Value, weight: Value | None, bias: Value | None, spatial: int
) -> Value:
    """Multiplies by the weight and adds the bias, one number per channel, in the value's type."""
    per_channel = [-1] + [1] * spatial
    if weight is not None:
        value = op.Mul(value, op.Reshape(op.cast(weight, value.dtype), per_channel))
    if bias is not None:
        value = op.Add(value, op.Reshape(op.cast(bias, value.dtype), per_channel))
    return value


def _cast_to_recorded(op: Builder, values: Sequence[Value]) -> list[Value]:
    """Casts the results, or the first ones, to the recorded types."""
    return [op.cast(v, to_onnx(r.dtype)) for v, r in zip(values, op.result, strict=False)]


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
        wide = _normalize_by_batch(op, input, weight, bias, eps)[0]
        return op.cast(wide, input.dtype)
    return _normalize_by_running(op, input, weight, bias, running_mean, running_var, eps)


def _normalize_by_running(
    op: Builder,
    input: Value,
    weight: Value | None,
    bias: Value | None,
    mean: Value,
    variance: Value,
    eps: float,
) -> Value:
    """Normalizes by given statistics, which may have a wider type than the input."""
    if op.rank(input) < 2:
        return input  # torch accepts an empty one
    scale, shift = _scale_and_shift_of(op, input, weight, bias)
    if variance.dtype == ir.DataType.DOUBLE:
        variance, eps = op.Add(variance, eps), 0.0  # the attribute is a float32
    return op.BatchNormalization(input, scale, shift, mean, variance, epsilon=eps)


def _scale_and_shift_of(
    op: Builder, input: Value, weight: Value | None, bias: Value | None
) -> tuple[Value, Value]:
    channels = [op.size(input, 1)]
    assert input.dtype is not None
    if weight is None and bias is None:
        return make_full(op, channels, 1, input.dtype), make_full(op, channels, 0, input.dtype)
    dtype = (weight or bias).dtype  # type: ignore[union-attr]
    assert dtype is not None
    scale = make_full(op, channels, 1, dtype) if weight is None else weight
    shift = make_full(op, channels, 0, dtype) if bias is None else bias
    return scale, shift


@register(aten._native_batch_norm_legit_functional.default)
def aten__native_batch_norm_legit_functional(
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
    """Output, saved mean and inverse deviation, and the updated running statistics."""
    if training:
        results, running = _normalize_in_training(
            op, input, weight, bias, eps, (running_mean, running_var, momentum)
        )
        return _cast_to_recorded(op, [*results, *running])
    return [
        *_normalize_in_inference(op, input, weight, bias, running_mean, running_var, eps),
        running_mean,
        running_var,
    ]


LIMITS[aten._native_batch_norm_legit_functional.default] = (
    "for float16 and bfloat16 with float32 statistics, the saved mean and inverse deviation "
    "have the input's type, as torch's shape function says; eager gives float32"
)


@register(aten._batch_norm_with_update_functional.default)
def aten__batch_norm_with_update_functional(
    op: Builder,
    input: Value,
    weight: Value | None,
    bias: Value | None,
    running_mean: Value,
    running_var: Value,
    momentum: float,
    eps: float,
) -> list[Value]:
    """Returns the same results and a fourth one, which is empty on CPUs."""
    results, running = _normalize_in_training(
        op, input, weight, bias, eps, (running_mean, running_var, momentum)
    )
    return _cast_to_recorded(op, [*results, op.constant([], ir.DataType.UINT8), *running])


@register(aten.native_batch_norm.default)
def aten_native_batch_norm(
    op: Builder,
    input: Value,
    weight: Value | None,
    bias: Value | None,
    running_mean: Value | None,
    running_var: Value | None,
    training: bool,
    momentum: float,
    eps: float,
) -> list[Value]:
    if training or running_mean is None or running_var is None:
        return _cast_to_recorded(op, _normalize_in_training(op, input, weight, bias, eps, None)[0])
    return _normalize_in_inference(op, input, weight, bias, running_mean, running_var, eps)


@register(aten._native_batch_norm_legit.no_stats)
def aten__native_batch_norm_legit_no_stats(
    op: Builder,
    input: Value,
    weight: Value | None,
    bias: Value | None,
    training: bool,
    momentum: float,
    eps: float,
) -> list[Value]:
    return _cast_to_recorded(op, _normalize_in_training(op, input, weight, bias, eps, None)[0])


@register(aten._native_batch_norm_legit_no_training.default)
def aten__native_batch_norm_legit_no_training(
    op: Builder,
    input: Value,
    weight: Value | None,
    bias: Value | None,
    running_mean: Value,
    running_var: Value,
    momentum: float,
    eps: float,
) -> list[Value]:
    return _normalize_in_inference(op, input, weight, bias, running_mean, running_var, eps)


def _normalize_in_inference(
    op: Builder,
    input: Value,
    weight: Value | None,
    bias: Value | None,
    mean: Value,
    variance: Value,
    eps: float,
) -> list[Value]:
    """Normalizes by the running statistics; outside training nothing is saved."""
    nothing = op.constant([], ir.DataType.FLOAT)
    output = _normalize_by_running(op, input, weight, bias, mean, variance, eps)
    return _cast_to_recorded(op, [output, nothing, nothing])


def _normalize_in_training(
    op: Builder,
    input: Value,
    weight: Value | None,
    bias: Value | None,
    eps: float,
    running: tuple[Value, Value, float] | None,
) -> tuple[list[Value], list[Value]]:
    """Output, mean and inverse deviation; and the updated running mean and variance.

    Torch keeps the unbiased variance. ONNX BatchNormalization in training mode would keep the
    biased one, so the statistics are written out. Torch accepts an input without channels if it is
    empty; its statistics are, too.
    """
    if op.rank(input) < 2:
        return [input, input, input], [] if running is None else [*running[:2]]
    output, mean, variance = _normalize_by_batch(op, input, weight, bias, eps)
    inverse = op.Reciprocal(op.Sqrt(op.Add(variance, eps)))
    if running is None:
        return [output, mean, inverse], []
    sizes = op.all_sizes(input)
    number = product(op, [sizes[0], *sizes[2:]])
    count = op.cast(as_value(op, number), variance.dtype)
    unbiased = op.Mul(variance, op.Div(count, op.Sub(count, 1.0)))
    before_mean, before_variance, momentum = running
    kept = [
        _update_moving_average(op, before_mean, mean, momentum, number),
        _update_moving_average(op, before_variance, unbiased, momentum, number),
    ]
    return [output, mean, inverse], kept


def _update_moving_average(
    op: Builder, running: Value, current: Value, momentum: float, number: Size
) -> Value:
    """Moves a running statistic to that of a number of elements; none leave it as it is."""
    running = op.cast(running, current.dtype)
    if number == 0:
        return running
    updated = op.Add(op.Mul(running, 1.0 - momentum), op.Mul(current, momentum))
    if isinstance(number, int):
        return updated
    return op.Where(op.Greater(as_value(op, number), 0), updated, running)


def _normalize_by_batch(
    op: Builder, input: Value, weight: Value | None, bias: Value | None, eps: float
) -> tuple[Value, Value, Value]:
    """Normalizes by the batch's own statistics; also returns the mean and the biased variance.

    Computed in float32 at least.
    """
    rank = op.rank(input)
    axes = [axis for axis in range(rank) if axis != 1]
    wide = op.cast(input, _statistics_type(input.dtype))
    mean = op.reduce("ReduceMean", wide, axes, True)
    centred = op.Sub(wide, mean)
    variance = op.reduce("ReduceMean", op.Mul(centred, centred), axes, True)
    value = op.Div(centred, op.Sqrt(op.Add(variance, eps)))
    value = _scale_and_shift_channels(op, value, weight, bias, rank - 2)
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
    if not use_input_stats and running_mean is not None and running_var is not None:
        return _normalize_by_running(op, input, weight, bias, running_mean, running_var, eps)
    scale, shift = (
        op.cast(value, input.dtype) for value in _scale_and_shift_of(op, input, weight, bias)
    )
    return op.InstanceNormalization(input, scale, shift, epsilon=eps)


@register(aten.one_hot.default)
def aten_one_hot(op: Builder, self: Value, num_classes: int = -1) -> Value:
    """1 where a class equals the element; by default there are as many classes as are needed."""
    classes: Size = num_classes
    if num_classes == -1:
        recorded = op.result.shape[-1]
        largest = op.Add(op.reduce("ReduceMax", self, None, False), 1)
        classes = recorded if isinstance(recorded, int) else largest
    hit = op.Equal(op.Unsqueeze(self, [op.rank(self)]), op.Range(0, classes, 1))
    return op.cast(hit, ir.DataType.INT64)


@register(aten.pixel_shuffle.default)
def aten_pixel_shuffle(op: Builder, self: Value, upscale_factor: int) -> Value:
    """Emits DepthToSpace in column-row-depth order, which takes four dimensions of floats."""
    if op.rank(self) == 4 and is_floating(self.dtype):
        return op.DepthToSpace(self, blocksize=upscale_factor, mode="CRD")
    *batch, channels, height, width = op.all_sizes(self)
    r, c = upscale_factor, divide_size(op, channels, upscale_factor**2)
    first = len(batch)
    split = reshape(op, self, [*batch, c, r, r, height, width])
    order = [*range(first + 1), *(first + axis for axis in (3, 1, 4, 2))]
    mixed = op.Transpose(split, perm=order)
    return reshape(
        op, mixed, [*batch, c, multiply_sizes(op, height, r), multiply_sizes(op, width, r)]
    )
