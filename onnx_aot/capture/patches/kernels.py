"""Kernels that replace those of composite operators while a model is traced.

Each gives the shapes of the results and leaves the operator in the graph as it is.
"""

from __future__ import annotations

import itertools
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
    """Outputs of the right shape; torch's kernels unroll over time, which fixes its length."""
    width = states[0].shape[2] * (2 if bidirectional else 1)  # of the projection, if there is one
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
    """Torch's kernel asks for the length as a number, which fixes it; this one does not."""
    arguments = (self, kernel_size, stride, padding, dilation, ceil_mode)
    return aten.max_pool1d_with_indices.default(*arguments)[0]  # type: ignore[no-any-return]


def _tensor_split(self: Tensor, sections: int, dim: int = 0) -> list[Tensor]:
    """Torch's kernel asks per piece whether it has one element more, which fixes the remainder."""
    size = self.shape[dim]
    each, more = size // sections, size % sections
    least: Any = torch.sym_min
    starts = [each * index + least(more, index) for index in range(sections + 1)]
    pieces = []
    for start, end in itertools.pairwise(starts):
        shape = list(self.shape)
        shape[dim] = end - start
        offset = self.storage_offset() + start * self.stride(dim)
        pieces.append(self.as_strided(shape, self.stride(), offset))
    return pieces


def _fake_quantized(self: Tensor, *parameters: Any) -> Tensor:
    """Torch's kernel has no form for fake tensors, which refuses dynamic dimensions."""
    return torch.empty_like(self)


def _stft(
    self: Tensor,
    n_fft: int,
    hop_length: int | None = None,
    win_length: int | None = None,
    window: Tensor | None = None,
    normalized: bool = False,
    onesided: bool | None = None,
    return_complex: bool | None = None,
    align_to_window: bool | None = None,
) -> Tensor:
    """A spectrum of the right shape; torch's kernel refuses a dynamic length."""
    hop = n_fft // 4 if hop_length is None else hop_length
    given_complex = self.is_complex() or (window is not None and window.is_complex())
    half = not given_complex if onesided is None else onesided
    bins = n_fft // 2 + 1 if half else n_fft
    frames = (self.shape[-1] - n_fft) // hop + 1
    dtype = self.dtype.to_complex()
    spectrum = self.new_empty([*self.shape[:-1], bins, frames], dtype=dtype)
    return spectrum if return_complex else torch.view_as_real(spectrum)


def _istft(
    self: Tensor,
    n_fft: int,
    hop_length: int | None = None,
    win_length: int | None = None,
    window: Tensor | None = None,
    center: bool = True,
    normalized: bool = False,
    onesided: bool | None = None,
    length: int | None = None,
    return_complex: bool = False,
) -> Tensor:
    """A signal of the right shape, likewise."""
    hop = n_fft // 4 if hop_length is None else hop_length
    if length is None:
        length = n_fft + hop * (self.shape[-1] - 1) - (n_fft // 2 * 2 if center else 0)
    dtype = self.dtype if return_complex else self.dtype.to_real()
    return self.new_empty([*self.shape[:-2], length], dtype=dtype)


def _cdist(x1: Tensor, x2: Tensor, p: float = 2.0, compute_mode: int | None = None) -> Tensor:
    """Torch's kernel asks whether there are more than 25 rows, which limits how many there are."""
    torch._check(x1.shape[-1] == x2.shape[-1])  # type: ignore[no-untyped-call]
    batch: Any = torch.broadcast_shapes(x1.shape[:-2], x2.shape[:-2])  # type: ignore[no-untyped-call]
    return x1.new_empty([*batch, x1.shape[-2], x2.shape[-2]])


KERNELS: dict[Any, Any] = {
    aten.cdist.default: _cdist,
    aten.fake_quantize_per_tensor_affine.default: _fake_quantized,
    aten.fake_quantize_per_tensor_affine.tensor_qparams: _fake_quantized,
    aten.fake_quantize_per_channel_affine.default: _fake_quantized,
    aten.max_pool1d.default: _max_pool1d,
    aten.istft.default: _istft,
    aten.lstm.data: _packed_lstm,
    aten.lstm.input: _lstm,
    aten.gru.data: _packed_gru_or_rnn,
    aten.gru.input: _gru_or_rnn,
    aten.rnn_tanh.data: _packed_gru_or_rnn,
    aten.rnn_tanh.input: _gru_or_rnn,
    aten.rnn_relu.data: _packed_gru_or_rnn,
    aten.rnn_relu.input: _gru_or_rnn,
    aten.stft.default: _stft,
    aten.tensor_split.sections: _tensor_split,
}

KERNEL_PATCHES = kernel_patches(
    KERNELS,
    "The operator is expanded as torch does it: aten.lstm unrolls over time, for example, and a "
    "dynamic time dimension is refused.",
)
