"""Infers the output shapes of convolutions and pools."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import onnx_ir as ir

from onnx_aot.builder.size_table import Dimension, Op

__all__ = ["infer_conv_shape", "infer_pool_shape", "transposed_convolution"]

Attributes = Mapping[str, Any]


def infer_conv_shape(
    op: Op, shape: list[Dimension], inputs: Sequence[ir.Value | None], attributes: Attributes
) -> list[Dimension] | None:
    """Conv: batch size, output channels of the weight, and number of kernel positions per axis."""
    weight = inputs[1].shape if inputs[1] is not None else None
    if weight is None:
        return None
    kernel = list(weight.dims[2:])
    return [shape[0], weight[0], *_count_positions(op, shape[2:], kernel, attributes)]


def infer_pool_shape(
    op: Op, shape: list[Dimension], _: Sequence[ir.Value | None], attributes: Attributes
) -> list[Dimension]:
    """AveragePool, MaxPool, LpPool: batch and channel sizes are kept."""
    kernel = list(attributes["kernel_shape"])
    return [*shape[:2], *_count_positions(op, shape[2:], kernel, attributes)]


def _count_positions(
    op: Op, sizes: Sequence[Dimension], kernel: Sequence[Dimension], attributes: Attributes
) -> list[Dimension]:
    rank = len(sizes)
    if attributes.get("auto_pad", "NOTSET") != "NOTSET":
        return [op.fresh() for _ in sizes]
    strides = list(attributes.get("strides") or [1] * rank)
    dilations = list(attributes.get("dilations") or [1] * rank)
    pads = list(attributes.get("pads") or [0] * (2 * rank))
    found: list[Dimension] = []
    for axis, size in enumerate(sizes):
        window = kernel[axis]
        if not isinstance(window, int):
            found.append(op.fresh())
            continue
        room = pads[axis] + pads[axis + rank] - dilations[axis] * (window - 1) - 1
        if attributes.get("ceil_mode"):
            found.append(op.fresh())  # the last window may not begin in the padding
            continue
        steps = op.combine("floordiv", op.combine("add", size, room), strides[axis])
        found.append(op.combine("add", steps, 1))
    return found


def transposed_convolution(
    op: Op, shape: list[Dimension], inputs: Sequence[ir.Value | None], attributes: Attributes
) -> list[Dimension] | None:
    """ConvTranspose: dimension 1 of the weight is the number of output channels per group."""
    weight = inputs[1].shape if inputs[1] is not None else None
    if weight is None or attributes.get("output_shape") is not None:
        return None
    rank = len(shape) - 2
    strides = list(attributes.get("strides") or [1] * rank)
    dilations = list(attributes.get("dilations") or [1] * rank)
    pads = list(attributes.get("pads") or [0] * (2 * rank))
    more = list(attributes.get("output_padding") or [0] * rank)
    found: list[Dimension] = [shape[0], op.combine("mul", weight[1], attributes.get("group") or 1)]
    for axis, size in enumerate(shape[2:]):
        window = weight[axis + 2]
        if not isinstance(window, int) or attributes.get("auto_pad", "NOTSET") != "NOTSET":
            found.append(op.fresh())
            continue
        reach = dilations[axis] * (window - 1) + 1 + more[axis]
        spread = op.combine("mul", op.combine("sub", size, 1), strides[axis])
        found.append(op.combine("add", spread, reach - pads[axis] - pads[axis + rank]))
    return found
