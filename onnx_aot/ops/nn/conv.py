"""Convolutions and transposed convolutions in one to three dimensions, and their windows."""

from __future__ import annotations

import math
from collections.abc import Sequence

import onnx_ir as ir

from onnx_aot.builder.builder import Builder, Size
from onnx_aot.ops.core.movement import reshape
from onnx_aot.ops.core.scatter import aten_scatter_add
from onnx_aot.ops.core.size_math import (
    add_sizes,
    divide_size,
    multiply_sizes,
    product,
    subtract_sizes,
)
from onnx_aot.ops.nn.conv_arguments import (
    NARROW,
    apply_batched,
    apply_in_float,
    gather_windows,
    pad_last_axes,
    per_axis,
)
from onnx_aot.ops.registry import register
from onnx_aot.torch_compat import aten

__all__: list[str] = []

Value = ir.Value
Ints = Sequence[int]

# Types that ONNX Runtime convolves; other types become matrix products with the windows.
CONVOLVED = frozenset({ir.DataType.FLOAT, ir.DataType.FLOAT16, ir.DataType.BFLOAT16})


def convolve(
    op: Builder,
    input: Value,
    weight: Value,
    bias: Value | None,
    stride: Ints,
    pads: Sequence[Size],
    dilation: Ints,
    groups: Size,
) -> Value:
    """Convolves with ``pads``, given as all befores, then all afters.

    ONNX has no Conv of integers, nor with a number of groups that only the run knows, and ONNX
    Runtime has none of DOUBLE: these become matrix products with the windows. Pads that are not
    static are applied by a separate Pad.
    """
    spatial = op.rank(weight) - 2
    strides, dilations = per_axis(stride, spatial), per_axis(dilation, spatial)
    by_windows = input.dtype not in CONVOLVED or not isinstance(groups, int)
    known = [size for size in pads if isinstance(size, int)]

    def apply(x: Value) -> Value:
        if by_windows or len(known) < len(pads):
            x = pad_last_axes(op, x, pads[:spatial], pads[spatial:])
        if by_windows:
            return _multiply_windows(op, x, weight, bias, strides, dilations, groups)
        return op.Conv(
            x,
            weight,
            bias,
            kernel_shape=_static_kernel_shape(weight),
            strides=strides,
            pads=known if len(known) == len(pads) else [0] * len(pads),
            dilations=dilations,
            group=groups,
        )

    return apply_batched(op, input, spatial, apply)


def _static_kernel_shape(weight: Value) -> list[int] | None:
    """Returns the kernel's sizes if they are static; otherwise None, and ONNX infers them."""
    assert weight.shape is not None
    sizes = weight.shape.dims[2:]
    known = [size for size in sizes if isinstance(size, int)]
    return known if len(known) == len(sizes) else None


def _multiply_windows(
    op: Builder,
    input: Value,
    weight: Value,
    bias: Value | None,
    strides: Ints,
    dilations: Ints,
    groups: Size,
) -> Value:
    """Multiplies ``[outputs, channels * kernel]`` per group by all images' windows as columns."""
    outputs, channels, *kernel = op.all_sizes(weight)
    windows = gather_windows(op, input, kernel, strides, dilations)
    spatial = len(kernel)
    batch, counts = op.size(input, 0), op.all_sizes(windows)[2 + spatial :]
    length = product(op, [channels, *kernel])
    first = op.Transpose(
        windows, perm=[*range(1, 2 + spatial), 0, *range(2 + spatial, 2 + 2 * spatial)]
    )
    columns = reshape(op, first, [groups, length, product(op, [batch, *counts])])
    rows = reshape(op, weight, [groups, divide_size(op, outputs, groups), length])
    value = reshape(op, op.MatMul(rows, columns), [outputs, batch, *counts])
    value = op.Transpose(value, perm=[1, 0, *range(2, 2 + spatial)])
    return value if bias is None else op.Add(value, op.Reshape(bias, [-1] + [1] * spatial))


@register(aten.conv1d.default, aten.conv2d.default, aten.conv3d.default)
def aten_conv(
    op: Builder,
    input: Value,
    weight: Value,
    bias: Value | None = None,
    stride: Ints = (1,),
    padding: Ints = (0,),
    dilation: Ints = (1,),
    groups: Size = 1,
) -> Value:
    spatial = op.rank(weight) - 2
    pads = per_axis(padding, spatial) * 2
    return convolve(op, input, weight, bias, stride, pads, dilation, groups)


@register(aten.conv1d.padding, aten.conv2d.padding, aten.conv3d.padding)
def aten_conv_padding(
    op: Builder,
    input: Value,
    weight: Value,
    bias: Value | None = None,
    stride: Ints = (1,),
    padding: str = "valid",
    dilation: Ints = (1,),
    groups: Size = 1,
) -> Value:
    """``same`` pads ``dilation * (kernel - 1)`` in total, the odd element after, as torch does."""
    spatial = op.rank(weight) - 2
    if padding == "valid":
        return convolve(op, input, weight, bias, stride, [0] * 2 * spatial, dilation, groups)
    steps = per_axis(dilation, spatial)
    kernel = op.all_sizes(weight)[2:]
    total = [
        multiply_sizes(op, step, add_sizes(op, k, -1))
        for step, k in zip(steps, kernel, strict=True)
    ]
    before = [divide_size(op, size, 2) for size in total]
    after = [subtract_sizes(op, size, half) for size, half in zip(total, before, strict=True)]
    return convolve(op, input, weight, bias, stride, [*before, *after], dilation, groups)


@register(aten.conv_transpose1d.default, aten.conv_transpose2d.input, aten.conv_transpose3d.input)
def aten_conv_transpose(
    op: Builder,
    input: Value,
    weight: Value,
    bias: Value | None = None,
    stride: Ints = (1,),
    padding: Ints = (0,),
    output_padding: Ints = (0,),
    groups: Size = 1,
    dilation: Ints = (1,),
) -> Value:
    """Emits ConvTranspose, or for other types a convolution of the input spread with zeros."""
    spatial = op.rank(weight) - 2
    strides, dilations = per_axis(stride, spatial), per_axis(dilation, spatial)
    pads, more = per_axis(padding, spatial), per_axis(output_padding, spatial)

    def apply(x: Value) -> Value:
        # torch allows an output padding below the stride or the dilation, ONNX Runtime only one
        # below the stride
        beyond = any(extra >= stride for extra, stride in zip(more, strides, strict=True) if extra)
        if beyond or x.dtype not in CONVOLVED or not isinstance(groups, int):
            wide = ir.DataType.FLOAT if x.dtype in NARROW else x.dtype
            shift = None if bias is None else op.cast(bias, wide)
            value, rows = op.cast(x, wide), op.cast(weight, wide)
            value = _convolve_transposed(
                op, value, rows, shift, strides, pads, more, groups, dilations
            )
            return op.cast(value, x.dtype)
        return op.ConvTranspose(
            x,
            weight,
            bias,
            kernel_shape=_static_kernel_shape(weight),
            strides=strides,
            pads=[*pads, *pads],
            output_padding=more,
            dilations=dilations,
            group=groups,
        )

    return apply_batched(op, input, spatial, apply)


def _convolve_transposed(
    op: Builder,
    input: Value,
    weight: Value,
    bias: Value | None,
    strides: Ints,
    pads: Ints,
    more: Ints,
    groups: Size,
    dilations: Ints,
) -> Value:
    """Inserts zeros between and around the elements, then convolves with the reversed kernel."""
    spatial = len(strides)
    value = input
    for axis, stride in enumerate(strides):
        value = _insert_zeros(op, value, axis + 2, stride)
    inputs, channels, *kernel = op.all_sizes(weight)
    reach = [
        multiply_sizes(op, d, add_sizes(op, k, -1)) for d, k in zip(dilations, kernel, strict=True)
    ]
    before = [add_sizes(op, size, -pad) for size, pad in zip(reach, pads, strict=True)]
    after = [add_sizes(op, size, extra) for size, extra in zip(before, more, strict=True)]
    value = pad_last_axes(op, value, before, after)
    # [groups * inputs, channels, ...] to [groups * channels, inputs, ...]
    each = divide_size(op, inputs, groups)
    rows = reshape(op, weight, [groups, each, channels, *kernel])
    order = [0, 2, 1, *range(3, spatial + 3)]
    rows = op.Transpose(rows, perm=order)
    rows = reshape(op, rows, [multiply_sizes(op, channels, groups), each, *kernel])
    for axis, size in enumerate(kernel, 2):
        backwards = op.Sub(add_sizes(op, size, -1), op.Range(0, size, 1))
        rows = op.Gather(rows, backwards, axis=axis)
    return _multiply_windows(op, value, rows, bias, [1] * spatial, dilations, groups)


def _insert_zeros(op: Builder, value: Value, axis: int, stride: int) -> Value:
    """Inserts ``stride - 1`` zeros between neighbours along an axis."""
    if stride == 1:
        return value
    sizes = op.all_sizes(value)
    apart = op.Unsqueeze(value, [axis + 1])
    rest = [0] * (op.rank(value) - axis - 1)
    apart = pad_last_axes(op, apart, [0, *rest], [stride - 1, *rest])
    wide = multiply_sizes(op, sizes[axis], stride)
    value = reshape(op, apart, [*sizes[:axis], wide, *sizes[axis + 1 :]])
    return pad_last_axes(op, value, [0, *rest], [1 - stride, *rest])


@register(aten.convolution.default)
def aten_convolution(
    op: Builder,
    input: Value,
    weight: Value,
    bias: Value | None,
    stride: Ints,
    padding: Ints,
    dilation: Ints,
    transposed: bool,
    output_padding: Ints,
    groups: Size,
) -> Value:
    if transposed:
        return aten_conv_transpose(
            op, input, weight, bias, stride, padding, output_padding, groups, dilation
        )
    return aten_conv(op, input, weight, bias, stride, padding, dilation, groups)


# --- windows as columns --------------------------------------------------------------------------


@register(aten.im2col.default)
def aten_im2col(
    op: Builder,
    self: Value,
    kernel_size: Sequence[int],
    dilation: Sequence[int],
    padding: Sequence[int],
    stride: Sequence[int],
) -> Value:
    """``[N, C, H, W]`` to ``[N, C * kernel, windows]``; gathers elements, so infinities survive."""

    def unfold(image: Value) -> Value:
        wide = pad_last_axes(op, image, padding, padding)
        windows = gather_windows(op, wide, kernel_size, stride, dilation)
        rows = multiply_sizes(op, op.size(image, 1), math.prod(kernel_size))
        count = product(op, [op.size(windows, axis) for axis in (4, 5)])
        return reshape(op, windows, [op.size(image, 0), rows, count])

    return apply_batched(op, self, 2, unfold)


@register(aten.col2im.default)
def aten_col2im(
    op: Builder,
    self: Value,
    output_size: Sequence[Size],
    kernel_size: Sequence[int],
    dilation: Sequence[int],
    padding: Sequence[int],
    stride: Sequence[int],
) -> Value:
    """``[N, C * kernel, windows]`` to ``[N, C, H, W]``; adds elements of windows that overlap.

    Col2Im exists since opset 18, and in ONNX Runtime for float32.
    """

    def fold(columns: Value) -> Value:
        if op.opset >= 18 and columns.dtype in {ir.DataType.FLOAT, *NARROW}:
            return apply_in_float(op, columns, join)
        if columns.dtype == ir.DataType.BOOL:
            return op.cast(add_up(op.cast(columns, ir.DataType.INT32)), ir.DataType.BOOL)
        return add_up(columns)

    def join(columns: Value) -> Value:
        return op.Col2Im(
            columns,
            op.sizes(output_size),
            op.sizes(kernel_size),
            dilations=dilation,
            pads=[*padding, *padding],
            strides=stride,
        )

    def add_up(columns: Value) -> Value:
        sizes = [add_sizes(op, n, 2 * pad) for n, pad in zip(output_size, padding, strict=True)]
        places = op.Range(0, product(op, sizes), 1)
        windows = gather_windows(
            op, reshape(op, places, [1, 1, *sizes]), kernel_size, stride, dilation
        )
        count, area = op.size(columns, 0), math.prod(kernel_size)
        channels = divide_size(op, op.size(columns, 1), area)
        elements = multiply_sizes(op, op.size(columns, 2), area)
        rows = reshape(op, columns, [count, channels, elements])
        index = op.Expand(reshape(op, windows, [1, 1, -1]), op.Shape(rows))
        zeros = op.Expand(
            op.cast(0, columns.dtype), op.sizes([count, channels, product(op, sizes)])
        )
        image = aten_scatter_add(op, zeros, 2, index, rows)
        crop = [-pad for pad in padding]
        return pad_last_axes(op, reshape(op, image, [count, channels, *sizes]), crop, crop)

    return apply_batched(op, self, 1, fold)
