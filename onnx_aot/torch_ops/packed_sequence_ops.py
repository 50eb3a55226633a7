"""Defines operators that stand for packing and padding sequences while a model is captured.

Torch's own operators read the lengths as numbers, which a capture does not have, and have no shape
function. These have one, with unbacked symbols for the number of elements and the length of the
longest sequence. The number of sequences is passed on, so that its dimension stays the same.
"""

from __future__ import annotations

import torch

__all__ = ["PACK", "PAD", "pack", "pad"]

Tensor = torch.Tensor


@torch.library.custom_op("onnx_aot::pack_padded_sequence", mutates_args=())
def pack(input: Tensor, lengths: Tensor, batch_first: bool) -> tuple[Tensor, Tensor]:
    """Packs sequences as ``aten::_pack_padded_sequence`` does.

    Args:
        input: ``[time, batch, *]``, or ``[batch, time, *]`` with ``batch_first``.
        lengths: int64 ``[batch]``, in descending order.
        batch_first: See ``input``.

    Returns:
        The steps of all sequences, ``[sum of lengths, *]``, ordered by time; and the number of
        sequences that have each step, int64 ``[longest length]``.
    """
    packed: tuple[Tensor, Tensor] = torch.ops.aten._pack_padded_sequence(
        input, lengths, batch_first
    )
    return packed


@pack.register_fake
def _(input: Tensor, lengths: Tensor, batch_first: bool) -> tuple[Tensor, Tensor]:
    context = torch.library.get_ctx()
    data = input.new_empty([context.new_dynamic_size(), *input.shape[2:]])
    return data, lengths.new_empty([context.new_dynamic_size()])


@torch.library.custom_op("onnx_aot::pad_packed_sequence", mutates_args=())
def pad(
    data: Tensor,
    batch_sizes: Tensor,
    batch: int,
    batch_first: bool,
    padding_value: float,
    total_length: int,
) -> tuple[Tensor, Tensor]:
    """Pads sequences as ``aten::_pad_packed_sequence`` does.

    Args:
        data: ``[sum of lengths, *]``, as ``pack`` returns it.
        batch_sizes: int64 ``[longest length]``, also from ``pack``.
        batch: Number of sequences.
        batch_first: Whether the result is ``[batch, time, *]``, not ``[time, batch, *]``.
        padding_value: Value that follows the last step of a sequence.
        total_length: The size of the time dimension of the result, at least the longest length.

    Returns:
        The padded sequences, and their lengths, int64 ``[batch]``.
    """
    padded: tuple[Tensor, Tensor] = torch.ops.aten._pad_packed_sequence(
        data, batch_sizes, batch_first, padding_value, total_length
    )
    return padded


@pad.register_fake
def _(
    data: Tensor,
    batch_sizes: Tensor,
    batch: int,
    batch_first: bool,
    padding_value: float,
    total_length: int,
) -> tuple[Tensor, Tensor]:
    outer = [batch, total_length] if batch_first else [total_length, batch]
    return data.new_empty([*outer, *data.shape[1:]]), batch_sizes.new_empty([batch])


PACK = torch.ops.onnx_aot.pack_padded_sequence.default
PAD = torch.ops.onnx_aot.pad_packed_sequence.default
