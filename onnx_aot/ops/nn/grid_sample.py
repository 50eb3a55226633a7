"""Sampling of an image at the positions of a grid, in two and three dimensions."""

from __future__ import annotations

import functools
import itertools
from collections.abc import Sequence

import onnx_ir as ir

from onnx_aot.builder.builder import Builder, Size
from onnx_aot.ops.core.movement import reshape
from onnx_aot.ops.core.size_math import add_sizes, product
from onnx_aot.ops.nn.conv_arguments import NARROW
from onnx_aot.ops.registry import register
from onnx_aot.torch_compat import aten

__all__: list[str] = []

Value = ir.Value

BILINEAR, NEAREST, BICUBIC = 0, 1, 2
ZEROS, BORDER, REFLECTION = 0, 1, 2

MODES = {BILINEAR: "linear", NEAREST: "nearest", BICUBIC: "cubic"}
MODES_16 = {BILINEAR: "bilinear", NEAREST: "nearest", BICUBIC: "bicubic"}
PADDINGS = {ZEROS: "zeros", BORDER: "border", REFLECTION: "reflection"}


@register(aten.grid_sampler.default, aten.grid_sampler_2d.default, aten.grid_sampler_3d.default)
def aten_grid_sampler(
    op: Builder,
    input: Value,
    grid: Value,
    interpolation_mode: int,
    padding_mode: int,
    align_corners: bool,
) -> Value:
    """GridSample for images; volumes, float64 and bicubic are computed from the pixels around.

    ONNX has GridSample since opset 16 and three dimensions since opset 20, but ONNX Runtime lacks
    some of their modes. Half precision is widened, because the positions are computed.
    """
    dtype = input.dtype
    if dtype in NARROW:
        input, grid = op.cast(input, ir.DataType.FLOAT), op.cast(grid, ir.DataType.FLOAT)
    fits = op.rank(input) == 4 and input.dtype == ir.DataType.FLOAT and op.opset >= 16
    if fits and interpolation_mode != BICUBIC:
        modes = MODES if op.opset >= 20 else MODES_16
        sampled = op.GridSample(
            input,
            grid,
            mode=modes[interpolation_mode],
            padding_mode=PADDINGS[padding_mode],
            align_corners=int(align_corners),
        )
        return op.cast(sampled, dtype)
    if interpolation_mode == BICUBIC:
        value = _sample_cubic(op, input, grid, padding_mode, align_corners)
    else:
        value = _sample_nearest_or_linear(
            op, input, grid, interpolation_mode, padding_mode, align_corners
        )
    return op.cast(value, dtype)


def _unnormalize_grid(
    op: Builder, grid: Value, sizes: Sequence[Size], align_corners: bool
) -> list[Value]:
    """Converts the grid's numbers to pixel positions per axis; the grid has the last axis first."""
    places = []
    for index, size in enumerate(sizes):
        along = op.Gather(grid, len(sizes) - 1 - index, axis=op.rank(grid) - 1)
        length = op.cast(size, grid.dtype)
        if align_corners:
            places.append(op.Mul(op.Div(op.Add(along, 1.0), 2.0), op.Sub(length, 1.0)))
        else:
            places.append(op.Div(op.Sub(op.Mul(op.Add(along, 1.0), length), 1.0), 2.0))
    return places


def _apply_padding_mode(
    op: Builder, place: Value, size: Size, padding_mode: int, align_corners: bool
) -> Value:
    """Moves a position into the image per the padding mode; zero padding is handled later."""
    if padding_mode == ZEROS:
        return place
    end = op.cast(add_sizes(op, size, -1), place.dtype)
    if padding_mode == REFLECTION:
        place = _reflect_coordinates(op, place, size, align_corners)
    return op.Min(op.Max(place, 0.0), end)


def _reflect_coordinates(op: Builder, place: Value, size: Size, align_corners: bool) -> Value:
    """Reflects at the outer pixels' centres or edges until the position is between them."""
    low = 0.0 if align_corners else -0.5
    span = op.cast(add_sizes(op, size, -1) if align_corners else size, place.dtype)
    number = op.number(size)
    if align_corners and number == 1:
        return op.Mul(place, 0.0)
    span = op.Max(span, 1.0) if number is None else span
    away = op.Abs(op.Sub(place, low))
    flips = op.Floor(op.Div(away, span))
    rest = op.Sub(away, op.Mul(flips, span))
    odd = op.Greater(op.Sub(flips, op.Mul(op.Floor(op.Div(flips, 2.0)), 2.0)), 0.5)
    return op.Add(op.Where(odd, op.Sub(span, rest), rest), low)


class _Image:
    """Image ``[N, C, sizes]`` whose pixels are looked up at integer positions."""

    def __init__(self, op: Builder, image: Value, grid: Value) -> None:
        self.op = op
        self.sizes = op.all_sizes(image)[2:]
        batch, channels = op.size(image, 0), op.size(image, 1)
        self.wanted = op.all_sizes(grid)[1:-1]
        count = product(op, self.wanted)
        self.flat = reshape(op, image, [batch, channels, product(op, self.sizes)])
        self.index_shape = op.sizes([batch, 1, count])
        self.all_shape = op.sizes([batch, channels, count])
        self.shape = [batch, channels, *self.wanted]
        self.rank = op.rank(image)

    def gather(self, places: Sequence[Value], inside: bool) -> Value:
        """Pixels ``[N, C, wanted]`` at positions, ``[N, wanted]`` each; 0 outside the image."""
        op = self.op
        ends = [op.cast(add_sizes(op, size, -1), places[0].dtype) for size in self.sizes]
        index: Value | None = None
        for axis, place in enumerate(places):
            held = op.Min(op.Max(place, 0.0), ends[axis])
            # a NaN position is looked up at 0, since its weight is NaN as well
            held = op.Where(op.IsNaN(held), 0.0, held)
            along = op.Mul(op.cast(held, ir.DataType.INT64), product(op, self.sizes[axis + 1 :]))
            index = along if index is None else op.Add(index, along)
        index = op.Reshape(index, self.index_shape, allowzero=1)
        pixels = op.GatherElements(self.flat, op.Expand(index, self.all_shape), axis=2)
        found = reshape(op, pixels, self.shape)
        if inside:
            return found
        kept: Value | None = None
        for place, end in zip(places, ends, strict=True):
            one = op.And(op.GreaterOrEqual(place, 0.0), op.LessOrEqual(place, end))
            kept = one if kept is None else op.And(kept, one)
        return op.Where(op.Unsqueeze(kept, [1]), found, 0.0)


def _sample_nearest_or_linear(
    op: Builder, image: Value, grid: Value, mode: int, padding_mode: int, align_corners: bool
) -> Value:
    """Nearest pixel, or weighted sum of the corners, around each position."""
    pixels = _Image(op, image, grid)
    inside = padding_mode != ZEROS
    places = [
        _apply_padding_mode(op, place, size, padding_mode, align_corners)
        for place, size in zip(
            _unnormalize_grid(op, grid, pixels.sizes, align_corners), pixels.sizes, strict=True
        )
    ]
    if mode == NEAREST:
        return pixels.gather([op.Round(place) for place in places], inside)
    lows = [op.Floor(place) for place in places]
    parts = [op.Sub(place, low) for place, low in zip(places, lows, strict=True)]
    total: Value | None = None
    for corner in itertools.product((0, 1), repeat=len(places)):
        weight: Value | None = None
        for high, part in zip(corner, parts, strict=True):
            one = part if high else op.Sub(1.0, part)
            weight = one if weight is None else op.Mul(weight, one)
        at = [op.Add(low, 1.0) if high else low for high, low in zip(corner, lows, strict=True)]
        term = op.Mul(pixels.gather(at, inside), op.Unsqueeze(weight, [1]))
        total = term if total is None else op.Add(total, term)
    assert total is not None
    return total


def _sample_cubic(
    op: Builder, image: Value, grid: Value, padding_mode: int, align_corners: bool
) -> Value:
    """Weights four pixels along each axis around each position; each is padded on its own.

    Torch samples volumes this way from 2.15 on.
    """
    pixels = _Image(op, image, grid)
    places = _unnormalize_grid(op, grid, pixels.sizes, align_corners)
    lows = [op.Floor(place) for place in places]
    weights = [
        _cubic_weights(op, op.Sub(place, low)) for place, low in zip(places, lows, strict=True)
    ]
    around = [
        [
            _apply_padding_mode(op, op.Add(low, float(step)), size, padding_mode, align_corners)
            for step in (-1, 0, 1, 2)
        ]
        for low, size in zip(lows, pixels.sizes, strict=True)
    ]
    total: Value | None = None
    for steps in itertools.product(range(4), repeat=len(places)):
        weight = functools.reduce(op.Mul, [w[step] for w, step in zip(weights, steps, strict=True)])
        at = [places[step] for places, step in zip(around, steps, strict=True)]
        term = op.Mul(pixels.gather(at, padding_mode != ZEROS), op.Unsqueeze(weight, [1]))
        total = term if total is None else op.Add(total, term)
    assert total is not None
    return total


def _cubic_weights(op: Builder, t: Value) -> list[Value]:
    """Weights of the four pixels around a position: Keys' cubic convolution, ``a = -0.75``."""
    a = -0.75

    def near_weight(x: Value) -> Value:  # |x| <= 1
        return op.Add(op.Mul(op.Mul(op.Sub(op.Mul(x, a + 2), a + 3), x), x), 1.0)

    def far_weight(x: Value) -> Value:  # 1 < |x| < 2
        inner = op.Add(op.Mul(op.Sub(op.Mul(x, a), 5 * a), x), 8 * a)
        return op.Sub(op.Mul(inner, x), 4 * a)

    rest = op.Sub(1.0, t)
    return [
        far_weight(op.Add(t, 1.0)),
        near_weight(t),
        near_weight(rest),
        far_weight(op.Add(rest, 1.0)),
    ]
