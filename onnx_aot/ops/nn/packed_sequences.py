"""Packed sequences: packing, recurrent layers over them, padding.

ONNX layers take padded sequences and their lengths. A packed value remembers the padded sequences
that it comes from, so that the packed form itself, which only moves elements, is computed only
where something else reads it.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any

import onnx_ir as ir

from onnx_aot.builder.builder import Builder, Size
from onnx_aot.ops.core.size_math import largest, subtract_sizes
from onnx_aot.ops.nn.conv_arguments import pad_last_axes
from onnx_aot.ops.nn.rnn import report_lost_nan, run_layers
from onnx_aot.ops.registry import register
from onnx_aot.torch_compat import OpOverload, aten
from onnx_aot.torch_ops.packed_sequence_ops import PACK, PAD

__all__: list[str] = []

Value = ir.Value

PADDED = "padded sequences"
LENGTHS = "lengths of the packed sequences"


@dataclasses.dataclass(frozen=True)
class PaddedSequences:
    """Sequences ``[time, batch, *]`` whose elements after the lengths are undefined."""

    sequences: Value
    lengths: Value


@register(PACK)
def pack_padded_sequence(
    op: Builder, input: Value, lengths: Value, batch_first: bool
) -> list[Value]:
    """Packs with GatherND at the steps before each length."""
    padded = PaddedSequences(_swap_time_and_batch(op, input) if batch_first else input, lengths)
    longest = op.reduce("ReduceMax", lengths, [0], keepdims=False)
    counted = op.cast(_mask_steps(op, longest, lengths), ir.DataType.INT64)
    batch_sizes = op.reduce("ReduceSum", counted, [1], keepdims=False)
    batch_sizes.meta[LENGTHS] = lengths
    return [_pack_steps(op, padded), batch_sizes]


@register(PAD)
def pad_packed_sequence(
    op: Builder,
    data: Value,
    batch_sizes: Value,
    batch: Size,
    batch_first: bool,
    padding_value: float,
    total_length: Size,
) -> list[Value]:
    """Emits Where after Slice or Pad along time (``onnx_aot/torch_ops/packed_sequence_ops.py``)."""
    padded = _recover_padded(op, data, batch_sizes, batch)
    sequences = _resize_time(op, padded.sequences, total_length, op.size(batch_sizes, 0))
    inside = _mask_steps(op, op.cast(total_length, ir.DataType.INT64), padded.lengths)
    last = range(2, op.rank(sequences))
    inside = op.Unsqueeze(inside, list(last)) if last else inside
    filled = op.Where(inside, sequences, op.constant(padding_value, sequences.dtype))
    return [_swap_time_and_batch(op, filled) if batch_first else filled, padded.lengths]


def _register_layers(target: OpOverload, kind: str, activation: str | None = None) -> None:
    def translation(
        op: Builder,
        data: Value,
        batch_sizes: Value,
        hx: Any,
        params: Sequence[Value],
        has_biases: bool,
        num_layers: int,
        dropout: float,
        train: bool,
        bidirectional: bool,
    ) -> list[Value]:
        states = hx if kind == "LSTM" else [hx]
        padded = _recover_padded(op, data, batch_sizes, op.size(states[0], 1))
        output, *finals = run_layers(
            op,
            kind,
            padded.sequences,
            states,
            params,
            has_biases,
            num_layers,
            dropout if train else 0.0,
            bidirectional,
            False,
            activation,
            padded.lengths,
        )
        return [_pack_steps(op, PaddedSequences(output, padded.lengths)), *finals]

    register(target)(translation)
    report_lost_nan(target, activation)


_register_layers(aten.lstm.data, "LSTM")
_register_layers(aten.gru.data, "GRU")
_register_layers(aten.rnn_tanh.data, "RNN", "Tanh")
_register_layers(aten.rnn_relu.data, "RNN", "Relu")


def _swap_time_and_batch(op: Builder, value: Value) -> Value:
    """Exchanges the first two axes."""
    return op.Transpose(value, perm=[1, 0, *range(2, op.rank(value))])


def _mask_steps(op: Builder, count: Value, lengths: Value) -> Value:
    """Mask of the steps that each sequence has, ``[count, batch]``."""
    steps = op.Range(0, count, 1)
    return op.Less(op.Unsqueeze(steps, [1]), op.Unsqueeze(lengths, [0]))


def _list_steps(op: Builder, inside: Value) -> Value:
    """Indices of the steps, ``[sum of lengths, 2]``, ordered by time."""
    return op.Transpose(op.NonZero(inside), perm=[1, 0])


def _pack_steps(op: Builder, padded: PaddedSequences) -> Value:
    """Steps of all sequences, ``[sum of lengths, *]``."""
    time = op.cast(op.size(padded.sequences, 0), ir.DataType.INT64)
    inside = _mask_steps(op, time, padded.lengths)
    data: Value = op.GatherND(padded.sequences, _list_steps(op, inside))
    data.meta[PADDED] = padded
    return data


def _recover_padded(op: Builder, data: Value, batch_sizes: Value, batch: Size) -> PaddedSequences:
    """Padded sequences that the data was packed from, or zeros into which it is scattered."""
    known: PaddedSequences | None = data.meta.get(PADDED)
    if known is not None:
        return known
    sequences = op.Range(0, op.cast(batch, ir.DataType.INT64), 1)
    inside = op.Less(op.Unsqueeze(sequences, [0]), op.Unsqueeze(batch_sizes, [1]))
    lengths: Value | None = batch_sizes.meta.get(LENGTHS)
    if lengths is None:
        counted = op.cast(inside, ir.DataType.INT64)
        lengths = op.reduce("ReduceSum", counted, [0], keepdims=False)
    assert data.dtype is not None
    zeros = op.Expand(
        op.constant(0, data.dtype),
        op.sizes([op.size(batch_sizes, 0), batch, *op.all_sizes(data)[1:]]),
    )
    return PaddedSequences(op.ScatterND(zeros, _list_steps(op, inside), data), lengths)


def _resize_time(op: Builder, sequences: Value, time: Size, longest: Size) -> Value:
    """Sequences with another number of steps, which is at least the longest length."""
    before = op.size(sequences, 0)
    if before is time or (isinstance(before, int) and before == time):
        return sequences
    if time is not longest:  # it may also exceed the present number of steps
        more = op.Max(op.Sub(op.cast(time, ir.DataType.INT64), before), 0)
        others = [0] * op.rank(sequences)
        sequences = op.Pad(sequences, op.sizes([*others, more, *others[1:]]))
    return op.Slice(sequences, [0], op.sizes([time]), [0])


@register(aten.pad_sequence.default)
def aten_pad_sequence(
    op: Builder,
    sequences: Sequence[Value],
    batch_first: bool = False,
    padding_value: float = 0.0,
    padding_side: str = "right",
) -> Value:
    """Pads the first axes to the longest, and stacks."""
    lengths = [op.size(sequence, 0) for sequence in sequences]
    longest = largest(op, lengths)
    padded = []
    for sequence, length in zip(sequences, lengths, strict=True):
        missing = subtract_sizes(op, longest, length)
        before, after = (missing, 0) if padding_side == "left" else (0, missing)
        rest = [0] * (op.rank(sequence) - 1)
        value = pad_last_axes(op, sequence, [before, *rest], [after, *rest], padding_value)
        padded.append(op.Unsqueeze(value, [0 if batch_first else 1]))
    return op.Concat(*padded, axis=0 if batch_first else 1)
