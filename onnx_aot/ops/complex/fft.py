"""Discrete Fourier transforms; stft and istft based on them.

Short ones are products with matrices, the others ONNX DFT (versions 17 and 20).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import onnx_ir as ir
import torch

from onnx_aot.builder.builder import Builder, Size
from onnx_aot.errors import ConversionError
from onnx_aot.ops.complex.arithmetic import divide, multiply
from onnx_aot.ops.complex.fourier_matrices import (
    fits_matrix,
    is_power_of_two,
    multiply_back_to_real,
    multiply_by_matrix,
)
from onnx_aot.ops.complex.pairs import Complex, join, register_complex, split
from onnx_aot.ops.core.size_math import add_sizes, divide_size, multiply_sizes, subtract_sizes
from onnx_aot.ops.registry import register
from onnx_aot.torch_compat import aten, prims

__all__: list[str] = []

Value = ir.Value

# at::native::fft_norm_mode
NORM_NONE, NORM_BY_ROOT, NORM_BY_SIZE = 0, 1, 2
DFT_SINCE = 17

NORMS = {None: NORM_BY_SIZE, "backward": NORM_BY_SIZE, "ortho": NORM_BY_ROOT, "forward": NORM_NONE}
"""Normalization of inverse transforms."""


def _dft(
    op: Builder,
    value: Value,
    axis: int,
    *,
    inverse: bool = False,
    onesided: bool = False,
    length: Size | None = None,
) -> Value:
    """One transform of ``[..., 1 or 2]`` along a non-negative axis; the inverse divides by n.

    Lengths that are not known to be powers of two are transformed in float64, since ONNX Runtime
    transforms others by Bluestein's algorithm: that of 44,100 samples is off by 3 % in float32, and
    takes as long.

    Args:
        op: The builder.
        value: Value to transform.
        axis: Axis to transform along.
        inverse: True transforms back.
        onesided: True omits the second half of a real value's transform.
        length: Number of elements to which the axis is padded with zeros.
    """
    dtype = value.dtype
    if not is_power_of_two(op.size(value, axis) if length is None else length):
        value = op.cast(value, ir.DataType.DOUBLE)
    options = {"inverse": int(inverse), "onesided": int(onesided)}
    whole = axis > 0  # ONNX expects a batch axis before the signal's
    batched = value if whole else op.Unsqueeze(value, [0])
    position = axis if whole else axis + 1
    if op.opset >= 20:
        answer = op.DFT(batched, length, op.constant(position, ir.DataType.INT64), **options)
    else:
        answer = op.DFT(batched, length, axis=position, **options)
    return op.cast(answer if whole else op.Squeeze(answer, [0]), dtype)


def _transform(op: Builder, value: Complex, axes: Sequence[int], forward: bool) -> Complex:
    """Transforms several axes: unscaled forward, divided by sizes backward."""
    for axis in axes:
        length = op.size(value.real, axis)
        if fits_matrix(length, is_complex=True, has_dft=op.opset >= DFT_SINCE):
            value = multiply_by_matrix(op, value, axis, length, inverse=not forward)
        else:
            value = split(op, _dft(op, join(op, value), axis, inverse=not forward))
    return value


def _transform_real(op: Builder, value: Value, axis: int, *, onesided: bool) -> Complex:
    """Transforms a real value, unscaled; ``onesided`` leaves out the second half."""
    length = op.size(value, axis)
    if fits_matrix(length, is_complex=False, has_dft=op.opset >= DFT_SINCE):
        return multiply_by_matrix(op, value, axis, length, onesided=onesided)
    return split(op, _dft(op, op.Unsqueeze(value, [-1]), axis, onesided=onesided))


def _scale(op: Builder, value: Any, sizes: Sequence[Size], normalization: int, done: bool) -> Any:
    """Applies the normalization; ``done`` says that the sizes have already been divided by."""
    power = {NORM_NONE: 0.0, NORM_BY_ROOT: -0.5, NORM_BY_SIZE: -1.0}[normalization]
    power += 1.0 if done else 0.0
    if power == 0.0 or not sizes:
        return value
    part = value.real if isinstance(value, Complex) else value
    if all(isinstance(size, int) for size in sizes):
        factor = op.constant(float(math.prod(sizes)) ** power, part.dtype)  # type: ignore[arg-type]
    else:
        count = op.ReduceProd(op.sizes(sizes), keepdims=0)
        factor = op.Pow(op.cast(count, part.dtype), op.constant(power, part.dtype))
    if isinstance(value, Complex):
        return Complex(op.Mul(value.real, factor), op.Mul(value.imag, factor))
    return op.Mul(value, factor)


@register_complex(aten._fft_c2c.default)
def complex_fft_c2c(
    op: Builder, self: Complex, dim: Sequence[int], normalization: int, forward: bool
) -> Complex:
    axes = [op.axis(self.real, axis) for axis in dim]
    sizes = [op.size(self.real, axis) for axis in axes]
    answer = _transform(op, self, axes, forward)
    return _scale(op, answer, sizes, normalization, not forward)


@register_complex(prims.fft_c2c.default)
def complex_prims_fft_c2c(op: Builder, self: Complex, dim: Sequence[int], forward: bool) -> Complex:
    return complex_fft_c2c(op, self, dim, NORM_NONE, forward)


@register_complex(prims.fft_r2c.default)
def complex_prims_fft_r2c(op: Builder, self: Value, dim: Sequence[int], onesided: bool) -> Complex:
    return complex_fft_r2c(op, self, dim, NORM_NONE, onesided)


@register_complex(prims.fft_c2r.default)
def complex_prims_fft_c2r(
    op: Builder, self: Complex, dim: Sequence[int], last_dim_size: Size
) -> Value:
    return complex_fft_c2r(op, self, dim, NORM_NONE, last_dim_size)


@register_complex(aten._fft_r2c.default)
def complex_fft_r2c(
    op: Builder, self: Value, dim: Sequence[int], normalization: int, onesided: bool
) -> Complex:
    """Transforms the last axis first, where ``onesided`` omits the second half."""
    axes = [op.axis(self, axis) for axis in dim]
    sizes = [op.size(self, axis) for axis in axes]
    answer = _transform_real(op, self, axes[-1], onesided=onesided)
    answer = _transform(op, answer, axes[:-1], True)
    return _scale(op, answer, sizes, normalization, False)


@register_complex(aten._fft_c2r.default)
def complex_fft_c2r(
    op: Builder, self: Complex, dim: Sequence[int], normalization: int, last_dim_size: Size
) -> Value:
    axes = [op.axis(self.real, axis) for axis in dim]
    sizes = [op.size(self.real, axis) for axis in axes[:-1]] + [last_dim_size]
    spectrum = _transform(op, self, axes[:-1], False)
    answer = _real_inverse(op, spectrum, axes[-1], last_dim_size)
    return _scale(op, answer, sizes, normalization, True)


@register_complex(aten.fft_irfft.default)
def complex_fft_irfft(
    op: Builder, self: Complex, n: Size | None, dim: int, norm: str | None
) -> Value:
    """Torch's decomposition scales separately from the transform, which already scales."""
    axis = op.axis(self.real, dim)
    length = (
        multiply_sizes(op, subtract_sizes(op, op.size(self.real, axis), 1), 2) if n is None else n
    )
    answer = _real_inverse(op, self, axis, length)
    return _scale(op, answer, [length], NORMS[norm], True)


def _real_inverse(op: Builder, value: Complex, axis: int, length: Size) -> Value:
    """Transforms back along an axis that has only the first half of its length.

    Every element stands for two, except the first and the middle one of an even length.
    """
    half, there = add_sizes(op, divide_size(op, length, 2), 1), op.size(value.real, axis)
    if isinstance(half, int) and isinstance(there, int):
        count: Size = min(half, there)
    else:
        count = op.Min(half, there)
    if isinstance(count, int) and fits_matrix(
        length, is_complex=False, has_dft=op.opset >= DFT_SINCE
    ):
        if count != there:
            value = Complex(*(op.Slice(p, [0], [count], [axis]) for p in (value.real, value.imag)))
        alike = torch.tensor(_list_weights(length, count))
        return multiply_back_to_real(op, value, axis, length, count, alike)
    joined = join(op, value)
    if count != there:
        joined = op.Slice(joined, [0], op.sizes([count]), [axis])
    weights = op.cast(_weights_of_half(op, length, count), joined.dtype)
    behind = op.rank(joined) - axis - 1
    weighted = op.Mul(joined, op.Unsqueeze(weights, list(range(1, behind + 1))))
    return op.Gather(_dft(op, weighted, axis, inverse=True, length=length), 0, axis=-1)


def _weights_of_half(op: Builder, length: Size, count: Size) -> Value:
    """Number of elements of a whole transform that each of its first half stands for: 1 or 2."""
    if isinstance(length, int) and isinstance(count, int):
        return op.constant(_list_weights(length, count))
    index = op.Range(0, count, 1)
    alone = op.Or(op.Equal(index, 0), op.Equal(op.Mul(index, 2), length))
    return op.Where(alone, 1.0, 2.0)


def _list_weights(length: int, count: int) -> list[float]:
    alone = (0, length // 2 if length % 2 == 0 else 0)
    return [1.0 if index in alone else 2.0 for index in range(count)]


# --- short-time transforms -----------------------------------------------------------------------


def _center_window(
    op: Builder, window: Any, length: int, size: int, dtype: ir.DataType | None
) -> Any:
    """Centres the window (ones if there is none) in ``size`` elements."""
    if window is None:
        window = op.Expand(op.constant(1.0, dtype), [length])
    before = (size - length) // 2
    pads = [before, size - length - before]

    def pad(value: Value) -> Value:
        if pads == [0, 0]:
            return value
        return op.Pad(value, pads, op.constant(0.0, value.dtype))

    if isinstance(window, Complex):
        return Complex(pad(window.real), pad(window.imag))
    return pad(window)


def _frame_positions(op: Builder, count: Size, hop: int, size: int) -> Value:
    """Positions in the signal of each frame's elements, ``[count, size]``."""
    starts = op.Mul(op.Range(0, count, 1), hop)
    return op.Add(op.Unsqueeze(starts, [1]), op.constant(list(range(size))))


@register(aten.stft.default)  # for real numbers, with return_complex=False
@register_complex(aten.stft.default)
def complex_stft(
    op: Builder,
    self: Any,
    n_fft: int,
    hop_length: int | None = None,
    win_length: int | None = None,
    window: Any = None,
    normalized: bool = False,
    onesided: bool | None = None,
    return_complex: bool | None = None,
    align_to_window: bool | None = None,
) -> Any:
    """Gathers the frames, then transforms all of them at once."""
    if align_to_window:
        raise ConversionError(
            "stft with align_to_window=True cannot be exported; leave it out", code="OA404"
        )
    hop = n_fft // 4 if hop_length is None else hop_length
    signal = self.real if isinstance(self, Complex) else self
    complex_ = isinstance(self, Complex) or isinstance(window, Complex)
    onesided = not complex_ if onesided is None else onesided
    length = op.size(signal, -1)
    if isinstance(length, int):
        count: Size = 1 + (length - n_fft) // hop
    else:
        count = add_sizes(op, op.Div(op.Sub(length, n_fft), hop), 1)
    positions = _frame_positions(op, count, hop, n_fft)

    def gather_frames(part: Value) -> Value:
        return op.Gather(part, positions, axis=op.rank(signal) - 1)

    weight = _center_window(op, window, win_length or n_fft, n_fft, signal.dtype)
    framed = (
        Complex(gather_frames(self.real), gather_frames(self.imag))
        if isinstance(self, Complex)
        else (gather_frames(self))
    )
    axis = op.rank(signal)
    if complex_:
        product = multiply(op, framed, weight)
        spectrum = _transform(op, product, [axis], True)
    else:
        spectrum = _transform_real(op, op.Mul(framed, weight), axis, onesided=bool(onesided))
    if normalized:
        spectrum = _scale(op, spectrum, [n_fft], NORM_BY_ROOT, False)
    order = [*range(axis - 1), axis, axis - 1]
    answer = Complex(
        op.Transpose(spectrum.real, perm=order), op.Transpose(spectrum.imag, perm=order)
    )
    return answer if op.result.dtype.is_complex else join(op, answer)


@register_complex(aten.istft.default)
def complex_istft(
    op: Builder,
    self: Complex,
    n_fft: int,
    hop_length: int | None = None,
    win_length: int | None = None,
    window: Any = None,
    center: bool = True,
    normalized: bool = False,
    onesided: bool | None = None,
    length: int | None = None,
    return_complex: bool = False,
) -> Any:
    """Adds overlapping frames of the inverse transform and divides by the windows' squares."""
    hop = n_fft // 4 if hop_length is None else hop_length
    rank = op.rank(self.real)
    order = [*range(rank - 2), rank - 1, rank - 2]
    spectrum = Complex(op.Transpose(self.real, perm=order), op.Transpose(self.imag, perm=order))
    mode = NORM_BY_ROOT if normalized else NORM_BY_SIZE
    weight = _center_window(op, window, win_length or n_fft, n_fft, self.real.dtype)
    frames: Any
    if return_complex:
        frames = multiply(op, complex_fft_c2c(op, spectrum, [rank - 1], mode, False), weight)
    else:
        frames = op.Mul(complex_fft_c2r(op, spectrum, [rank - 1], mode, n_fft), weight)
    windowed = isinstance(weight, Complex)
    square = multiply(op, weight, weight) if windowed else op.Mul(weight, weight)
    count = op.size(self.real, rank - 1)
    positions = op.Reshape(_frame_positions(op, count, hop, n_fft), [-1])
    total = add_sizes(op, multiply_sizes(op, subtract_sizes(op, count, 1), hop), n_fft)

    def overlap_add(part: Value) -> Value:
        return _overlap_add(op, part, positions, total)

    def sum_envelope(part: Value) -> Value:
        return overlap_add(op.Expand(part, op.sizes([count, n_fft])))

    weights = _map_parts(square, sum_envelope)
    signal = _map_parts(frames, overlap_add)
    signal = divide(op, signal, weights) if isinstance(signal, Complex) else op.Div(signal, weights)
    start = n_fft // 2 if center else 0
    stop = start + length if length is not None else subtract_sizes(op, total, start)

    def crop_signal(part: Value) -> Value:
        kept = op.Slice(part, [start], op.sizes([stop]), [-1])
        if length is None:
            return kept
        missing = op.Sub(length, op.Shape(kept, start=rank - 2, end=rank - 1))
        pads = op.Concat([0] * (rank - 1 + rank - 2), missing, axis=0)
        return op.Pad(kept, pads, op.constant(0.0, kept.dtype))

    return _map_parts(signal, crop_signal)


def _map_parts(value: Any, function: Callable[[Value], Value]) -> Any:
    """Applies a function to a real value, or to both parts of a complex one."""
    if isinstance(value, Complex):
        return Complex(function(value.real), function(value.imag))
    return function(value)


def _overlap_add(op: Builder, frames: Value, positions: Value, total: Size) -> Value:
    """Adds up ``[..., count, size]`` into ``[..., total]``."""
    rank = op.rank(frames)
    batch = [op.size(frames, axis) for axis in range(rank - 2)]
    flat = op.Reshape(frames, op.sizes([*batch, -1]))
    zeros = op.Expand(op.constant(0.0, frames.dtype), op.sizes([*batch, total]))
    return op.ScatterElements(
        zeros, op.Expand(positions, op.Shape(flat)), flat, axis=rank - 2, reduction="add"
    )
