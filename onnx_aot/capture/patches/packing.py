"""Replaces torch's Python code for packed sequences while a model is traced.

Torch's code reads lengths as numbers. This code only needs lengths that are known as the size of a
dimension.
"""

from __future__ import annotations

import types
from collections.abc import Callable
from typing import Any

import torch
from torch.nn.utils.rnn import PackedSequence
from torch.utils.weak import WeakTensorKeyDictionary

from onnx_aot.torch_compat import Patch, Settings, aten, in_capturing_thread

__all__ = ["PACKED_SEQUENCES"]

Tensor = torch.Tensor

_LAYERS: tuple[type[torch.nn.RNNBase], ...] = (torch.nn.RNN, torch.nn.LSTM, torch.nn.GRU)

_BATCH: Any = WeakTensorKeyDictionary()
"""The number of sequences by ``batch_sizes`` tensor."""


class _Functions:
    """Replaces ``_VF``, which ``torch.nn.utils.rnn`` calls for packing and padding."""

    def __init__(self, original: Any) -> None:
        self._original = original
        # A copy of the original function, for other threads.
        padding = torch.nn.utils.rnn.pad_packed_sequence
        names = {**padding.__globals__, "_VF": original}
        self._pad = types.FunctionType(padding.__code__, names, argdefs=padding.__defaults__)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._original, name)

    def _pack_padded_sequence(
        self, input: Tensor, lengths: Tensor, batch_first: bool
    ) -> tuple[Tensor, Tensor]:
        from onnx_aot.torch_ops.packed_sequence_ops import pack

        if not in_capturing_thread():
            packed: tuple[Tensor, Tensor] = self._original._pack_padded_sequence(
                input, lengths, batch_first
            )
            return packed
        data, batch_sizes = pack(input, lengths, batch_first)
        batch, time = input.shape[:2] if batch_first else (input.shape[1], input.shape[0])
        torch._check(batch_sizes.shape[0] <= time)  # type: ignore[no-untyped-call]
        _BATCH[batch_sizes] = batch
        return data, batch_sizes

    def padded(
        self,
        packed: PackedSequence,
        batch_first: bool,
        padding_value: float,
        total_length: int | None,
    ) -> tuple[Tensor, Tensor]:
        from onnx_aot.torch_ops.packed_sequence_ops import pad

        if not in_capturing_thread():
            unpacked: tuple[Tensor, Tensor] = self._pad(
                packed, batch_first, padding_value, total_length
            )
            return unpacked
        data, batch_sizes, _, inverse = packed
        longest = batch_sizes.shape[0]
        if total_length is not None:
            torch._check(longest <= total_length)  # type: ignore[no-untyped-call]
            longest = total_length
        batch = _count_sequences(batch_sizes)
        value = float(padding_value)
        result, lengths = pad(data, batch_sizes, batch, batch_first, value, longest)
        if inverse is None:
            return result, lengths
        return result.index_select(0 if batch_first else 1, inverse), lengths[inverse]


# Its code replaces that of torch's function, to which models hold their own references. ``_VF`` is
# the global of torch's module.
def _pad_packed_sequence(  # type: ignore[no-untyped-def]
    sequence, batch_first=False, padding_value=0.0, total_length=None
):
    return _VF.padded(sequence, batch_first, padding_value, total_length)  # type: ignore[name-defined]  # noqa: F821


def _count_sequences(batch_sizes: Tensor) -> Any:
    """The number of sequences; ``batch_sizes[0]``, since all of them have a first step."""
    known = _BATCH.get(batch_sizes)
    return batch_sizes[0].item() if known is None else known


def _forward_packed(layer: torch.nn.RNNBase, packed: PackedSequence, states: Any) -> Any:
    """``forward`` of a recurrent layer for a packed sequence."""
    layer._update_flat_weights()
    data, batch_sizes, order, inverse = packed
    layer.check_input(data, batch_sizes)
    if states is None:
        states = _make_initial_state(layer, data, _count_sequences(batch_sizes))
    else:
        states = layer.permute_hidden(states, order)
    function = getattr(aten, layer.mode.lower()).data
    output, *finals = function(
        data,
        batch_sizes,
        list(states) if layer.mode == "LSTM" else states,
        layer._flat_weights,
        layer.bias,
        layer.num_layers,
        layer.dropout,
        layer.training,
        layer.bidirectional,
    )
    last: Any = tuple(finals) if layer.mode == "LSTM" else finals[0]
    return (
        PackedSequence(output, batch_sizes, order, inverse),
        layer.permute_hidden(last, inverse),
    )


def _make_initial_state(layer: torch.nn.RNNBase, data: Tensor, batch: Any) -> Any:
    count = layer.num_layers * (2 if layer.bidirectional else 1)
    hidden = data.new_zeros([count, batch, layer.proj_size or layer.hidden_size])
    if layer.mode != "LSTM":
        return hidden
    return (hidden, data.new_zeros([count, batch, layer.hidden_size]))


def _forward(original: Callable[..., Any], settings: Settings) -> Callable[..., Any]:
    def forward(self: Any, *args: Any, **kwargs: Any) -> Any:
        packed = args[0] if args else kwargs.get("input")
        if isinstance(packed, PackedSequence):
            states = args[1] if len(args) > 1 else kwargs.get("hx")
            return _forward_packed(self, packed, states)
        return original(self, *args, **kwargs)

    return forward


_REFUSED = "Models with packed sequences are refused."

_VF_OF_RNN = Patch(
    "torch.nn.utils.rnn:_VF",
    lambda original, settings: _Functions(original),
    _REFUSED,
    behaves=lambda original: hasattr(original, "_pack_padded_sequence"),
)

PACKED_SEQUENCES: tuple[Patch, ...] = (
    _VF_OF_RNN,
    Patch(
        "torch.nn.utils.rnn:pad_packed_sequence.__code__",
        lambda original, settings: _pad_packed_sequence.__code__,
        _REFUSED,
        when=lambda settings: bool(_VF_OF_RNN.found(settings)),
        behaves=lambda original: (
            original.co_varnames[: original.co_argcount]
            == ("sequence", "batch_first", "padding_value", "total_length")
        ),
    ),
    *(
        Patch(
            f"torch.nn:{kind.__name__}.forward",
            _forward,
            _REFUSED,
            parameters="self, input, hx",
        )
        for kind in _LAYERS
    ),
)
