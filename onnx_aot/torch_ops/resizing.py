"""Defines an operator for ``F.interpolate`` with factors that are computed from sizes or data.

ATen's operators have numbers for the factors, which would fix the sizes.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch

__all__ = ["INTERPOLATE", "interpolate"]

Tensor = torch.Tensor


@torch.library.custom_op("onnx_aot::interpolate", mutates_args=())
def interpolate(
    input: Tensor,
    factors: Tensor,
    size: Sequence[int],
    mode: str,
    align_corners: bool,
    antialias: bool,
) -> Tensor:
    """Resizes as ``torch.nn.functional.interpolate`` does with ``scale_factor``.

    Args:
        input: ``[batch, channels, *]``.
        factors: float64 ``[spatial dimensions]``; they place the pixels.
        size: The sizes that follow from the factors.
        mode: Any mode but ``area``, which ignores the factors.
        align_corners: Whether the outer pixels keep their centres; False for the nearest modes.
        antialias: Whether smaller images are filtered.

    Returns:
        ``[batch, channels, *size]``.
    """
    resized: Tensor = torch.nn.functional.interpolate(
        input,
        scale_factor=factors.tolist(),
        mode=mode,
        align_corners=None if mode.startswith("nearest") else align_corners,
        antialias=antialias,
    )
    return resized


@interpolate.register_fake
def _(
    input: Tensor,
    factors: Tensor,
    size: Sequence[int],
    mode: str,
    align_corners: bool,
    antialias: bool,
) -> Tensor:
    return input.new_empty([*input.shape[:2], *size])


INTERPOLATE = torch.ops.onnx_aot.interpolate.default
"""The operator for which a translation is registered."""
