"""torchvision's operators: box suppression, pooling of regions, deformable convolution.

They exist once torchvision has been imported; this family is imported when a graph has one.

Pooling a region is separable: one matrix of weights for the rows and one for the columns. Where
ONNX has no operator that ONNX Runtime runs, a loop over the regions multiplies by both.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import onnx_ir as ir
import torch

from onnx_aot.builder.builder import Builder, Size
from onnx_aot.errors import ConversionError
from onnx_aot.ops.core.size_math import as_value
from onnx_aot.ops.registry import LIMITS, register

__all__: list[str] = []

torchvision = torch.ops.torchvision
Value = ir.Value
FLOAT = ir.DataType.FLOAT
INT32 = ir.DataType.INT32
INT64 = ir.DataType.INT64


# --- boxes ---------------------------------------------------------------------------------------


@register(torchvision.nms.default)
def torchvision_nms(op: Builder, dets: Value, scores: Value, iou_threshold: float) -> Value:
    """Emits NonMaxSuppression of one class, which takes FLOAT and corners in either order."""
    boxes = op.Unsqueeze(op.cast(dets, FLOAT), [0])
    weights = op.Unsqueeze(op.cast(scores, FLOAT), [0, 1])
    most = op.sizes([op.size(dets, 0)])
    threshold = op.constant([float(iou_threshold)], FLOAT)
    kept = op.NonMaxSuppression(boxes, weights, most, threshold)  # batch, class, box
    return op.Squeeze(op.Slice(kept, [2], [3], [1]), [1])


LIMITS[torchvision.nms.default] = "overlaps of float64 boxes are computed in float32"
LIMITS[torchvision.roi_align.default] = "before opset 22 spatial_scale is rounded to float32"


# --- regions -------------------------------------------------------------------------------------


class _Regions:
    """The parts of ``[count, 5]`` regions: index of the image, then x and y of two corners."""

    def __init__(self, op: Builder, rois: Value) -> None:
        parts = op.split(rois, [1, 1, 1, 1, 1], 1)
        self.image = op.cast(op.Squeeze(parts[0], [1]), INT64)
        self.columns = (parts[1], parts[3])
        self.rows = (parts[2], parts[4])
        self.count: Size = op.size(rois, 0)


def _pixel_positions(op: Builder, size: Size, dtype: ir.DataType | None) -> Value:
    """``0, 1, ...`` in the given type."""
    return op.cast(op.Range(0, as_value(op, size), 1), dtype)


def _sample_weights(
    op: Builder,
    corners: tuple[Value, Value],
    size: Size,
    bins: int,
    scale: float,
    ratio: int,
    shift: float,
    least: float | None,
) -> tuple[Value, Value]:
    """Weights with which bins sample one axis, and the number of samples per bin.

    A sample between two pixels is their mean, weighted by distance. Up to one pixel outside the
    image it is the border pixel; farther outside it is 0.

    Args:
        op: The builder.
        corners: First and last coordinate of each region, ``[count, 1]``.
        size: Number of pixels along the axis.
        bins: Number of bins.
        scale: Factor from the regions' coordinates to pixels.
        ratio: Samples per bin; if 0 or less, one per pixel.
        shift: Subtracted from the scaled coordinates.
        least: Least extent of a region, if any.

    Returns:
        ``[count, bins, size]`` and ``[count, 1]``.
    """
    dtype = corners[0].dtype
    start = op.Sub(op.Mul(corners[0], scale), shift)
    extent = op.Sub(op.Sub(op.Mul(corners[1], scale), shift), start)
    if least is not None:
        extent = op.Max(extent, least)
    step = op.Div(extent, float(bins))
    if ratio > 0:
        samples, most = op.Add(op.Mul(step, 0.0), float(ratio)), op.constant(ratio)
    else:
        samples = op.Ceil(step)
        # at least 1, even without regions
        padded = op.Concat(op.Reshape(samples, [-1]), op.constant([1.0], dtype), axis=0)
        most = op.cast(op.reduce("ReduceMax", padded, None, False), INT64)
    index = _pixel_positions(op, most, dtype)
    inside = op.Less(index, samples)  # [count, most]
    offset = op.Div(op.Mul(op.Add(index, 0.5), step), op.Max(samples, 1.0))
    firsts = op.Add(start, op.Mul(step, op.constant(list(map(float, range(bins))), dtype)))
    position = op.Add(op.Unsqueeze(firsts, [2]), op.Unsqueeze(offset, [1]))  # [count, bins, most]
    length = op.cast(as_value(op, size), dtype)
    valid = op.And(op.GreaterOrEqual(position, -1.0), op.LessOrEqual(position, length))
    valid = op.And(valid, op.Unsqueeze(inside, [1]))
    clamped = op.Min(op.Max(position, 0.0), op.Sub(length, 1.0))
    distance = op.Abs(op.Sub(op.Unsqueeze(clamped, [3]), _pixel_positions(op, size, dtype)))
    weights = op.Mul(op.Relu(op.Sub(1.0, distance)), op.cast(op.Unsqueeze(valid, [3]), dtype))
    return op.ReduceSum(weights, [2], keepdims=0), samples


def _per_region(
    op: Builder,
    input: Value,
    regions: _Regions,
    weights: tuple[Value, Value],
    shape: Sequence[Size],
    pool: Callable[[Value, Value, Value], list[Value]],
) -> list[Value]:
    """Results of ``pool(image, weights of rows, weights of columns)`` for each region.

    ``shape`` is the shape of one result, which a loop without steps does not know.
    """

    def pool_region(index: Value) -> list[Value]:
        image = op.Gather(input, op.Gather(regions.image, index, axis=0), axis=0)
        rows, columns = (op.Gather(weight, index, axis=0) for weight in weights)
        return pool(image, rows, columns)

    sizes = op.sizes([regions.count, *shape])
    collected = op.loop(as_value(op, regions.count), [], pool_region)
    return [op.Reshape(value, sizes, allowzero=1) for value in collected]


def _sum_bins(op: Builder, image: Value, rows: Value, columns: Value) -> list[Value]:
    """Sums every channel of ``[channels, height, width]`` over every bin."""
    return [op.MatMul(op.MatMul(rows, image), op.Transpose(columns, perm=[1, 0]))]


def _sum_bins_by_position(op: Builder, image: Value, rows: Value, columns: Value) -> list[Value]:
    """Sums each bin over its own channels: ``[outputs, rows, columns, height, width]``."""
    along = op.MatMul(image, op.Unsqueeze(columns, [2]))  # [outputs, rows, columns, height, 1]
    both = op.MatMul(op.Unsqueeze(rows, [1, 2]), along)
    return [op.Squeeze(both, [3, 4])]


def _multiply_extents(op: Builder, first: Value, second: Value) -> Value:
    """Products of two numbers per region, as divisor of ``[count, channels, rows, columns]``."""
    return op.Unsqueeze(op.Mul(first, second), [2, 3])


@register(torchvision.roi_align.default)
def torchvision_roi_align(
    op: Builder,
    input: Value,
    rois: Value,
    spatial_scale: float,
    pooled_height: int,
    pooled_width: int,
    sampling_ratio: int,
    aligned: bool,
) -> Value:
    """RoiAlign; ONNX Runtime has no kernel for its version since opset 22.

    Before opset 16 the operator has no attribute for the alignment of pixels.
    """
    if 16 <= op.opset < 22:
        return op.RoiAlign(
            input,
            op.Slice(rois, [1], [5], [1]),
            _Regions(op, rois).image,
            output_height=pooled_height,
            output_width=pooled_width,
            sampling_ratio=max(sampling_ratio, 0),
            spatial_scale=spatial_scale,
            coordinate_transformation_mode="half_pixel" if aligned else "output_half_pixel",
        )
    regions = _Regions(op, rois)
    shift, least = (0.5, None) if aligned else (0.0, 1.0)
    common = (spatial_scale, sampling_ratio, shift, least)
    rows, down = _sample_weights(op, regions.rows, op.size(input, 2), pooled_height, *common)
    columns, across = _sample_weights(op, regions.columns, op.size(input, 3), pooled_width, *common)
    shape = [op.size(input, 1), pooled_height, pooled_width]
    pooled = _per_region(
        op, input, regions, (rows, columns), shape, lambda *parts: _sum_bins(op, *parts)
    )[0]
    return op.Div(pooled, op.Max(_multiply_extents(op, down, across), 1.0))


@register(torchvision.ps_roi_align.default)
def torchvision_ps_roi_align(
    op: Builder,
    input: Value,
    rois: Value,
    spatial_scale: float,
    pooled_height: int,
    pooled_width: int,
    sampling_ratio: int,
) -> list[Value]:
    """Samples each bin from its own channels."""
    regions = _Regions(op, rois)
    common = (spatial_scale, sampling_ratio, 0.5, None)
    rows, down = _sample_weights(op, regions.rows, op.size(input, 2), pooled_height, *common)
    columns, across = _sample_weights(op, regions.columns, op.size(input, 3), pooled_width, *common)
    pooled = _by_position(op, input, regions, (rows, columns), (pooled_height, pooled_width))
    mapping = _channel_mapping(op, input, regions, pooled_height, pooled_width)
    return [op.Div(pooled, _multiply_extents(op, down, across)), mapping]


def _by_position(
    op: Builder,
    input: Value,
    regions: _Regions,
    weights: tuple[Value, Value],
    bins: tuple[int, int],
) -> Value:
    height, width = op.size(input, 2), op.size(input, 3)
    outputs = _count_output_channels(op, input, *bins)
    split = op.Reshape(input, op.sizes([op.size(input, 0), outputs, *bins, height, width]))
    return _per_region(
        op,
        split,
        regions,
        weights,
        [outputs, *bins],
        lambda *parts: _sum_bins_by_position(op, *parts),
    )[0]


def _count_output_channels(op: Builder, input: Value, height: int, width: int) -> int:
    channels = op.size(input, 1)
    if not isinstance(channels, int):
        raise ConversionError(
            "pooling by position divides the channels among the bins, and needs their number when "
            "the model is exported; make axis 1 of the input static in dynamic_shapes",
            code="OA404",
        )
    return channels // (height * width)


def _channel_mapping(
    op: Builder, input: Value, regions: _Regions, height: int, width: int
) -> Value:
    """Channel from which each bin of each output comes."""
    outputs = _count_output_channels(op, input, height, width)
    index = torch.arange(outputs * height * width, dtype=torch.int32)
    mapping = op.constant(index.reshape(1, outputs, height, width))
    return op.Expand(mapping, op.sizes([regions.count, outputs, height, width]))


# --- regions of whole pixels ---------------------------------------------------------------------


def _round_half_away(op: Builder, value: Value) -> Value:
    """Rounds to the nearest integer, halves away from zero, as in C."""
    return op.Mul(op.Sign(value), op.Floor(op.Add(op.Abs(value), 0.5)))


def _mask_bins(
    op: Builder,
    corners: tuple[Value, Value],
    size: Size,
    bins: int,
    scale: float,
    beyond: int,
) -> tuple[Value, Value]:
    """Mask of the pixels in each bin along one axis, ``[count, bins, size]``, and their number.

    ``beyond`` is what the last pixel adds to the extent; if it is 0, the last pixel of the image is
    not in any bin either.
    """
    dtype = corners[0].dtype
    start, last = (_round_half_away(op, op.Mul(corner, scale)) for corner in corners)
    extent = op.Max(op.Add(op.Sub(last, start), float(beyond)), 1.0)
    step = op.Div(extent, float(bins))
    end = op.Add(op.cast(as_value(op, size), dtype), float(beyond - 1))

    def locate_edge(first: int, whole: Callable[[Value], Value]) -> Value:
        index = op.constant([float(b + first) for b in range(bins)], dtype)
        return op.Min(op.Max(op.Add(whole(op.Mul(step, index)), start), 0.0), end)

    lower, upper = locate_edge(0, op.Floor), locate_edge(1, op.Ceil)
    pixel = _pixel_positions(op, size, dtype)
    inside = op.And(
        op.GreaterOrEqual(pixel, op.Unsqueeze(lower, [2])),
        op.Less(pixel, op.Unsqueeze(upper, [2])),
    )
    return inside, op.Max(op.Sub(upper, lower), 0.0)


@register(torchvision.ps_roi_pool.default)
def torchvision_ps_roi_pool(
    op: Builder,
    input: Value,
    rois: Value,
    spatial_scale: float,
    pooled_height: int,
    pooled_width: int,
) -> list[Value]:
    """Mean of each bin over its own channels; 0 for an empty bin."""
    regions = _Regions(op, rois)
    rows, down = _mask_bins(op, regions.rows, op.size(input, 2), pooled_height, spatial_scale, 0)
    columns, across = _mask_bins(
        op, regions.columns, op.size(input, 3), pooled_width, spatial_scale, 0
    )
    weights = (op.cast(rows, input.dtype), op.cast(columns, input.dtype))
    pooled = _by_position(op, input, regions, weights, (pooled_height, pooled_width))
    area = op.Mul(op.Unsqueeze(down, [1, 3]), op.Unsqueeze(across, [1, 2]))
    mapping = _channel_mapping(op, input, regions, pooled_height, pooled_width)
    return [op.Div(pooled, op.Max(area, 1.0)), mapping]


@register(torchvision.roi_pool.default)
def torchvision_roi_pool(
    op: Builder,
    input: Value,
    rois: Value,
    spatial_scale: float,
    pooled_height: int,
    pooled_width: int,
) -> list[Value]:
    """Largest number of each bin and its position.

    MaxRoiPool computes the numbers; ONNX Runtime has no kernel for its version since opset 22. The
    loop is removed if nothing reads its results.
    """
    regions = _Regions(op, rois)
    rows, _ = _mask_bins(op, regions.rows, op.size(input, 2), pooled_height, spatial_scale, 1)
    columns, _ = _mask_bins(op, regions.columns, op.size(input, 3), pooled_width, spatial_scale, 1)
    width = as_value(op, op.size(input, 3))
    largest, where = _per_region(
        op,
        input,
        regions,
        (rows, columns),
        [op.size(input, 1), pooled_height, pooled_width],
        lambda *parts: _find_bin_maximum(op, width, *parts),
    )
    if op.opset < 22:
        largest = op.MaxRoiPool(
            input, rois, pooled_shape=[pooled_height, pooled_width], spatial_scale=spatial_scale
        )
    return [largest, where]


def _find_bin_maximum(
    op: Builder, width: Value, image: Value, rows: Value, columns: Value
) -> list[Value]:
    """Reduces along the width, then along the height; the first of equal numbers counts."""
    nothing = op.constant(-math.inf, image.dtype)
    # [channels, height, columns, width]
    choice = op.Where(op.Unsqueeze(columns, [0, 1]), op.Unsqueeze(image, [2]), nothing)
    across = op.reduce("ReduceMax", choice, [3], False)
    column = op.ArgMax(choice, axis=3, keepdims=0)
    # [channels, rows, columns, height]
    across = op.Unsqueeze(op.Transpose(across, perm=[0, 2, 1]), [1])
    choice = op.Where(op.Unsqueeze(rows, [0, 2]), across, nothing)
    largest = op.reduce("ReduceMax", choice, [3], False)
    row = op.ArgMax(choice, axis=3, keepdims=1)
    column = op.Unsqueeze(op.Transpose(column, perm=[0, 2, 1]), [1])
    bins = op.Concat(op.constant([1]), op.Shape(row, start=1, end=2), op.constant([1, 1]), axis=0)
    column = op.GatherElements(op.Tile(column, bins), row, axis=3)
    where = op.Squeeze(op.Add(op.Mul(row, width), column), [3])
    empty = op.Equal(largest, nothing)
    return [
        op.Where(empty, op.constant(0.0, image.dtype), largest),
        op.cast(op.Where(empty, -1, where), INT32),
    ]


# --- convolution ---------------------------------------------------------------------------------


@register(torchvision.deform_conv2d.default)
def torchvision_deform_conv2d(
    op: Builder,
    input: Value,
    weight: Value,
    offset: Value,
    mask: Value,
    bias: Value,
    stride_h: int,
    stride_w: int,
    pad_h: int,
    pad_w: int,
    dilation_h: int,
    dilation_w: int,
    groups: int,
    offset_groups: int,
    use_mask: bool,
) -> Value:
    """DeformConv, which exists since opset 19."""
    return op.DeformConv(
        input,
        weight,
        offset,
        bias,
        mask if use_mask else None,
        strides=[stride_h, stride_w],
        pads=[pad_h, pad_w, pad_h, pad_w],
        dilations=[dilation_h, dilation_w],
        group=groups,
        offset_group=offset_groups,
    )
