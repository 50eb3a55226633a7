"""Keeps factors of ``F.interpolate`` that the model computes from sizes, as DINO's models do.

Torch reads a factor as a number, which fixes the sizes that it comes from.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
import torch.nn.functional as F  # noqa: N812
from torch import Tensor

from onnx_aot.capture.patches.symbolic_indices import stack_numbers

__all__ = ["RESIZING"]

_SYMBOLIC = (torch.SymInt, torch.SymFloat)
_NEAREST = ("nearest", "nearest-exact")
_SMOOTH = {3: ("linear",), 4: ("bilinear", "bicubic", "lanczos"), 5: ("trilinear",)}


def _interpolate(
    input: Tensor,
    size: Any = None,
    scale_factor: Any = None,
    mode: str = "nearest",
    align_corners: bool | None = None,
    recompute_scale_factor: bool | None = None,
    antialias: bool = False,
) -> Tensor:
    axes = input.dim() - 2
    factors = list(scale_factor) if isinstance(scale_factor, Sequence) else [scale_factor] * axes
    smooth = _SMOOTH.get(input.dim(), ())
    if mode in _NEAREST:
        is_valid = align_corners is None and not antialias
    else:
        is_valid = mode in smooth and not (antialias and input.dim() != 4)
        if mode == "lanczos":
            is_valid = is_valid and antialias and not align_corners
    if (
        not any(isinstance(factor, _SYMBOLIC) for factor in factors)
        or size is not None
        or recompute_scale_factor
        or len(factors) != axes
        or not is_valid
    ):
        return F.interpolate(  # computes with sizes, or refuses the arguments
            input, size, scale_factor, mode, align_corners, recompute_scale_factor, antialias
        )
    from onnx_aot.torch_ops.resizing import interpolate

    sizes = [torch.sym_int(n * f) for n, f in zip(input.shape[2:], factors, strict=True)]  # type: ignore[no-untyped-call]
    places = stack_numbers(factors, torch.float64, input.device)
    resized: Tensor = interpolate(input, places, sizes, mode, bool(align_corners), antialias)
    return resized


RESIZING: dict[Any, Callable[..., Any]] = {F.interpolate: _interpolate}
"""Functions by the original, as in ``functions.REDIRECTED``."""
