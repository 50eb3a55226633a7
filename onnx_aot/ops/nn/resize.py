"""Upsampling and downsampling of images: nearest, linear, cubic, Lanczos, with antialiasing.

One ONNX Resize where it places the pixels as torch does; otherwise one axis after the other, by
indices of the nearest pixels or by a matrix of pixel weights.
"""

from __future__ import annotations

import dataclasses
import inspect
import math
from collections.abc import Sequence
from typing import Any

import onnx_ir as ir
import torch

from onnx_aot.builder.builder import Builder, Size
from onnx_aot.ops.nn.conv_arguments import apply_in_float, multiply_axis
from onnx_aot.ops.nn.resize_weights import (
    Factor,
    index_of_nearest,
    weights_of_linear,
    weights_of_window,
)
from onnx_aot.ops.registry import LIMITS, register
from onnx_aot.torch_compat import Missing, OpOverload, aten, overload_name, schema_of
from onnx_aot.torch_ops.resizing import INTERPOLATE

__all__: list[str] = []

Value = ir.Value

KEEPS_SIZE = 1.5
"""A factor from here on changes every size but 1, whose pixel is repeated in any case."""


@dataclasses.dataclass(frozen=True)
class Axis:
    """One axis that is resized.

    Attributes:
        axis: Position of the axis.
        before: Its size; None if it is dynamic.
        after: Its size after resizing; None if it is dynamic.
        wanted: Size that the caller gave; None if it follows from the factor.
        factor: Factor that the caller gave, or that the graph computes; torch places pixels by it
            rather than by the sizes.
    """

    axis: int
    before: int | None
    after: int | None
    wanted: Size | None
    factor: Factor

    def sizes(self, op: Builder, input: Value) -> tuple[Size, Size]:
        """Returns its size before and after resizing."""
        before = op.size(input, self.axis)
        if self.after is not None:
            return before, self.after
        if self.wanted is not None:
            return before, self.wanted
        if self.factor == 1.0:
            return before, before
        assert isinstance(self.factor, (int, float))
        wide = op.Mul(op.cast(before, ir.DataType.DOUBLE), self.factor)
        return before, op.cast(wide, ir.DataType.INT64)

    def is_exact(self) -> bool:
        """True if the sizes alone determine the factor."""
        if isinstance(self.factor, Value):
            return False
        if self.factor is None or float(self.factor).is_integer():
            return True
        if self.before is not None and self.after is not None:
            return math.isclose(self.before * self.factor, self.after, rel_tol=1e-9)
        return False

    def scale(self) -> float | None:
        """Factor for ONNX, which multiplies sizes by it in float32; None if that may round."""
        if isinstance(self.factor, Value):
            return None
        if self.before is not None and self.after is not None:
            found = self.after / self.before if self.before else 0.0
            return found if self.factor in (None, found) and _is_exact_in_float32(found) else None
        if self.factor is None or not _is_exact_in_float32(self.factor):
            return None
        if 1.0 < self.factor < KEEPS_SIZE:
            return None  # where the size stays the same, torch copies
        follows = self.wanted is None or float(self.factor).is_integer()
        return self.factor if follows else None

    def used_factor(self, op: Builder, input: Value, ignored_at: Sequence[int]) -> Factor:
        """Factor by which torch places the pixels.

        Args:
            op: The builder.
            input: The tensor that is resized.
            ignored_at: Torch ignores the factor if the size becomes that many times as large.
        """
        factor: Factor = self.factor
        for times in filter(self._may_be_ignored, ignored_at):
            before, after = self.sizes(op, input)
            if isinstance(before, int) and isinstance(after, int):
                if after == times * before:
                    return times
                continue
            number = op.constant(float(times), ir.DataType.DOUBLE)
            is_ignored = op.Equal(op.Mul(before, times), after)
            factor = op.Where(is_ignored, number, op.cast(factor, ir.DataType.DOUBLE))
        return factor

    def _may_be_ignored(self, times: int) -> bool:
        if isinstance(self.factor, Value):
            return True
        return self.factor is not None and times < self.factor < times + KEEPS_SIZE - 1

    def repeat_count(self) -> int | None:
        """Number of times nearest mode repeats each pixel; None if it is uneven."""
        found = self.scale()
        return int(found) if found is not None and float(found).is_integer() else None

    def is_unchanged(self) -> bool:
        """True if resizing changes nothing along the axis."""
        return self.before is not None and self.scale() == 1.0


def _is_exact_in_float32(factor: float) -> bool:
    """True if products with sizes are exact in float32: up to 2,000,000 by 1.75, 0.25, 2.5."""
    return factor > 0 and float(factor * 4).is_integer() and _odd_part(int(factor * 4)) <= 7


def _odd_part(number: int) -> int:
    return number // (number & -number)


def _make_axes(
    op: Builder, input: Value, wanted: Sequence[Size] | None, factors: Sequence[Factor]
) -> list[Axis]:
    assert input.shape is not None
    spatial = op.rank(input) - 2
    factors = list(factors) or [None] * spatial
    sizes: Sequence[Size | None] = [None] * spatial if wanted is None else wanted
    return [
        Axis(
            axis, _static_size(input.shape[axis]), _static_size(op.result.shape[axis]), size, factor
        )
        for axis, (size, factor) in enumerate(zip(sizes, factors, strict=True), 2)
    ]


def _static_size(size: Any) -> int | None:
    return size if isinstance(size, int) else None


# --- registration --------------------------------------------------------------------------------


def _register(target: OpOverload, mode: str) -> None:
    """Registers a mode; overloads have either a list of factors or one argument per factor."""
    if isinstance(target, Missing):
        return
    names = [argument.name for argument in schema_of(target).arguments]

    def translation(op: Builder, *values: Any) -> Value:
        given = dict(zip(names, values, strict=True))
        factors = given.get("scale_factors")
        if "scale_factors" not in given:
            factors = [given[name] for name in names if name.startswith("scales")]
        axes = _make_axes(op, values[0], given["output_size"], factors or ())
        return _resize(op, values[0], axes, mode, bool(given.get("align_corners")))

    translation.__name__ = f"aten_{target.overloadpacket.__name__}_{overload_name(target)}"
    translation.__signature__ = inspect.Signature(  # type: ignore[attr-defined]
        [inspect.Parameter(n, inspect.Parameter.POSITIONAL_OR_KEYWORD) for n in ("op", *names)]
    )
    register(target)(translation)


_register(aten.upsample_nearest1d.default, "nearest")
_register(aten.upsample_nearest1d.vec, "nearest")
_register(aten.upsample_nearest2d.default, "nearest")
_register(aten.upsample_nearest2d.vec, "nearest")
_register(aten.upsample_nearest3d.default, "nearest")
_register(aten.upsample_nearest3d.vec, "nearest")
_register(aten._upsample_nearest_exact1d.default, "nearest-exact")
_register(aten._upsample_nearest_exact1d.vec, "nearest-exact")
_register(aten._upsample_nearest_exact2d.default, "nearest-exact")
_register(aten._upsample_nearest_exact2d.vec, "nearest-exact")
_register(aten._upsample_nearest_exact3d.default, "nearest-exact")
_register(aten._upsample_nearest_exact3d.vec, "nearest-exact")
_register(aten.upsample_linear1d.default, "linear")
_register(aten.upsample_linear1d.vec, "linear")
_register(aten.upsample_bilinear2d.default, "linear")
_register(aten.upsample_bilinear2d.vec, "linear")
_register(aten.upsample_trilinear3d.default, "linear")
_register(aten.upsample_trilinear3d.vec, "linear")
_register(aten.upsample_bicubic2d.default, "cubic")
_register(aten.upsample_bicubic2d.vec, "cubic")
_register(aten._upsample_bilinear2d_aa.default, "linear antialias")
_register(aten._upsample_bilinear2d_aa.vec, "linear antialias")
_register(aten._upsample_bicubic2d_aa.default, "cubic antialias")
_register(aten._upsample_bicubic2d_aa.vec, "cubic antialias")
_register(aten._upsample_lanczos2d_aa.default, "lanczos antialias")
_register(aten._upsample_lanczos2d_aa.vec, "lanczos antialias")

_KINDS = {"bilinear": "linear", "trilinear": "linear", "bicubic": "cubic"}


@register(INTERPOLATE)
def interpolate(
    op: Builder,
    input: Value,
    factors: Value,
    size: Sequence[Size],
    mode: str,
    align_corners: bool,
    antialias: bool,
) -> Value:
    """Resizes by factors that the graph computes."""
    axes = _make_axes(op, input, size, [op.Gather(factors, i) for i in range(len(size))])
    kind = _KINDS.get(mode, mode) + " antialias" * antialias
    return _resize(op, input, axes, kind, align_corners)


for _target in (
    aten.upsample_bilinear2d.default,
    aten.upsample_bilinear2d.vec,
    aten.upsample_bicubic2d.default,
    aten.upsample_bicubic2d.vec,
    aten._upsample_bilinear2d_aa.default,
    aten._upsample_bilinear2d_aa.vec,
    aten._upsample_bicubic2d_aa.default,
    aten._upsample_bicubic2d_aa.vec,
    aten._upsample_lanczos2d_aa.default,
    aten._upsample_lanczos2d_aa.vec,
    INTERPOLATE,
):
    LIMITS[_target] = "uint8 numbers may be off by one where the sizes are dynamic"


# --- the forms -----------------------------------------------------------------------------------


def _resize(
    op: Builder, input: Value, axes: Sequence[Axis], mode: str, align_corners: bool
) -> Value:
    if mode.startswith("nearest"):
        return _resize_nearest(op, input, axes, mode == "nearest-exact")
    if input.dtype == ir.DataType.UINT8:
        return _interpolate_bytes(op, input, axes, mode, align_corners)
    return apply_in_float(op, input, lambda x: _interpolate(op, x, axes, mode, align_corners))


# Types that ONNX Runtime resizes; other types gather the nearest pixels.
RESIZED = frozenset(
    {ir.DataType.FLOAT, ir.DataType.FLOAT16, ir.DataType.BFLOAT16, ir.DataType.UINT8}
)


def _resize_nearest(op: Builder, input: Value, axes: Sequence[Axis], exact: bool) -> Value:
    """Repeats each pixel, or gathers the nearest pixels along each axis."""
    repeats = [axis.repeat_count() for axis in axes]
    if all(repeats) and input.dtype in RESIZED:
        return op.Resize(
            input,
            None,
            op.constant([1.0, 1.0, *(float(times or 1) for times in repeats)]),
            mode="nearest",
            coordinate_transformation_mode="asymmetric",
            nearest_mode="floor",
        )
    value = input
    ignored_at = (1, 2) if len(axes) == 2 and not exact else ()
    for axis, times in zip(axes, repeats, strict=True):
        if times != 1:
            factor = axis.used_factor(op, input, ignored_at)
            index = index_of_nearest(op, *axis.sizes(op, input), factor, exact)
            value = op.Gather(value, index, axis=axis.axis)
    return value


def _interpolate(
    op: Builder, input: Value, axes: Sequence[Axis], mode: str, align_corners: bool
) -> Value:
    scales = [axis.scale() for axis in axes]
    known = None not in scales or all(align_corners or axis.is_exact() for axis in axes)
    if not known or "antialias" in mode or input.dtype != ir.DataType.FLOAT:
        return _interpolate_by_weights(op, input, axes, mode, align_corners)
    flat = len(axes) == 1  # ONNX Runtime has no linear Resize of three dimensions
    factors, wanted = None, None
    if None not in scales:
        factors = op.constant([*[1.0] * (3 if flat else 2), *scales])
    else:
        sizes = [op.size(input, 0), op.size(input, 1), *(axis.sizes(op, input)[1] for axis in axes)]
        wanted = op.sizes([*sizes[:2], 1, *sizes[2:]] if flat else sizes)
    resized = op.Resize(
        op.Unsqueeze(input, [2]) if flat else input,
        None,
        factors,
        wanted,
        mode=mode,
        coordinate_transformation_mode="align_corners" if align_corners else "half_pixel",
        cubic_coeff_a=-0.75 if mode == "cubic" else None,
    )
    return op.Squeeze(resized, [2]) if flat else resized


def _make_weights(
    op: Builder, input: Value, axis: Axis, mode: str, align_corners: bool, dtype: ir.DataType
) -> Value:
    kind, _, antialias = mode.partition(" ")
    make = weights_of_window if antialias else weights_of_linear
    is_cubic = kind == "cubic" and not antialias and input.dtype != ir.DataType.UINT8
    factor = axis.used_factor(op, input, () if is_cubic else (1,))
    return make(op, *axis.sizes(op, input), factor, align_corners, kind, dtype)


def _interpolate_by_weights(
    op: Builder, input: Value, axes: Sequence[Axis], mode: str, align_corners: bool
) -> Value:
    value = input
    assert input.dtype is not None
    for axis in reversed(axes):
        if axis.is_unchanged():
            continue
        matrix = _make_weights(op, input, axis, mode, align_corners, input.dtype)
        value = multiply_axis(op, value, axis.axis, matrix)
    return value


def _interpolate_bytes(
    op: Builder, input: Value, axes: Sequence[Axis], mode: str, align_corners: bool
) -> Value:
    """Resizes the last axis first, rounds to bytes after each, with 16-bit weights as in torch.

    The weights are exact if the sizes are static; otherwise a result may be off by one.
    """
    value = op.cast(input, ir.DataType.DOUBLE)
    for axis in reversed(axes):
        if axis.is_unchanged():
            continue
        matrix = _make_weights(op, input, axis, mode, align_corners, ir.DataType.DOUBLE)
        literal = op.literal(matrix)
        if literal is not None:
            matrix = op.constant(_round_to_16_bits(literal))
        product = multiply_axis(op, value, axis.axis, matrix)
        value = op.Min(op.Max(op.Floor(op.Add(product, 0.5)), 0.0), 255.0)
    return op.cast(value, ir.DataType.UINT8)


def _round_to_16_bits(weights: torch.Tensor) -> torch.Tensor:
    """Rounds to multiples of the smallest power of two in which the largest weight has 16 bits."""
    largest, bits = float(weights.max()), 0
    while bits < 22 and int(0.5 + largest * 2 ** (bits + 1)) < 2**15:
        bits += 1
    return torch.round(weights * 2**bits) / 2**bits
