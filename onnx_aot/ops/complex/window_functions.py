"""Windows and frequencies of signals, which are constants: the capture fixes their lengths."""

from __future__ import annotations

from typing import Any

import onnx_ir as ir
import torch

from onnx_aot import dtypes
from onnx_aot.builder.builder import Builder
from onnx_aot.ops.registry import register
from onnx_aot.torch_compat import aten

__all__: list[str] = []


def _compute_window(op: Builder, compute: Any, *arguments: Any) -> ir.Value:
    dtype = dtypes.to_torch(op.result_dtype)
    return op.constant(compute(*arguments, dtype=dtype, device="cpu"))


# Overloads without parameters; PERIODIC has those that only say if the window is periodic.
PLAIN = {
    aten.bartlett_window.default: torch.bartlett_window,
    aten.blackman_window.default: torch.blackman_window,
    aten.hamming_window.default: torch.hamming_window,
    aten.hann_window.default: torch.hann_window,
    aten.kaiser_window.default: torch.kaiser_window,
}
PERIODIC = {
    aten.bartlett_window.periodic: torch.bartlett_window,
    aten.blackman_window.periodic: torch.blackman_window,
    aten.hamming_window.periodic: torch.hamming_window,
    aten.hann_window.periodic: torch.hann_window,
    aten.kaiser_window.periodic: torch.kaiser_window,
}


def _register_plain(target: Any, compute: Any) -> None:
    @register(target)
    def aten_window(op: Builder, window_length: int, dtype: Any = None) -> ir.Value:
        return _compute_window(op, compute, window_length)


def _register_periodic(target: Any, compute: Any) -> None:
    @register(target)
    def aten_window_periodic(
        op: Builder, window_length: int, periodic: bool, dtype: Any = None
    ) -> ir.Value:
        return _compute_window(op, compute, window_length, periodic)


for _target, _compute in PLAIN.items():
    _register_plain(_target, _compute)
for _target, _compute in PERIODIC.items():
    _register_periodic(_target, _compute)


@register(aten.hamming_window.periodic_alpha)
def aten_hamming_window_alpha(
    op: Builder, window_length: int, periodic: bool, alpha: float, dtype: Any = None
) -> ir.Value:
    return _compute_window(op, torch.hamming_window, window_length, periodic, alpha)


@register(aten.hamming_window.periodic_alpha_beta)
def aten_hamming_window_alpha_beta(
    op: Builder,
    window_length: int,
    periodic: bool,
    alpha: float,
    beta: float,
    dtype: Any = None,
) -> ir.Value:
    return _compute_window(op, torch.hamming_window, window_length, periodic, alpha, beta)


@register(aten.kaiser_window.beta)
def aten_kaiser_window_beta(
    op: Builder, window_length: int, periodic: bool, beta: float, dtype: Any = None
) -> ir.Value:
    return _compute_window(op, torch.kaiser_window, window_length, periodic, beta)


@register(aten.fft_fftfreq.default)
def aten_fft_fftfreq(op: Builder, n: int, d: float = 1.0, dtype: Any = None) -> ir.Value:
    return _compute_window(op, torch.fft.fftfreq, n, d)


@register(aten.fft_rfftfreq.default)
def aten_fft_rfftfreq(op: Builder, n: int, d: float = 1.0, dtype: Any = None) -> ir.Value:
    return _compute_window(op, torch.fft.rfftfreq, n, d)
