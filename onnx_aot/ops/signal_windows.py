"""Windows of signal processing, which are constants: the capture fixes their lengths."""

from __future__ import annotations

from typing import Any

import onnx_ir as ir
import torch

from onnx_aot import dtypes
from onnx_aot.ops.builder import Builder
from onnx_aot.ops.registry import register

__all__: list[str] = []

aten = torch.ops.aten


def _made(op: Builder, compute: Any, *arguments: Any) -> ir.Value:
    dtype = dtypes.to_torch(op.result_dtype)
    return op.constant(compute(*arguments, dtype=dtype, device="cpu"))


def _register(packet: Any) -> None:
    """Registers the overloads that say no more than whether the window is periodic."""
    compute = getattr(torch, packet.__name__)

    @register(packet.default)
    def aten_window(op: Builder, window_length: int, dtype: Any = None) -> ir.Value:
        return _made(op, compute, window_length)

    @register(packet.periodic)
    def aten_window_periodic(
        op: Builder, window_length: int, periodic: bool, dtype: Any = None
    ) -> ir.Value:
        return _made(op, compute, window_length, periodic)


for _packet in (
    aten.bartlett_window,
    aten.blackman_window,
    aten.hamming_window,
    aten.hann_window,
    aten.kaiser_window,
):
    _register(_packet)


@register(aten.hamming_window.periodic_alpha)
def aten_hamming_window_alpha(
    op: Builder, window_length: int, periodic: bool, alpha: float, dtype: Any = None
) -> ir.Value:
    return _made(op, torch.hamming_window, window_length, periodic, alpha)


@register(aten.hamming_window.periodic_alpha_beta)
def aten_hamming_window_alpha_beta(
    op: Builder,
    window_length: int,
    periodic: bool,
    alpha: float,
    beta: float,
    dtype: Any = None,
) -> ir.Value:
    return _made(op, torch.hamming_window, window_length, periodic, alpha, beta)


@register(aten.kaiser_window.beta)
def aten_kaiser_window_beta(
    op: Builder, window_length: int, periodic: bool, beta: float, dtype: Any = None
) -> ir.Value:
    return _made(op, torch.kaiser_window, window_length, periodic, beta)
