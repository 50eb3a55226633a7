"""Pooling over windows of fixed size, and adaptive pooling to fixed sizes."""

from __future__ import annotations

import math
from collections.abc import Sequence

import onnx_ir as ir
import torch

from onnx_aot.ops.builder import Builder, Size
from onnx_aot.ops.creation import filled
from onnx_aot.ops.movement import swapped
from onnx_aot.ops.registry import register
from onnx_aot.ops.sizes import plus
from onnx_aot.ops.windows import batched, per_axis

__all__: list[str] = []

aten = torch.ops.aten
Value = ir.Value
Ints = Sequence[int]


def _register_max_pool(target: torch._ops.OpOverload, spatial: int) -> None:
    def aten_max_pool(
        op: Builder,
        self: Value,
        kernel_size: Ints,
        stride: Ints = (),
        padding: Ints = (0,),
        dilation: Ints = (1,),
        ceil_mode: bool = False,
    ) -> Value:
        kernel = per_axis(kernel_size, spatial)
        return batched(
            op,
            self,
            spatial,
            lambda x: op.MaxPool(
                x,
                kernel_shape=kernel,
                strides=per_axis(stride, spatial) or kernel,
                pads=per_axis(padding, spatial) * 2,
                dilations=per_axis(dilation, spatial),
                ceil_mode=int(ceil_mode),
            ),
        )

    register(target)(aten_max_pool)


_register_max_pool(aten.max_pool1d.default, 1)
_register_max_pool(aten.max_pool2d.default, 2)
_register_max_pool(aten.max_pool3d.default, 3)


@register(aten.avg_pool1d.default)
def aten_avg_pool1d(
    op: Builder,
    self: Value,
    kernel_size: Ints,
    stride: Ints = (),
    padding: Ints = (0,),
    ceil_mode: bool = False,
    count_include_pad: bool = True,
) -> Value:
    return _averaged(op, self, 1, kernel_size, stride, padding, ceil_mode, count_include_pad, None)


@register(aten.avg_pool2d.default)
def aten_avg_pool2d(
    op: Builder,
    self: Value,
    kernel_size: Ints,
    stride: Ints = (),
    padding: Ints = (0,),
    ceil_mode: bool = False,
    count_include_pad: bool = True,
    divisor_override: int | None = None,
) -> Value:
    return _averaged(
        op, self, 2, kernel_size, stride, padding, ceil_mode, count_include_pad, divisor_override
    )


@register(aten.avg_pool3d.default)
def aten_avg_pool3d(
    op: Builder,
    self: Value,
    kernel_size: Ints,
    stride: Ints = (),
    padding: Ints = (0,),
    ceil_mode: bool = False,
    count_include_pad: bool = True,
    divisor_override: int | None = None,
) -> Value:
    return _averaged(
        op, self, 3, kernel_size, stride, padding, ceil_mode, count_include_pad, divisor_override
    )


def _averaged(
    op: Builder,
    value: Value,
    spatial: int,
    kernel_size: Ints,
    stride: Ints,
    padding: Ints,
    ceil_mode: bool,
    count_include_pad: bool,
    divisor: int | None,
) -> Value:
    kernel = per_axis(kernel_size, spatial)
    steps = per_axis(stride, spatial) or kernel
    pads = per_axis(padding, spatial)

    def plain(x: Value) -> Value:
        return op.AveragePool(
            x,
            kernel_shape=kernel,
            strides=steps,
            pads=pads * 2,
            count_include_pad=int(count_include_pad),
        )

    def by_sums(x: Value) -> Value:
        """Window sums over padded zeros, divided by what torch counts.

        ``ceil_mode`` adds up to a stride of zeros after each axis, which torch never counts.
        """
        extra = [_ceil_extra(op, x, axis, kernel, steps, pads) for axis in range(spatial)]
        sums = _window_sums(op, _zero_padded(op, x, pads, extra), kernel, steps)
        if divisor is not None:
            return op.Div(sums, float(divisor))
        sizes = [op.size(x, axis + 2) for axis in range(spatial)]
        ones = filled(op, [1, 1, *sizes], 1, op.result_dtype)
        ones.shape = ir.Shape([1, 1, *(x.shape or ())[2:]])
        none = [0] * spatial
        if count_include_pad:
            ones = op.Pad(ones, [0, 0, *pads, 0, 0, *pads], 1.0)
            ones = _zero_padded(op, ones, none, extra)
        else:
            ones = _zero_padded(op, ones, pads, extra)
        return op.Div(sums, _window_sums(op, ones, kernel, steps))

    return batched(op, value, spatial, by_sums if ceil_mode or divisor else plain)


def _window_sums(op: Builder, value: Value, kernel: Ints, steps: Ints) -> Value:
    means = op.AveragePool(value, kernel_shape=kernel, strides=steps)
    return op.Mul(means, float(math.prod(kernel)))


def _zero_padded(op: Builder, value: Value, pads: Ints, extra: Sequence[Size]) -> Value:
    after = [plus(op, pad, more) for pad, more in zip(pads, extra, strict=True)]
    if not any(pads) and all(size == 0 for size in after):
        return value
    return op.Pad(value, op.sizes([0, 0, *pads, 0, 0, *after]))


def _ceil_extra(
    op: Builder, value: Value, axis: int, kernel: Ints, steps: Ints, pads: Ints
) -> Size:
    """Zeros after an axis so that its last window is whole: ``(recorded - 1) s + k - (n + 2p)``."""
    size = op.size(value, axis + 2)
    windows = _window_count(op, size, kernel[axis], steps[axis], pads[axis])
    if isinstance(size, int) and isinstance(windows, int):
        return max((windows - 1) * steps[axis] + kernel[axis] - size - 2 * pads[axis], 0)
    needed = op.Add(op.Mul(op.Sub(windows, 1), steps[axis]), kernel[axis])
    return op.Max(op.Sub(needed, op.Add(size, 2 * pads[axis])), 0)


def _window_count(op: Builder, size: Size, kernel: int, step: int, pad: int) -> Size:
    """Windows in ceil mode; one that would start beyond the input and its first padding is none."""
    if isinstance(size, int):
        count = -(-(size + 2 * pad - kernel) // step) + 1
        return count - 1 if (count - 1) * step >= size + pad else count
    room = op.Add(size, 2 * pad - kernel + step - 1)
    count = op.Add(op.Div(room, step), 1)
    beyond = op.GreaterOrEqual(op.Mul(op.Sub(count, 1), step), op.Add(size, pad))
    return op.Sub(count, op.cast(beyond, ir.DataType.INT64))


# --- adaptive pooling ----------------------------------------------------------------------------


@register(
    aten.adaptive_avg_pool1d.default,
    aten.adaptive_avg_pool2d.default,
    aten.adaptive_avg_pool3d.default,
)
def aten_adaptive_avg_pool(op: Builder, self: Value, output_size: Sequence[Size]) -> Value:
    """Window i of n covers ``floor(i h / n)`` to ``ceil((i + 1) h / n)`` of h positions.

    All ones: one mean. Sizes that divide the input's: AveragePool. Otherwise, and for sizes that
    are not known, one matrix product per axis with the windows' weights.
    """
    spatial = len(output_size)
    rank = op.rank(self)
    axes = range(rank - spatial, rank)
    if all(size == 1 for size in output_size):
        if rank == spatial + 2:
            return op.GlobalAveragePool(self)
        return op.reduce("ReduceMean", self, list(axes), True)
    kernel = _even_windows([op.size(self, axis) for axis in axes], output_size)
    if kernel is not None:
        if all(k == 1 for k in kernel):
            return self
        return batched(
            op,
            self,
            spatial,
            lambda x: op.AveragePool(x, kernel_shape=kernel, strides=kernel),
        )
    value = self
    for axis, wanted in zip(axes, output_size, strict=True):
        value = _adaptive_axis(op, value, self, axis, wanted)
    return value


def _even_windows(sizes: Sequence[Size], wanted: Sequence[Size]) -> list[int] | None:
    """The windows' sizes where they divide the input evenly on every axis."""
    kernel = []
    for size, count in zip(sizes, wanted, strict=True):
        if not isinstance(size, int) or not isinstance(count, int) or not count or size % count:
            return None
        kernel.append(size // count)
    return kernel


def _adaptive_axis(op: Builder, value: Value, source: Value, axis: int, wanted: Size) -> Value:
    """Means over the windows of one axis: the axis, moved last, times ``[size, windows]``."""
    size = op.size(source, axis)
    starts, ends = _windows(op, size, wanted)
    position = op.Unsqueeze(op.Range(0, size, 1), [1])
    inside = op.And(op.GreaterOrEqual(position, starts), op.Less(position, ends))
    count = op.cast(op.Sub(ends, starts), op.result_dtype)
    weights = op.Div(op.cast(inside, op.result_dtype), count)
    last = op.rank(source) - 1
    value.shape = value.shape or ir.Shape([None] * (last + 1))
    means = op.MatMul(swapped(op, value, axis, last), weights)
    means.shape = ir.Shape([None] * (last + 1))
    return swapped(op, means, axis, last)


def _windows(op: Builder, size: Size, wanted: Size) -> tuple[Value, Value]:
    index = op.Range(0, wanted, 1)
    starts = op.Div(op.Mul(index, size), wanted)
    scaled = op.Mul(op.Add(index, 1), size)
    ends = op.Div(op.Add(scaled, plus(op, wanted, -1)), wanted)
    return starts, ends
