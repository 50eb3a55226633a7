"""What replaces torch's Python code for packed sequences while a model is traced.

It asks for lengths as numbers; this asks for none that is not known as the size of a dimension.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch.nn.utils.rnn import PackedSequence

from onnx_aot import torch_compat

__all__ = ["packed_sequences"]

Tensor = torch.Tensor

_LAYERS: tuple[type[torch.nn.RNNBase], ...] = (torch.nn.RNN, torch.nn.LSTM, torch.nn.GRU)

BATCH = "onnx_aot_batch"
"""The attribute of a ``batch_sizes`` that says how many sequences there are."""


class _Functions:
    """What ``torch.nn.utils.rnn`` calls for packing and padding."""

    @staticmethod
    def _pack_padded_sequence(
        input: Tensor, lengths: Tensor, batch_first: bool
    ) -> tuple[Tensor, Tensor]:
        from onnx_aot.packed_operators import pack

        data, batch_sizes = pack(input, lengths, batch_first)
        batch, time = input.shape[:2] if batch_first else (input.shape[1], input.shape[0])
        torch._check(batch_sizes.shape[0] <= time)  # type: ignore[no-untyped-call]
        setattr(batch_sizes, BATCH, batch)
        return data, batch_sizes

    @staticmethod
    def padded(
        packed: PackedSequence, batch_first: bool, padding_value: float, total_length: int | None
    ) -> tuple[Tensor, Tensor]:
        from onnx_aot.packed_operators import pad

        data, batch_sizes, _, inverse = packed
        longest = batch_sizes.shape[0]
        if total_length is not None:
            torch._check(longest <= total_length)  # type: ignore[no-untyped-call]
            longest = total_length
        batch = _batch(batch_sizes)
        value = float(padding_value)
        result, lengths = pad(data, batch_sizes, batch, batch_first, value, longest)
        if inverse is None:
            return result, lengths
        return result.index_select(0 if batch_first else 1, inverse), lengths[inverse]


# Its code stands in for that of torch's function, of which models hold references of their own;
# ``_VF`` is what torch's module calls so.
def _pad_packed_sequence(  # type: ignore[no-untyped-def]
    sequence, batch_first=False, padding_value=0.0, total_length=None
):
    return _VF.padded(sequence, batch_first, padding_value, total_length)  # type: ignore[name-defined]  # noqa: F821


def _batch(batch_sizes: Tensor) -> Any:
    """How many sequences there are: all of them have a first step."""
    known = getattr(batch_sizes, BATCH, None)
    return batch_sizes[0].item() if known is None else known


def _forward_packed(layer: torch.nn.RNNBase, packed: PackedSequence, states: Any) -> Any:
    """``forward`` of a recurrent layer for a packed sequence."""
    layer._update_flat_weights()
    data, batch_sizes, order, inverse = packed
    layer.check_input(data, batch_sizes)
    if states is None:
        states = _zeros(layer, data, _batch(batch_sizes))
    else:
        states = layer.permute_hidden(states, order)
    function = getattr(torch.ops.aten, layer.mode.lower()).data
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


def _zeros(layer: torch.nn.RNNBase, data: Tensor, batch: Any) -> Any:
    count = layer.num_layers * (2 if layer.bidirectional else 1)
    hidden = data.new_zeros([count, batch, layer.proj_size or layer.hidden_size])
    if layer.mode != "LSTM":
        return hidden
    return (hidden, data.new_zeros([count, batch, layer.hidden_size]))


def _forward(original: Callable[..., Any]) -> Callable[..., Any]:
    def forward(self: Any, input: Any, hx: Any = None) -> Any:
        if isinstance(input, PackedSequence):
            return _forward_packed(self, input, hx)
        return original(self, input, hx)

    return forward


@contextlib.contextmanager
def packed_sequences() -> Iterator[None]:
    """Puts the replacements in place for the duration."""
    replacements: list[tuple[Any, str, Any]] = [
        (torch.nn.utils.rnn.pad_packed_sequence, "__code__", _pad_packed_sequence.__code__),
        *((kind, "forward", _forward(kind.forward)) for kind in _LAYERS),
    ]
    with contextlib.ExitStack() as stack:
        functions = ("torch.nn.utils.rnn", "_VF", _Functions)
        stack.enter_context(torch_compat.override_module_function(*functions))
        for owner, name, replacement in replacements:
            stack.callback(setattr, owner, name, getattr(owner, name))
            setattr(owner, name, replacement)
        yield
