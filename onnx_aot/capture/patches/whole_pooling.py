"""Pools over whole dynamic dimensions, as in ``F.avg_pool2d(x, x.shape[2:])``.

Pooling operators have numbers for kernel sizes, so that a dynamic size would be fixed.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
import torch.nn.functional as F  # noqa: N812
from torch import Tensor

from onnx_aot.torch_compat import symbolic_expression

__all__ = ["WHOLE_POOLING"]

_AVERAGE = ("stride", "padding", "ceil_mode", "count_include_pad", "divisor_override")
_LARGEST = ("stride", "padding", "dilation", "ceil_mode", "return_indices")
_NEUTRAL = {"padding": 0, "dilation": 1, "divisor_override": None, "return_indices": False}


def _make_pooling(
    pool: Callable[..., Tensor],
    axes: int,
    settings: Sequence[str],
    reduce: Callable[..., Tensor],
) -> Callable[..., Tensor]:
    """Makes a function that reduces if the kernel is as large as the pooled dimensions.

    Args:
        pool: The function of torch, which is called otherwise.
        axes: The number of pooled dimensions, which are the last ones.
        settings: Names of the parameters of ``pool`` after ``kernel_size``.
        reduce: The reduction that gives the same result.
    """

    def pool_whole(input: Tensor, kernel_size: Any, *args: Any, **kwargs: Any) -> Tensor:
        given = {**dict(zip(settings, args, strict=False)), **kwargs}
        plain = all(_is_neutral(given.get(name, value), value) for name, value in _NEUTRAL.items())
        if plain and _is_whole(kernel_size, input.shape[-axes:]):
            return reduce(input, dim=tuple(range(-axes, 0)), keepdim=True)
        return pool(input, kernel_size, *args, **kwargs)

    return pool_whole


def _is_neutral(given: Any, value: Any) -> bool:
    entries = given if isinstance(given, Sequence) else [given]
    return all(type(entry) is type(value) and entry == value for entry in entries)


def _is_whole(kernel_size: Any, sizes: Sequence[Any]) -> bool:
    """True if a kernel has the sizes, and one of them is dynamic; adds no guard."""
    kernel = list(kernel_size) if isinstance(kernel_size, Sequence) else [kernel_size]
    if len(kernel) == 1:  # torch repeats it
        kernel *= len(sizes)
    if not any(isinstance(size, torch.SymInt) for size in kernel):
        return False
    return len(kernel) == len(sizes) and all(map(_is_same, kernel, sizes))


def _is_same(left: Any, right: Any) -> bool:
    if isinstance(left, torch.SymInt) and isinstance(right, torch.SymInt):
        return bool(symbolic_expression(left) == symbolic_expression(right))
    return type(left) is type(right) is int and left == right


WHOLE_POOLING: dict[Any, Callable[..., Any]] = {
    pool: _make_pooling(pool, axes, settings, reduce)
    for pool, axes, settings, reduce in (
        (torch.avg_pool1d, 1, _AVERAGE, torch.mean),
        (F.avg_pool2d, 2, _AVERAGE, torch.mean),
        (F.avg_pool3d, 3, _AVERAGE, torch.mean),
        (F.max_pool1d, 1, _LARGEST, torch.amax),
        (F.max_pool2d, 2, _LARGEST, torch.amax),
        (F.max_pool3d, 3, _LARGEST, torch.amax),
    )
}
"""Functions by the original, as in ``functions.REDIRECTED``."""
