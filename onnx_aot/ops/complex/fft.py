"""Discrete Fourier transforms with ONNX DFT (versions 17 and 20), and stft and istft over them."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import onnx_ir as ir

from onnx_aot.builder.builder import Builder, Size
from onnx_aot.errors import ConversionError
from onnx_aot.ops.complex.arithmetic import divide, multiply
from onnx_aot.ops.complex.pairs import Complex, join, register_complex, split
from onnx_aot.ops.core.size_math import minus, plus, times
from onnx_aot.ops.registry import register
from onnx_aot.torch_compat import aten, prims

__all__: list[str] = []

Value = ir.Value

# at::native::fft_norm_mode
NORM_NONE, NORM_BY_ROOT, NORM_BY_SIZE = 0, 1, 2


def _dft(
    op: Builder, value: Value, axis: int, *, inverse: bool = False, onesided: bool = False
) -> Value:
    """One transform of ``[..., 1 or 2]`` along a non-negative axis; the inverse divides by n."""
    options = {"inverse": int(inverse), "onesided": int(onesided)}
    # ONNX has a batch axis before the signal's
    batched = op.Unsqueeze(value, [0])
    if op.opset >= 20:
        answer = op.DFT(batched, None, op.constant(axis + 1, ir.DataType.INT64), **options)
    else:
        answer = op.DFT(batched, axis=axis + 1, **options)
    return op.Squeeze(answer, [0])


def _transform(op: Builder, value: Complex, axes: Sequence[int], forward: bool) -> Complex:
    """Several axes, unscaled forward, divided by their sizes backward."""
    joined = op.Concat(op.Unsqueeze(value.real, [-1]), op.Unsqueeze(value.imag, [-1]), axis=-1)
    for axis in axes:
        joined = _dft(op, joined, axis, inverse=not forward)
    return split(op, joined)


def _scale(op: Builder, value: Any, sizes: Sequence[Size], normalization: int, done: bool) -> Any:
    """Applies the normalization to a result that is divided by the sizes already, or is not."""
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
    """The last axis first, where ``onesided`` leaves out the second half."""
    axes = [op.axis(self, axis) for axis in dim]
    sizes = [op.size(self, axis) for axis in axes]
    joined = _dft(op, op.Unsqueeze(self, [-1]), axes[-1], onesided=onesided)
    for axis in axes[:-1]:
        joined = _dft(op, joined, axis)
    return _scale(op, split(op, joined), sizes, normalization, False)


@register_complex(aten._fft_c2r.default)
def complex_fft_c2r(
    op: Builder, self: Complex, dim: Sequence[int], normalization: int, last_dim_size: Size
) -> Value:
    """The missing half of the last axis is the conjugate of the first one, mirrored."""
    axes = [op.axis(self.real, axis) for axis in dim]
    sizes = [op.size(self.real, axis) for axis in axes[:-1]] + [last_dim_size]
    value = _transform(op, self, axes[:-1], False)
    last = axes[-1]
    half = op.Div(last_dim_size, 2) if isinstance(last_dim_size, ir.Value) else last_dim_size // 2
    stop = op.Sub(last_dim_size, half)  # of the mirrored elements, which begin with the second
    mirrored = [_mirrored(op, part, last, stop) for part in (value.real, value.imag)]
    kept = plus(op, half, 1)
    first = [_until(op, part, last, kept) for part in (value.real, value.imag)]
    real = op.Concat(first[0], mirrored[0], axis=last)
    imag = op.Concat(first[1], op.Neg(mirrored[1]), axis=last)
    answer = _transform(op, Complex(real, imag), [last], False).real
    return _scale(op, answer, sizes, normalization, True)


def _until(op: Builder, value: Value, axis: int, stop: Size) -> Value:
    return op.Slice(value, [0], op.sizes([stop]), [axis])


def _mirrored(op: Builder, value: Value, axis: int, stop: Size) -> Value:
    """Elements ``stop - 1, ..., 1`` along an axis."""
    inner = op.Slice(value, [1], op.sizes([stop]), [axis])
    return op.Slice(inner, [-1], [-(2**31)], [axis], [-1])


# --- short-time transforms -----------------------------------------------------------------------


def _window(op: Builder, window: Any, length: int, size: int, dtype: ir.DataType | None) -> Any:
    """The window (ones if there is none) in the middle of ``size`` elements."""
    if window is None:
        window = op.Expand(op.constant(1.0, dtype), [length])
    before = (size - length) // 2
    pads = [before, size - length - before]

    def padded(value: Value) -> Value:
        if pads == [0, 0]:
            return value
        return op.Pad(value, pads, op.constant(0.0, value.dtype))

    if isinstance(window, Complex):
        return Complex(padded(window.real), padded(window.imag))
    return padded(window)


def _frame_positions(op: Builder, count: Size, hop: int, size: int) -> Value:
    """``[count, size]``: which element of the signal stands where in each frame."""
    starts = op.Mul(op.Range(0, count, 1), hop)
    return op.Add(op.Unsqueeze(starts, [1]), op.constant(list(range(size))))


@register(aten.stft.default)  # of real numbers, with return_complex=False
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
    """Frames by Gather, then one transform of all of them."""
    if align_to_window:
        raise ConversionError("stft with align_to_window=True cannot be exported; leave it out")
    hop = n_fft // 4 if hop_length is None else hop_length
    signal = self.real if isinstance(self, Complex) else self
    complex_ = isinstance(self, Complex) or isinstance(window, Complex)
    onesided = not complex_ if onesided is None else onesided
    length = op.size(signal, -1)
    if isinstance(length, int):
        count: Size = 1 + (length - n_fft) // hop
    else:
        count = plus(op, op.Div(op.Sub(length, n_fft), hop), 1)
    positions = _frame_positions(op, count, hop, n_fft)

    def frames(part: Value) -> Value:
        return op.Gather(part, positions, axis=op.rank(signal) - 1)

    weight = _window(op, window, win_length or n_fft, n_fft, signal.dtype)
    framed = (
        Complex(frames(self.real), frames(self.imag))
        if isinstance(self, Complex)
        else (frames(self))
    )
    axis = op.rank(signal)
    if complex_:
        product = multiply(op, framed, weight)
        spectrum = _transform(op, product, [axis], True)
    else:
        joined = op.Unsqueeze(op.Mul(framed, weight), [-1])
        spectrum = split(op, _dft(op, joined, axis, onesided=onesided))
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
    """Frames from the inverse transform, added where they overlap, over the windows' squares."""
    hop = n_fft // 4 if hop_length is None else hop_length
    rank = op.rank(self.real)
    order = [*range(rank - 2), rank - 1, rank - 2]
    spectrum = Complex(op.Transpose(self.real, perm=order), op.Transpose(self.imag, perm=order))
    mode = NORM_BY_ROOT if normalized else NORM_BY_SIZE
    weight = _window(op, window, win_length or n_fft, n_fft, self.real.dtype)
    frames: Any
    if return_complex:
        frames = multiply(op, complex_fft_c2c(op, spectrum, [rank - 1], mode, False), weight)
    else:
        frames = op.Mul(complex_fft_c2r(op, spectrum, [rank - 1], mode, n_fft), weight)
    windowed = isinstance(weight, Complex)
    square = multiply(op, weight, weight) if windowed else op.Mul(weight, weight)
    count = op.size(self.real, rank - 1)
    positions = op.Reshape(_frame_positions(op, count, hop, n_fft), [-1])
    total = plus(op, times(op, minus(op, count, 1), hop), n_fft)

    def added(part: Value) -> Value:
        return _overlap_add(op, part, positions, total)

    def envelope(part: Value) -> Value:
        return added(op.Expand(part, op.sizes([count, n_fft])))

    weights = _each(square, envelope)
    signal = _each(frames, added)
    signal = divide(op, signal, weights) if isinstance(signal, Complex) else op.Div(signal, weights)
    start = n_fft // 2 if center else 0
    stop = start + length if length is not None else minus(op, total, start)

    def cut(part: Value) -> Value:
        kept = op.Slice(part, [start], op.sizes([stop]), [-1])
        if length is None:
            return kept
        missing = op.Sub(length, op.Shape(kept, start=rank - 2, end=rank - 1))
        pads = op.Concat([0] * (rank - 1 + rank - 2), missing, axis=0)
        return op.Pad(kept, pads, op.constant(0.0, kept.dtype))

    return _each(signal, cut)


def _each(value: Any, function: Callable[[Value], Value]) -> Any:
    """A function of a real value, or of both parts of a complex one."""
    if isinstance(value, Complex):
        return Complex(function(value.real), function(value.imag))
    return function(value)


def _overlap_add(op: Builder, frames: Value, positions: Value, total: Size) -> Value:
    """``[..., count, size]`` added up into ``[..., total]``."""
    rank = op.rank(frames)
    batch = [op.size(frames, axis) for axis in range(rank - 2)]
    flat = op.Reshape(frames, op.sizes([*batch, -1]))
    zeros = op.Expand(op.constant(0.0, frames.dtype), op.sizes([*batch, total]))
    return op.ScatterElements(
        zeros, op.Expand(positions, op.Shape(flat)), flat, axis=rank - 2, reduction="add"
    )
