"""Operators that have neither a translation nor a decomposition that helps, and why."""

from __future__ import annotations

import torch

from onnx_aot.ops.registry import NOT_TRANSLATED

__all__: list[str] = []

aten = torch.ops.aten

_GRADIENT = "computes a gradient; export the forward pass only"
_BITS = "reads the bits of numbers, which ONNX can do since opset 26 (BitCast)"
_MISSING = "has no translation in this version"

NOT_TRANSLATED.update(
    {
        aten._adaptive_avg_pool2d_backward.default: _GRADIENT,
        aten._adaptive_avg_pool3d.default: "adaptive_avg_pool3d is captured instead",
        aten._fft_c2r.default: _MISSING,
        aten._fft_r2c.default: _MISSING,
        aten.avg_pool2d_backward.default: _GRADIENT,
        aten.convolution_backward.default: _GRADIENT,
        aten.hash_tensor.default: _BITS,
        aten.view.dtype: _BITS,
        aten.resize_.default: "changes the size of its storage, which has no functional form",
    }
)
