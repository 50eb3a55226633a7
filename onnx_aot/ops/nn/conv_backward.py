"""Gradients of convolutions, which ``torch.func.grad`` inside a model captures."""

from __future__ import annotations

from collections.abc import Sequence

import onnx_ir as ir

from onnx_aot.builder.builder import Builder, Size
from onnx_aot.ops.core.movement import reshape, slice_axis
from onnx_aot.ops.core.size_math import add_sizes, divide_size, multiply_sizes
from onnx_aot.ops.nn.conv import aten_conv_transpose, convolve
from onnx_aot.ops.nn.conv_arguments import pad_last_axes, per_axis
from onnx_aot.ops.registry import register
from onnx_aot.torch_compat import aten

__all__: list[str] = []

Value = ir.Value
Ints = Sequence[int]


@register(aten.convolution_backward.default)
def aten_convolution_backward(
    op: Builder,
    grad_output: Value,
    input: Value,
    weight: Value,
    bias_sizes: Sequence[Size] | None,
    stride: Ints,
    padding: Ints,
    dilation: Ints,
    transposed: bool,
    output_padding: Ints,
    groups: int,
    output_mask: Sequence[bool],
) -> list[Value | None]:
    """Gradients of the input, the weight and the bias, each if the mask asks for it.

    A convolution and a transposed one are each other's gradients of the input.
    """
    spatial = op.rank(weight) - 2
    strides, pads, dilations = (per_axis(n, spatial) for n in (stride, padding, dilation))
    results: list[Value | None] = [None, None, None]
    if output_mask[0] and transposed:
        found = convolve(op, grad_output, weight, None, strides, pads * 2, dilations, groups)
        for axis in range(2, spatial + 2):  # an output padding of a stride or more adds elements
            found = _cut_axis(op, found, axis, 0, op.size(input, axis))
        results[0] = found
    elif output_mask[0]:
        results[0] = _find_input_gradient(
            op, grad_output, input, weight, strides, pads, dilations, groups
        )
    if output_mask[1]:
        wide, narrow = (grad_output, input) if transposed else (input, grad_output)
        results[1] = _find_weight_gradient(
            op, wide, narrow, weight, strides, pads, dilations, groups
        )
    if output_mask[2]:
        results[2] = op.reduce("ReduceSum", grad_output, [0, *range(2, spatial + 2)], False)
    return results


def _find_input_gradient(
    op: Builder,
    gradient: Value,
    input: Value,
    weight: Value,
    strides: Ints,
    pads: Ints,
    dilations: Ints,
    groups: int,
) -> Value:
    """Spreads the gradient over what each element was computed from, and drops the padding.

    The elements at the end that no window reached, fewer than the stride, get zero.
    """
    none = [0] * len(strides)
    value = aten_conv_transpose(op, gradient, weight, None, strides, none, none, groups, dilations)
    value = pad_last_axes(op, value, none, [step - 1 for step in strides])
    for axis, pad in enumerate(pads, 2):
        value = _cut_axis(op, value, axis, pad, op.size(input, axis))
    return value


def _find_weight_gradient(
    op: Builder,
    wide: Value,
    narrow: Value,
    weight: Value,
    strides: Ints,
    pads: Ints,
    dilations: Ints,
    groups: int,
) -> Value:
    """Convolves the tensor with the wider windows with the other one; the batch is summed over.

    The positions of the kernel are those of the result, so stride and dilation change places.
    """
    spatial = len(strides)
    rest = list(range(3, spatial + 3))

    def split_groups(value: Value) -> Value:  # [batch, groups, channels, ...]
        batch, channels, *sizes = op.all_sizes(value)
        return reshape(op, value, [batch, groups, divide_size(op, channels, groups), *sizes])

    images = op.Transpose(split_groups(wide), perm=[2, 1, 0, *rest])
    channels, _, batch, *sizes = op.all_sizes(images)
    images = reshape(op, images, [channels, multiply_sizes(op, batch, groups), *sizes])
    kernels = op.Transpose(split_groups(narrow), perm=[1, 2, 0, *rest])
    _, each, batch, *sizes = op.all_sizes(kernels)
    kernels = reshape(op, kernels, [multiply_sizes(op, each, groups), batch, *sizes])
    value = convolve(op, images, kernels, None, dilations, [*pads, *pads], strides, groups)
    for axis in range(2, spatial + 2):  # what the last stride left over adds positions
        value = _cut_axis(op, value, axis, 0, op.size(weight, axis))
    return op.Transpose(value, perm=[1, 0, *range(2, spatial + 2)])


def _cut_axis(op: Builder, value: Value, axis: int, start: int, length: Size) -> Value:
    """The elements from ``start`` on, if there are more than these."""
    if start == 0 and op.size(value, axis) == length:
        return value
    return slice_axis(op, value, axis, start, add_sizes(op, length, start))
