"""Replaces kernels of composite operators while a model is traced.

Each replacement gives the shapes of the results and leaves the operator in the graph as it is.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from onnx_aot.torch_compat import aten, kernel_patches

__all__ = ["KERNELS", "KERNEL_PATCHES"]

Tensor = torch.Tensor


def _recurrent_shapes(
    input: Tensor,
    states: Sequence[Tensor],
    bidirectional: bool,
) -> tuple[Tensor, ...]:
    """Outputs of the right shape; torch's kernels unroll over time, which fixes the length."""
    # the size of the projection, if there is one
    width = states[0].shape[2] * (2 if bidirectional else 1)
    output = input.new_empty([input.shape[0], input.shape[1], width])
    return (output, *(torch.empty_like(state) for state in states))


def _lstm(
    input: Tensor,
    hx: Sequence[Tensor],
    params: Sequence[Tensor],
    has_biases: bool,
    num_layers: int,
    dropout: float,
    train: bool,
    bidirectional: bool,
    batch_first: bool,
) -> tuple[Tensor, ...]:
    return _recurrent_shapes(input, hx, bidirectional)


def _gru_or_rnn(
    input: Tensor,
    hx: Tensor,
    params: Sequence[Tensor],
    has_biases: bool,
    num_layers: int,
    dropout: float,
    train: bool,
    bidirectional: bool,
    batch_first: bool,
) -> tuple[Tensor, ...]:
    return _recurrent_shapes(input, [hx], bidirectional)


def _packed_lstm(
    data: Tensor,
    batch_sizes: Tensor,
    hx: Sequence[Tensor],
    params: Sequence[Tensor],
    has_biases: bool,
    num_layers: int,
    dropout: float,
    train: bool,
    bidirectional: bool,
) -> tuple[Tensor, ...]:
    width = hx[0].shape[2] * (2 if bidirectional else 1)
    output = data.new_empty([data.shape[0], width])
    return (output, *(torch.empty_like(state) for state in hx))


def _packed_gru_or_rnn(
    data: Tensor,
    batch_sizes: Tensor,
    hx: Tensor,
    params: Sequence[Tensor],
    has_biases: bool,
    num_layers: int,
    dropout: float,
    train: bool,
    bidirectional: bool,
) -> tuple[Tensor, ...]:
    arguments = (params, has_biases, num_layers, dropout, train, bidirectional)
    return _packed_lstm(data, batch_sizes, [hx], *arguments)


def _max_pool1d(
    self: Tensor,
    kernel_size: Sequence[int],
    stride: Sequence[int] = (),
    padding: Sequence[int] = (0,),
    dilation: Sequence[int] = (1,),
    ceil_mode: bool = False,
) -> Tensor:
    """Keeps the length dynamic; torch's kernel reads it as a number, which fixes it."""
    arguments = (self, kernel_size, stride, padding, dilation, ceil_mode)
    return aten.max_pool1d_with_indices.default(*arguments)[0]  # type: ignore[no-any-return]


def _fake_quantized(self: Tensor, *parameters: Any) -> Tensor:
    """Replaces a kernel without support for fake tensors, which refuses dynamic dimensions."""
    return torch.empty_like(self)


def _cdist(x1: Tensor, x2: Tensor, p: float = 2.0, compute_mode: int | None = None) -> Tensor:
    """Avoids torch's test for more than 25 rows, a guard that limits the number of rows."""
    torch._check(x1.shape[-1] == x2.shape[-1])  # type: ignore[no-untyped-call]
    batch: Any = torch.broadcast_shapes(x1.shape[:-2], x2.shape[:-2])  # type: ignore[no-untyped-call]
    return x1.new_empty([*batch, x1.shape[-2], x2.shape[-2]])


KERNELS: dict[Any, Any] = {
    aten.cdist.default: _cdist,
    aten.fake_quantize_per_tensor_affine.default: _fake_quantized,
    aten.fake_quantize_per_tensor_affine.tensor_qparams: _fake_quantized,
    aten.fake_quantize_per_channel_affine.default: _fake_quantized,
    aten.max_pool1d.default: _max_pool1d,
    aten.lstm.data: _packed_lstm,
    aten.lstm.input: _lstm,
    aten.gru.data: _packed_gru_or_rnn,
    aten.gru.input: _gru_or_rnn,
    aten.rnn_tanh.data: _packed_gru_or_rnn,
    aten.rnn_tanh.input: _gru_or_rnn,
    aten.rnn_relu.data: _packed_gru_or_rnn,
    aten.rnn_relu.input: _gru_or_rnn,
}

_WITHOUT: dict[Any, str] = {
    _cdist: "torch.cdist limits the number of rows to 25, or to more than 25.",
    _fake_quantized: "Models with fake quantization are refused.",
    _max_pool1d: "max_pool1d fixes the length.",
    _lstm: "LSTM fixes the length, over which torch unrolls it.",
    _gru_or_rnn: "GRU and RNN fix the length, over which torch unrolls them.",
    _packed_lstm: "LSTM refuses packed sequences.",
    _packed_gru_or_rnn: "GRU and RNN refuse packed sequences.",
}

KERNEL_PATCHES = kernel_patches({o: (kernel, _WITHOUT[kernel]) for o, kernel in KERNELS.items()})
