"""Convolutions and transposed convolutions in one to three dimensions."""

from __future__ import annotations

from collections.abc import Sequence

import onnx_ir as ir
import torch

from onnx_aot.ops.builder import Builder
from onnx_aot.ops.registry import register
from onnx_aot.ops.windows import batched, per_axis

__all__: list[str] = []

aten = torch.ops.aten
Value = ir.Value
Ints = Sequence[int]


def convolved(
    op: Builder,
    input: Value,
    weight: Value,
    bias: Value | None,
    stride: Ints,
    pads: Ints,
    dilation: Ints,
    groups: int,
) -> Value:
    """``pads`` are all befores, then all afters."""
    spatial = op.rank(weight) - 2
    return batched(
        op,
        input,
        spatial,
        lambda x: op.Conv(
            x,
            weight,
            bias,
            kernel_shape=_kernel(weight),
            strides=per_axis(stride, spatial),
            pads=pads,
            dilations=per_axis(dilation, spatial),
            group=groups,
        ),
    )


def _kernel(weight: Value) -> list[int] | None:
    """The kernel's sizes where they are known; ONNX infers them otherwise."""
    assert weight.shape is not None
    sizes = weight.shape.dims[2:]
    known = [size for size in sizes if isinstance(size, int)]
    return known if len(known) == len(sizes) else None


@register(aten.conv1d.default, aten.conv2d.default, aten.conv3d.default)
def aten_conv(
    op: Builder,
    input: Value,
    weight: Value,
    bias: Value | None = None,
    stride: Ints = (1,),
    padding: Ints = (0,),
    dilation: Ints = (1,),
    groups: int = 1,
) -> Value:
    spatial = op.rank(weight) - 2
    pads = per_axis(padding, spatial) * 2
    return convolved(op, input, weight, bias, stride, pads, dilation, groups)


@register(aten.conv1d.padding, aten.conv2d.padding, aten.conv3d.padding)
def aten_conv_padding(
    op: Builder,
    input: Value,
    weight: Value,
    bias: Value | None = None,
    stride: Ints = (1,),
    padding: str = "valid",
    dilation: Ints = (1,),
    groups: int = 1,
) -> Value:
    """``same`` pads ``dilation * (kernel - 1)`` in all, the odd one after, as torch does."""
    spatial = op.rank(weight) - 2
    if padding == "valid":
        return convolved(op, input, weight, bias, stride, [0] * 2 * spatial, dilation, groups)
    assert weight.shape is not None
    steps = per_axis(dilation, spatial)
    total = [step * (int(k) - 1) for step, k in zip(steps, weight.shape[2:], strict=True)]  # type: ignore[arg-type]
    pads = [t // 2 for t in total] + [t - t // 2 for t in total]
    return convolved(op, input, weight, bias, stride, pads, dilation, groups)


@register(aten.conv_transpose1d.default, aten.conv_transpose2d.input, aten.conv_transpose3d.input)
def aten_conv_transpose(
    op: Builder,
    input: Value,
    weight: Value,
    bias: Value | None = None,
    stride: Ints = (1,),
    padding: Ints = (0,),
    output_padding: Ints = (0,),
    groups: int = 1,
    dilation: Ints = (1,),
) -> Value:
    spatial = op.rank(weight) - 2
    return batched(
        op,
        input,
        spatial,
        lambda x: op.ConvTranspose(
            x,
            weight,
            bias,
            kernel_shape=_kernel(weight),
            strides=per_axis(stride, spatial),
            pads=per_axis(padding, spatial) * 2,
            output_padding=per_axis(output_padding, spatial),
            dilations=per_axis(dilation, spatial),
            group=groups,
        ),
    )


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
    groups: int,
) -> Value:
    if transposed:
        return aten_conv_transpose(
            op, input, weight, bias, stride, padding, output_padding, groups, dilation
        )
    return aten_conv(op, input, weight, bias, stride, padding, dilation, groups)
