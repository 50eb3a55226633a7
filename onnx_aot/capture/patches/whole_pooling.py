"""Pools over whole dynamic dimensions, as in ``F.avg_pool2d(x, x.shape[2:])``.

Pooling operators have numbers for kernel sizes, so that a dynamic size would be fixed.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
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
    """Makes a function that reduces the dimensions that the kernel covers, and pools the others.

    Args:
        pool: The function of torch, which is called otherwise.
        axes: The number of pooled dimensions, which are the last ones.
        settings: Names of the parameters of ``pool`` after ``kernel_size``.
        reduce: The reduction that gives the same result.
    """

    def pool_whole(input: Tensor, kernel_size: Any, *args: Any, **kwargs: Any) -> Tensor:
        given = {**dict(zip(settings, args, strict=False)), **kwargs}
        plain = all(_is_neutral(given.get(name, value), value) for name, value in _NEUTRAL.items())
        kernel = _repeat(kernel_size, axes)
        whole = list(map(_is_same, kernel, input.shape[-axes:]))
        if not plain or not _has_symbol(k for k, w in zip(kernel, whole, strict=True) if w):
            return pool(input, kernel_size, *args, **kwargs)
        reduced = reduce(input, dim=[i - axes for i in range(axes) if whole[i]], keepdim=True)
        if all(whole):
            return reduced
        stride = _repeat(given.pop("stride", None) or kernel, axes)
        numbers = zip(kernel, stride, whole, strict=True)
        pairs = [(1, 1) if w else (k, s) for k, s, w in numbers]
        return pool(reduced, *([*each] for each in zip(*pairs, strict=True)), **given)

    return pool_whole


def _make_power_pooling(
    pool: Callable[..., Tensor],
    average: Callable[..., Tensor],
    largest: Callable[..., Tensor],
    axes: int,
) -> Callable[..., Tensor]:
    """Makes a function that computes ``F.lp_pool2d`` by other pooling, as torch does.

    Args:
        pool: The function of torch, which is called if the kernel has no dynamic size.
        average: Average pooling over whole dimensions.
        largest: Max pooling over whole dimensions.
        axes: The number of pooled dimensions.
    """

    def pool_powers(
        input: Tensor, norm_type: float, kernel_size: Any, stride: Any = None, *args: Any, **kw: Any
    ) -> Tensor:
        kernel = _repeat(kernel_size, axes)
        if not _has_symbol(kernel):
            return pool(input, norm_type, kernel_size, stride, *args, **kw)
        ceil_mode = args[0] if args else kw.get("ceil_mode", False)
        sizes = (kernel_size, stride or kernel_size)
        if math.isinf(norm_type):
            sign = math.copysign(1, norm_type)
            return sign * largest(sign * input.abs(), *sizes, ceil_mode=ceil_mode)
        mean: Tensor = average(input.pow(norm_type), *sizes, ceil_mode=ceil_mode)
        total: Tensor = mean * math.prod(kernel)
        return total.pow(1 / norm_type)

    return pool_powers


def _repeat(given: Any, axes: int) -> list[Any]:
    """Returns one number per pooled dimension; torch repeats a single one."""
    numbers = list(given) if isinstance(given, Sequence) else [given]
    return numbers * axes if len(numbers) == 1 else numbers


def _has_symbol(numbers: Iterable[Any]) -> bool:
    return any(isinstance(number, torch.SymInt) for number in numbers)


def _is_neutral(given: Any, value: Any) -> bool:
    entries = given if isinstance(given, Sequence) else [given]
    return all(type(entry) is type(value) and entry == value for entry in entries)


def _is_same(left: Any, right: Any) -> bool:
    """True if two sizes are known to be equal; adds no guard."""
    if isinstance(left, torch.SymInt) and isinstance(right, torch.SymInt):
        return bool(symbolic_expression(left) == symbolic_expression(right))
    return type(left) is type(right) is int and left == right


_PLAIN: dict[Any, Callable[..., Tensor]] = {
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

WHOLE_POOLING: dict[Any, Callable[..., Any]] = {
    **_PLAIN,
    **{
        pool: _make_power_pooling(pool, _PLAIN[average], _PLAIN[largest], axes)
        for pool, average, largest, axes in (
            (F.lp_pool1d, torch.avg_pool1d, F.max_pool1d, 1),
            (F.lp_pool2d, F.avg_pool2d, F.max_pool2d, 2),
            (F.lp_pool3d, F.avg_pool3d, F.max_pool3d, 3),
        )
    },
}
"""Functions by the original, as in ``functions.REDIRECTED``."""
