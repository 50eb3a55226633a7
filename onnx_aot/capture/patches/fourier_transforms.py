"""Pads or crops what Fourier transforms of a symbolic length are given, without asking which.

``torch.fft.rfft(x, n)`` pads ``x`` if it is shorter than ``n``, and crops it if it is longer. Torch
asks for both, so that a capture would be for one of them.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any

import torch

from onnx_aot.torch_compat import is_traced

__all__ = ["TRANSFORMS"]

Tensor = torch.Tensor

# Functions of torch.fft; those of the second row are given half of the spectrum of real numbers.
_WHOLE = ("fft", "ifft", "rfft", "ihfft", "fft2", "ifft2", "rfft2", "fftn", "ifftn", "rfftn")
_HALF = ("irfft", "hfft", "irfft2", "irfftn")


def _fit(input: Tensor, axes: Sequence[int], lengths: Sequence[Any], is_half: bool) -> Tensor:
    """Gives axes the lengths that a transform needs, where -1 stands for the present one."""
    for axis, length in zip(axes, lengths, strict=True):
        if isinstance(length, int) and length == -1:
            continue
        is_halved = is_half and axis == axes[-1]
        input = _fit_axis(input, axis % input.dim(), length // 2 + 1 if is_halved else length)
    return input


def _fit_axis(input: Tensor, axis: int, length: Any) -> Tensor:
    """Pads an axis, where a negative number crops it."""
    pads = [0] * (2 * (input.dim() - axis))
    pads[-1] = length - input.shape[axis]
    return torch.nn.functional.pad(input, pads)


def _along_one(
    input: Tensor, n: Any = None, dim: int = -1, norm: str | None = None
) -> tuple[Tensor, list[int], list[Any], str | None]:
    """The arguments of a transform along one axis, in the form of one along several."""
    return input, [dim], [n], norm


def _along_several(
    input: Tensor, s: Any = None, dim: Any = None, norm: str | None = None
) -> tuple[Tensor, list[int], list[Any], str | None]:
    lengths = list(s)
    return input, list(range(-len(lengths), 0)) if dim is None else list(dim), lengths, norm


def _make_transform(name: str) -> Callable[..., Any]:
    original = getattr(torch.fft, name)
    is_single = name[-1] not in "2n"
    arrange = _along_one if is_single else _along_several

    @functools.wraps(original)
    def transform(*args: Any, **kwargs: Any) -> Any:
        try:
            input, axes, lengths, norm = arrange(*args, **kwargs)
        except TypeError:  # no length is given, or a tensor for the result
            return original(*args, **kwargs)
        lengths = [_read(length) for length in lengths]
        sizes = [*lengths, *(input.shape[axis] for axis in axes)]
        if None in lengths or not any(isinstance(size, torch.SymInt) for size in sizes):
            return original(*args, **kwargs)
        fitted = _fit(input, axes, lengths, name in _HALF)
        if name not in _HALF:
            lengths = [fitted.shape[axis] for axis in axes]
        if is_single:
            return original(fitted, lengths[0], axes[0], norm)
        return original(fitted, lengths, axes, norm)

    return transform


def _read(length: Any) -> Any:
    """The number that a tensor gives as a length, which torch would read."""
    if isinstance(length, Tensor) and length.dim() == 0 and is_traced(length):
        return length.item()
    return length


TRANSFORMS: dict[Any, Callable[..., Any]] = {
    getattr(torch.fft, name): _make_transform(name) for name in (*_WHOLE, *_HALF)
}
"""What is called in place of functions of ``torch.fft`` while a model is captured."""
