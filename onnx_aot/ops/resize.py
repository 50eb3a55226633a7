"""Upsampling and downsampling of images: nearest, linear, cubic, with antialiasing.

One ONNX Resize where it places the pixels as torch does; otherwise along one axis after the other,
by an index of the nearest pixels or by a matrix of the pixels' weights.
"""

from __future__ import annotations

import dataclasses
import inspect
import math
from collections.abc import Sequence
from typing import Any

import onnx_ir as ir
import torch

from onnx_aot.ops.builder import Builder, Size
from onnx_aot.ops.registry import LIMITS, register
from onnx_aot.ops.resize_weights import index_of_nearest, weights_of_linear, weights_of_window
from onnx_aot.ops.windows import along_axis, in_float
from onnx_aot.torch_compat import OpOverload, aten, overload_name, schema_of

__all__: list[str] = []

Value = ir.Value


@dataclasses.dataclass(frozen=True)
class Axis:
    """One axis that is resized.

    Attributes:
        axis: Its position.
        before: Its size; ``after`` the size that it gets.
        factor: The factor that the caller gave; torch places pixels by it and not by the sizes.
    """

    axis: int
    before: Size
    after: Size
    factor: float | None

    def exact(self) -> bool:
        """Whether the sizes alone tell the factor."""
        if self.factor is None or float(self.factor).is_integer():
            return True
        if isinstance(self.before, int) and isinstance(self.after, int):
            return math.isclose(self.before * self.factor, self.after, rel_tol=1e-9)
        return False

    def repeats(self) -> int | None:
        """How often each pixel is repeated by nearest neighbours; None where it is uneven."""
        if isinstance(self.before, int) and isinstance(self.after, int):
            times, rest = divmod(self.after, self.before) if self.before else (0, 1)
            by_factor = self.factor is None or self.factor == times
            return times if not rest and by_factor else None
        whole = self.factor is not None and float(self.factor).is_integer()
        return int(self.factor) if whole and self.factor is not None else None


def _axes(
    op: Builder, input: Value, wanted: Sequence[Size] | None, factors: Sequence[float | None]
) -> list[Axis]:
    spatial = op.rank(input) - 2
    factors = list(factors) or [None] * spatial
    axes = []
    for index, factor in enumerate(factors):
        before = op.size(input, index + 2)
        recorded = op.result.shape[index + 2]
        after: Size
        if isinstance(recorded, int):
            after = recorded
        elif wanted is not None:
            after = wanted[index]
        elif factor == 1.0:
            after = before
        else:
            wide = op.Mul(op.cast(before, ir.DataType.DOUBLE), factor)
            after = op.cast(wide, ir.DataType.INT64)
        axes.append(Axis(index + 2, before, after, factor))
    return axes


# --- registration --------------------------------------------------------------------------------


def _register(target: OpOverload, mode: str) -> None:
    """The overloads differ in whether there is a list of factors or one argument for each."""
    names = [argument.name for argument in schema_of(target).arguments]

    def translation(op: Builder, *values: Any) -> Value:
        given = dict(zip(names, values, strict=True))
        factors = given.get("scale_factors")
        if "scale_factors" not in given:
            factors = [given[name] for name in names if name.startswith("scales")]
        axes = _axes(op, values[0], given["output_size"], factors or ())
        return _resized(op, values[0], axes, mode, bool(given.get("align_corners")))

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

for _target in (
    aten.upsample_bilinear2d.default,
    aten.upsample_bilinear2d.vec,
    aten.upsample_bicubic2d.default,
    aten.upsample_bicubic2d.vec,
    aten._upsample_bilinear2d_aa.default,
    aten._upsample_bilinear2d_aa.vec,
    aten._upsample_bicubic2d_aa.default,
    aten._upsample_bicubic2d_aa.vec,
):
    LIMITS[_target] = "uint8 numbers may be off by one where the sizes are dynamic"


# --- the forms -----------------------------------------------------------------------------------


def _resized(
    op: Builder, input: Value, axes: Sequence[Axis], mode: str, align_corners: bool
) -> Value:
    if mode.startswith("nearest"):
        return _nearest(op, input, axes, mode == "nearest-exact")
    if input.dtype == ir.DataType.UINT8:
        return _by_weights_of_bytes(op, input, axes, mode, align_corners)
    return in_float(op, input, lambda x: _smooth(op, x, axes, mode, align_corners))


# What ONNX Runtime resizes, others by way of these without a loss.
RESIZED = frozenset(
    {ir.DataType.FLOAT, ir.DataType.FLOAT16, ir.DataType.BFLOAT16, ir.DataType.UINT8}
)


def _nearest(op: Builder, input: Value, axes: Sequence[Axis], exact: bool) -> Value:
    """Each pixel repeated, or the index of the nearest one on each axis."""
    repeats = [axis.repeats() for axis in axes]
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
    for axis, times in zip(axes, repeats, strict=True):
        if times != 1:
            index = index_of_nearest(op, axis.before, axis.after, axis.factor, exact)
            value = op.Gather(value, index, axis=axis.axis)
    return value


def _smooth(
    op: Builder, input: Value, axes: Sequence[Axis], mode: str, align_corners: bool
) -> Value:
    known = all(align_corners or axis.exact() for axis in axes)
    if not known or "antialias" in mode or input.dtype != ir.DataType.FLOAT:
        return _by_weights(op, input, axes, mode, align_corners)
    sizes = [op.size(input, 0), op.size(input, 1), *(axis.after for axis in axes)]
    flat = len(axes) == 1  # ONNX Runtime has no linear Resize of three dimensions
    if flat:
        input = op.Unsqueeze(input, [2])
        sizes.insert(2, 1)
    resized = op.Resize(
        input,
        None,
        None,
        op.sizes(sizes),
        mode=mode,
        coordinate_transformation_mode="align_corners" if align_corners else "half_pixel",
        cubic_coeff_a=-0.75 if mode == "cubic" else None,
    )
    return op.Squeeze(resized, [2]) if flat else resized


def _matrix(op: Builder, axis: Axis, mode: str, align_corners: bool, dtype: ir.DataType) -> Value:
    kind, _, antialias = mode.partition(" ")
    make = weights_of_window if antialias else weights_of_linear
    return make(op, axis.before, axis.after, axis.factor, align_corners, kind, dtype)


def _by_weights(
    op: Builder, input: Value, axes: Sequence[Axis], mode: str, align_corners: bool
) -> Value:
    value = input
    assert input.dtype is not None
    for axis in reversed(axes):
        if _unchanged(axis):
            continue
        matrix = _matrix(op, axis, mode, align_corners, input.dtype)
        value = along_axis(op, value, axis.axis, matrix)
    return value


def _unchanged(axis: Axis) -> bool:
    same = isinstance(axis.before, int) and axis.before == axis.after
    return same and axis.factor in (None, 1.0)


def _by_weights_of_bytes(
    op: Builder, input: Value, axes: Sequence[Axis], mode: str, align_corners: bool
) -> Value:
    """The last axis first, rounded to bytes after each, with weights of 16 bits as torch has them.

    The weights are exact where the sizes are known; otherwise a result may be off by one.
    """
    value = op.cast(input, ir.DataType.DOUBLE)
    for axis in reversed(axes):
        if _unchanged(axis):
            continue
        matrix = _matrix(op, axis, mode, align_corners, ir.DataType.DOUBLE)
        literal = op.literal(matrix)
        if literal is not None:
            matrix = op.constant(_in_16_bits(literal))
        product = along_axis(op, value, axis.axis, matrix)
        value = op.Min(op.Max(op.Floor(op.Add(product, 0.5)), 0.0), 255.0)
    return op.cast(value, ir.DataType.UINT8)


def _in_16_bits(weights: torch.Tensor) -> torch.Tensor:
    """Rounded to multiples of the smallest power of two in which the largest has 16 bits."""
    largest, bits = float(weights.max()), 0
    while bits < 22 and int(0.5 + largest * 2 ** (bits + 1)) < 2**15:
        bits += 1
    return torch.round(weights * 2**bits) / 2**bits
