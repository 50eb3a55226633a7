"""Pooling over windows of fixed size, and adaptive pooling to fixed sizes."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import onnx_ir as ir
import torch

from onnx_aot.builder.builder import Builder, Size
from onnx_aot.dtypes import INT64_MAX, is_floating
from onnx_aot.ops.core.movement import reshape, slice_axis
from onnx_aot.ops.core.size_math import add_sizes, multiply_sizes, product
from onnx_aot.ops.nn.conv_arguments import (
    apply_batched,
    apply_in_float,
    gather_windows,
    multiply_axis,
    pad_last_axes,
    per_axis,
)
from onnx_aot.ops.registry import FLOATING, LIMITS, REPORTED, register
from onnx_aot.torch_compat import OpOverload, aten

__all__ = ["window_weights"]

Value = ir.Value
Ints = Sequence[int]


def _register_max_pool(spatial: int, values: OpOverload, with_indices: OpOverload) -> None:
    def aten_max_pool(
        op: Builder,
        self: Value,
        kernel_size: Ints,
        stride: Ints = (),
        padding: Ints = (0,),
        dilation: Ints = (1,),
        ceil_mode: bool = False,
    ) -> Value:
        windows = _window_attributes(spatial, kernel_size, stride, padding, dilation, ceil_mode)
        return apply_batched(op, self, spatial, lambda x: _max_pool(op, x, windows, 1)[0])

    def aten_max_pool_with_indices(
        op: Builder,
        self: Value,
        kernel_size: Ints,
        stride: Ints = (),
        padding: Ints = (0,),
        dilation: Ints = (1,),
        ceil_mode: bool = False,
    ) -> list[Value]:
        windows = _window_attributes(spatial, kernel_size, stride, padding, dilation, ceil_mode)
        return apply_batched(op, self, spatial, lambda x: _max_pool(op, x, windows, 2))

    register(values)(aten_max_pool)
    register(with_indices)(aten_max_pool_with_indices)
    LIMITS[values] = LIMITS[with_indices] = "a window with NaN may give its largest number instead"
    REPORTED[values] = REPORTED[with_indices] = FLOATING


def _window_attributes(
    spatial: int, kernel_size: Ints, stride: Ints, padding: Ints, dilation: Ints, ceil_mode: bool
) -> dict[str, Any]:
    """Attributes that define the windows; the stride defaults to the kernel's size."""
    kernel = per_axis(kernel_size, spatial)
    return {
        "kernel_shape": kernel,
        "strides": per_axis(stride, spatial) or kernel,
        "pads": per_axis(padding, spatial) * 2,
        "dilations": per_axis(dilation, spatial),
        "ceil_mode": int(ceil_mode),
    }


def _resolve_ceil_mode(value: Value, windows: dict[str, Any]) -> dict[str, Any]:
    """Drops ceil mode if no window needs it, and padding that no window reaches.

    Torch and ONNX Runtime omit a last window that starts after the input and the padding before it,
    but ONNX's shape inference counts it. With static sizes no such window remains.
    """
    if not windows["ceil_mode"]:
        return windows
    pads = list(windows["pads"])
    needed = False
    for axis, kernel in enumerate(windows["kernel_shape"]):
        size = (value.shape or ())[axis + 2]
        if not isinstance(size, int):
            needed = True
            continue
        extent = windows.get("dilations", [1] * (axis + 1))[axis] * (kernel - 1) + 1
        room = size + 2 * pads[axis] - extent
        rest = room % windows["strides"][axis]
        if rest and room - rest + windows["strides"][axis] < size + pads[axis]:
            needed = True
        else:
            pads[axis - len(windows["kernel_shape"])] -= min(rest, pads[axis])
    return {**windows, "pads": pads, "ceil_mode": int(needed)}


def _max_pool(op: Builder, value: Value, windows: dict[str, Any], outputs: int) -> list[Value]:
    """Maximum of each window and, as the second output, its position.

    ONNX has no MaxPool of the larger integers: those of up to 32 bits are exact as DOUBLE. ONNX
    counts positions through the whole tensor, torch within each channel.
    """
    if value.dtype == ir.DataType.INT64:
        return _max_pool_int64(op, value, windows)[:outputs]
    number = value if is_floating(value.dtype) else op.cast(value, ir.DataType.DOUBLE)
    pooled = op.MaxPool(number, **_resolve_ceil_mode(value, windows), _outputs=outputs)
    if outputs == 1:
        return [op.cast(pooled, op.result_dtype)]
    channel = product(op, op.all_sizes(value)[2:])
    return [op.cast(pooled[0], op.result_dtype), op.Mod(pooled[1], channel)]


def _max_pool_int64(op: Builder, value: Value, windows: dict[str, Any]) -> list[Value]:
    """Computes the same for INT64, which no float holds exactly, from the windows' elements."""
    batch, channels, *sizes = op.all_sizes(value)
    numbers = reshape(op, op.Range(0, product(op, sizes), 1), [1, 1, *sizes])
    lowest = torch.iinfo(torch.int64).min
    elements, _ = _gather_elements(op, value, windows, lowest)
    places, counts = _gather_elements(op, numbers, windows, 0)
    elements = reshape(op, elements, [batch, channels, -1, *counts])
    places = reshape(op, places, [1, 1, -1, *counts])
    largest = op.reduce("ReduceMax", elements, [2], False)
    where = op.ArgMax(elements, axis=2, keepdims=1)
    places = op.Expand(places, op.Shape(elements))
    return [largest, op.Squeeze(op.GatherElements(places, where, axis=2), [2])]


def _gather_elements(
    op: Builder, value: Value, windows: dict[str, Any], fill: int
) -> tuple[Value, list[Size]]:
    """Elements of each window, ``[N, C, *kernel, *windows]``, and the window counts per axis."""
    kernel = windows["kernel_shape"]
    wide = _pad_for_windows(op, value, windows, fill, range(len(kernel)))
    gathering = gather_windows(op, wide, kernel, windows["strides"], windows["dilations"])
    return gathering, op.all_sizes(gathering)[2 + len(kernel) :]


def _pad_for_windows(
    op: Builder, value: Value, windows: dict[str, Any], fill: int, axes: Sequence[int]
) -> Value:
    """The value with the padding of some axes, and with what their last windows lack."""
    before: list[Size] = [0] * len(windows["kernel_shape"])
    after = list(before)
    for axis in axes:
        before[axis] = after[axis] = windows["pads"][axis]
        if windows["ceil_mode"]:
            missing = _ceil_mode_padding(op, op.size(value, axis + 2), windows, axis)
            after[axis] = add_sizes(op, after[axis], missing)
    return pad_last_axes(op, value, before, after, fill)


_register_max_pool(1, aten.max_pool1d.default, aten.max_pool1d_with_indices.default)
_register_max_pool(2, aten.max_pool2d.default, aten.max_pool2d_with_indices.default)
_register_max_pool(3, aten.max_pool3d.default, aten.max_pool3d_with_indices.default)


def _register_avg_pool(spatial: int, target: OpOverload) -> None:
    def aten_avg_pool(
        op: Builder,
        self: Value,
        kernel_size: Ints,
        stride: Ints = (),
        padding: Ints = (0,),
        ceil_mode: bool = False,
        count_include_pad: bool = True,
        divisor_override: int | None = None,
    ) -> Value:
        windows = _window_attributes(spatial, kernel_size, stride, padding, (1,), ceil_mode)
        del windows["dilations"]  # torch has none, and ONNX only since opset 19
        if self.dtype == ir.DataType.DOUBLE or not is_floating(self.dtype):
            counted = divisor_override if divisor_override is not None else count_include_pad
            return apply_batched(
                op, self, spatial, lambda x: _average_windows(op, x, windows, counted)
            )
        if divisor_override is not None:
            return apply_batched(
                op, self, spatial, lambda x: _sum_windows(op, x, windows, divisor_override)
            )
        windows["count_include_pad"] = int(count_include_pad)
        return apply_batched(
            op, self, spatial, lambda x: op.AveragePool(x, **_resolve_ceil_mode(x, windows))
        )

    register(target)(aten_avg_pool)


def _sum_windows(op: Builder, value: Value, windows: dict[str, Any], divisor: int) -> Value:
    """Sums of the windows over a divisor: means that count the padding, times the window's size.

    In ``ceil_mode`` AveragePool does not count elements beyond the padding, so the zeros that the
    last windows need are added first.
    """
    kernel = windows["kernel_shape"]
    if windows["ceil_mode"]:
        axes = range(len(kernel))
        missing = [_ceil_mode_padding(op, op.size(value, axis + 2), windows, axis) for axis in axes]
        if any(size != 0 for size in missing):
            value = op.Pad(value, op.sizes([0] * (len(kernel) + 4) + missing))
    means = op.AveragePool(value, **{**windows, "ceil_mode": 0, "count_include_pad": 1})
    return op.Mul(means, math.prod(kernel) / divisor)


def _average_windows(
    op: Builder, value: Value, windows: dict[str, Any], counted: bool | int
) -> Value:
    """Sums of the windows' elements over their number, for types AveragePool does not take.

    Integers are divided toward zero. ``counted`` is the divisor, or a bool: whether padding counts.
    """
    sums = value
    # each axis is padded on its own, to save memory
    for axis, kernel in enumerate(windows["kernel_shape"]):
        sums = _pad_for_windows(op, sums, windows, 0, [axis])
        sums = _sum_along_axis(op, sums, axis + 2, kernel, windows["strides"][axis])
    if not isinstance(counted, bool):
        return op.Div(sums, counted)
    spatial = len(windows["kernel_shape"])
    divisor: Value | None = None
    for axis, count in enumerate(op.all_sizes(sums)[2:]):
        size, pad = op.size(value, axis + 2), windows["pads"][axis]
        start = op.Sub(op.Mul(op.Range(0, count, 1), windows["strides"][axis]), pad)
        end = op.Min(op.Add(start, windows["kernel_shape"][axis]), add_sizes(op, size, pad))
        if not counted:
            start, end = op.Max(start, 0), op.Min(end, size)
        length = op.Max(op.Sub(end, start), 1)
        after = list(range(1, spatial - axis))
        length = op.Unsqueeze(length, after) if after else length
        divisor = length if divisor is None else op.Mul(divisor, length)
    return op.Div(sums, op.cast(divisor, value.dtype))


def _sum_along_axis(op: Builder, value: Value, axis: int, kernel: int, stride: int) -> Value:
    """Sums of the windows along one axis, in memory of the value's size.

    The sums of ``2 n`` elements are those of ``n`` elements plus the same from ``n`` further on. A
    window is cut into pieces whose lengths are powers of two: 7 elements are 4, 2 and 1.
    """
    total, length, before = None, 1, 0
    while True:
        if kernel & length:  # the pieces of every stride-th window, ``before`` after its start
            end = before + length - kernel
            piece = slice_axis(op, value, axis, before, end or INT64_MAX, stride)
            total = piece if total is None else op.Add(total, piece)
            before += length
        if before == kernel:
            assert total is not None
            return total
        first = slice_axis(op, value, axis, 0, -length)
        value = op.Add(first, slice_axis(op, value, axis, length, INT64_MAX))
        length *= 2


def _ceil_mode_padding(op: Builder, size: Size, windows: dict[str, Any], axis: int) -> Size:
    """Number of positions that an axis lacks for its last window in ceil mode.

    There are ``ceil((n + 2 p - k) / s) + 1`` windows, without one that starts after the input and
    the padding before it.
    """
    kernel, step = windows["kernel_shape"][axis], windows["strides"][axis]
    pad = windows["pads"][axis]
    kernel = windows.get("dilations", [1] * (axis + 1))[axis] * (kernel - 1) + 1
    if isinstance(size, int):
        last = -(-(size + 2 * pad - kernel) // step) * step
        last = last - step if last >= size + pad else last
        return max(last + kernel - size - 2 * pad, 0)
    last = op.Mul(op.Div(op.Add(size, 2 * pad - kernel + step - 1), step), step)
    beyond = op.cast(op.GreaterOrEqual(last, op.Add(size, pad)), ir.DataType.INT64)
    last = op.Sub(last, op.Mul(beyond, step))
    return op.Max(op.Sub(op.Add(last, kernel - 2 * pad), size), 0)


_register_avg_pool(1, aten.avg_pool1d.default)
_register_avg_pool(2, aten.avg_pool2d.default)
_register_avg_pool(3, aten.avg_pool3d.default)


LARGEST_WEIGHTS = 1 << 16
"""Largest number of elements for which the window weights of all axes become one constant."""

# --- adaptive pooling ----------------------------------------------------------------------------


@register(
    aten.adaptive_avg_pool1d.default,
    aten.adaptive_avg_pool2d.default,
    aten.adaptive_avg_pool3d.default,
    aten._adaptive_avg_pool2d.default,
    aten._adaptive_avg_pool3d.default,
)
def aten_adaptive_avg_pool(op: Builder, self: Value, output_size: Sequence[Size]) -> Value:
    """Window i of n covers ``floor(i h / n)`` to ``ceil((i + 1) h / n)`` of h positions.

    One mean if all sizes are 1; AveragePool if the sizes divide the input's; otherwise, and for
    dynamic sizes, one matrix product per axis with the windows' weights.
    """
    spatial = len(output_size)
    rank = op.rank(self)
    axes = range(rank - spatial, rank)
    if all(size == 1 for size in output_size):
        if rank == spatial + 2 and self.dtype != ir.DataType.DOUBLE:
            return op.GlobalAveragePool(self)
        return op.reduce("ReduceMean", self, list(axes), True)
    kernel = _even_kernel([op.size(self, axis) for axis in axes], output_size)
    if kernel is not None and all(k == 1 for k in kernel):
        return self
    if kernel is not None and self.dtype != ir.DataType.DOUBLE:
        return apply_batched(
            op,
            self,
            spatial,
            lambda x: op.AveragePool(x, kernel_shape=kernel, strides=kernel),
        )

    def average(value: Value) -> Value:
        product = _average_by_one_product(op, value, output_size)
        if product is not None:
            return product
        for axis, wanted in reversed(list(zip(axes, output_size, strict=True))):
            value = _average_axis(op, value, self, axis, wanted)
        return value

    return apply_in_float(op, self, average)


def _average_by_one_product(op: Builder, value: Value, wanted: Sequence[Size]) -> Value | None:
    """Pools all axes by a constant ``[sizes, windows]``; None if that is large or not static."""
    spatial = len(wanted)
    first = op.rank(value) - spatial
    sizes = [op.size(value, first + place) for place in range(spatial)]
    if first == 2 and not isinstance(op.size(value, 1), int):
        return None
    known = [size for size in (*sizes, *wanted) if isinstance(size, int) and size]
    if len(known) != 2 * spatial or math.prod(known) > LARGEST_WEIGHTS:
        return None
    weights = torch.ones(1, 1)
    for size, count in zip(sizes, wanted, strict=True):
        along = op.literal(window_weights(op, size, count, value.dtype))
        assert along is not None
        weights = torch.kron(weights, along)
    channels = [op.size(value, 1)] if first == 2 else []
    product = op.MatMul(op.Flatten(value, axis=first), op.constant(weights, value.dtype))
    return op.Reshape(product, op.sizes([-1, *channels, *wanted]))


def _even_kernel(sizes: Sequence[Size], wanted: Sequence[Size]) -> list[int] | None:
    """Sizes of the windows if they divide the input evenly on every axis, else None."""
    kernel = []
    for size, count in zip(sizes, wanted, strict=True):
        if not isinstance(size, int) or not isinstance(count, int) or not count or size % count:
            return None
        kernel.append(size // count)
    return kernel


def _average_axis(op: Builder, value: Value, source: Value, axis: int, wanted: Size) -> Value:
    """Means over the windows of one axis, as a product with the windows' weights."""
    size = op.size(source, axis)
    if size is wanted or (isinstance(size, int) and size == wanted):
        return value
    if wanted == 1:
        return op.reduce("ReduceMean", value, [axis], True)
    last = op.rank(value) - 1
    if isinstance(size, int) or not isinstance(wanted, int) or not wanted:
        return multiply_axis(op, value, axis, window_weights(op, size, wanted, value.dtype))
    weights = _dynamic_window_weights(op, size, wanted, last - axis, value.dtype)
    if axis == last:
        return op.MatMul(value, weights)
    # not a MatMul: ONNX Runtime refuses an empty batch on its right side
    windows = op.Mul(op.Unsqueeze(value, [axis]), weights)
    return op.reduce("ReduceSum", windows, [axis + 1], False)


def _dynamic_window_weights(
    op: Builder, size: Value, wanted: int, after: int, dtype: ir.DataType | None
) -> Value:
    """Weights of the windows for a dynamic size.

    ``[size, wanted]`` for the last axis, otherwise ``[wanted, size, 1, ...]`` with as many ones as
    there are axes after it. Position j is in window i of n where ``-n < j n - i size < size``. A
    softmax of zeros is one over their number.
    """
    places = op.Range(0, op.Mul(size, wanted), wanted)
    windows = torch.arange(wanted)
    along = 0
    if after:
        places = op.Unsqueeze(places, list(range(1, after + 1)))
        windows = windows.reshape(-1, *[1] * (after + 1))
        along = 1
    else:
        places = op.Unsqueeze(places, [1])
    distance = op.Sub(places, op.Mul(op.constant(windows), size))
    inside = op.And(op.Greater(distance, -wanted), op.Less(distance, size))
    zero, nothing = op.constant(0.0, dtype), op.constant(-math.inf, dtype)
    return op.Softmax(op.Where(inside, zero, nothing), axis=along)


def window_weights(op: Builder, size: Size, wanted: Size, dtype: ir.DataType | None) -> Value:
    """``[size, wanted]``: one over the window's size inside it, 0 outside."""
    inside = _mask_windows(op, size, wanted)
    literal = op.literal(inside)
    if literal is not None:
        return op.constant(literal.to(torch.float64) / literal.sum(0), dtype)
    member = op.cast(inside, dtype)
    return op.Div(member, op.reduce("ReduceSum", member, [0], True))


def _mask_windows(op: Builder, size: Size, wanted: Size) -> Value:
    """``[size, wanted]``: true where a position is in a window, ``floor(i h / n)`` to its end."""
    if isinstance(size, int) and isinstance(wanted, int):
        index, place = torch.arange(wanted), torch.arange(size).unsqueeze(1)
        end = ((index + 1) * size + wanted - 1) // wanted
        return op.constant((index * size // wanted <= place) & (place < end))
    index = op.Range(0, wanted, 1)
    divisor = wanted if isinstance(wanted, int) else op.Max(wanted, 1)  # there may be no window
    first = op.Div(op.Mul(index, size), divisor)
    end = op.Div(op.Add(op.Mul(op.Add(index, 1), size), add_sizes(op, wanted, -1)), divisor)
    place = op.Unsqueeze(op.Range(0, size, 1), [1])
    return op.And(op.GreaterOrEqual(place, first), op.Less(place, end))


@register(
    aten.adaptive_max_pool1d.default,
    aten.adaptive_max_pool2d.default,
    aten.adaptive_max_pool3d.default,
)
def aten_adaptive_max_pool(op: Builder, self: Value, output_size: Ints) -> list[Value]:
    """Maximum of each window and its position: MaxPool, or one axis after the other."""
    spatial = len(output_size)
    axes = range(op.rank(self) - spatial, op.rank(self))
    kernel = _even_kernel([op.size(self, axis) for axis in axes], output_size)
    if kernel is not None:
        windows = _window_attributes(spatial, kernel, (), (0,), (1,), False)
        return apply_batched(op, self, spatial, lambda x: _max_pool(op, x, windows, 2))
    value, inner = self, op.size(self, -1)
    position: Value | None = None
    for axis, wanted in reversed(list(zip(axes, output_size, strict=True))):
        size = op.size(self, axis)
        value, where = _max_pool_axis(op, value, axis, size, wanted)
        if position is not None:
            within = op.GatherElements(position, where, axis=axis)
            where = op.Add(op.Mul(where, inner), within)
            inner = multiply_sizes(op, inner, size)
        position = where
    assert position is not None
    return [value, position]


def _max_pool_axis(
    op: Builder, value: Value, axis: int, size: Size, wanted: int
) -> tuple[Value, Value]:
    """Maximum of each window along one axis, and its first position."""
    if wanted == 1:
        where = op.ArgMax(value, axis=axis, keepdims=1)
        return op.reduce("ReduceMax", value, [axis], True), where
    # [..., size, wanted, ...]: minus infinity where a position is outside the window
    after = list(range(2, op.rank(value) - axis + 1))
    inside = _mask_windows(op, size, wanted)
    inside = op.Unsqueeze(inside, after) if after else inside
    spread = op.Where(inside, op.Unsqueeze(value, [axis + 1]), -math.inf)
    where = op.ArgMax(spread, axis=axis, keepdims=0)
    return op.reduce("ReduceMax", spread, [axis], False), where
