"""Makes example inputs of any sizes for a step of a generation."""

from __future__ import annotations

import dataclasses
import inspect
from collections.abc import Mapping
from typing import Any

import torch

from onnx_aot.generation.caches import Layout, cache_parameter

__all__ = [
    "CAPTURED",
    "KINDS",
    "Sizes",
    "cut_step",
    "decoder_inputs",
    "device_for",
    "encoder_inputs",
    "encoder_outputs",
    "main_input",
    "make_text",
    "reads_tokens",
    "step_inputs",
]


@dataclasses.dataclass(frozen=True)
class Sizes:
    """Sizes of a step: rows, new tokens, earlier tokens, tokens that an encoder read.

    Attributes:
        padded: Whether the first row of a decoder without an encoder begins with padding.
    """

    batch: int
    sequence: int
    past: int
    encoded: int = 4
    padded: bool = True


CAPTURED = Sizes(2, 3, 5)
"""Sizes of the captured step. All differ and none is 0 or 1, so that no guard holds by accident."""

KINDS = (Sizes(2, 6, 0), Sizes(2, 1, 6), Sizes(1, 6, 0), Sizes(1, 1, 5), Sizes(1, 1, 0))
"""Other steps of a generation: first steps, steps of one token, and of one row."""


def device_for(model: torch.nn.Module) -> torch.device:
    """Device for example inputs; weights without values count as on the CPU."""
    devices = (weight.device for weight in model.parameters() if not weight.is_meta)
    return next(devices, torch.device("cpu"))


def main_input(model: Any) -> str:
    """Name of the parameter of ``forward`` for the main input of the model or its encoder."""
    return str(getattr(model, "main_input_name", "input_ids"))


def reads_tokens(model: Any) -> bool:
    """True if the model, or its encoder, reads text."""
    return main_input(model) == "input_ids"


def decoder_inputs(model: Any, layout: Layout, sizes: Sizes) -> dict[str, Any]:
    """Returns a step's inputs for a decoder without an encoder, by parameter.

    The first row is padded on the left, unless the sizes are without padding.
    """
    text = make_text(model, sizes.batch, sizes.past + sizes.sequence, sizes.padded)
    cache = layout.make(sizes.batch, sizes.past, device_for(model))
    return cut_step(model, text, sizes.past, sizes.past + sizes.sequence, cache)


def make_text(model: Any, batch: int, length: int, padded: bool = True) -> dict[str, torch.Tensor]:
    """Returns tokens, their mask, and positions if the model takes them; one row may be padded."""
    mask = torch.ones(batch, length, dtype=torch.int64)
    if padded:
        _pad_first_row(mask, left=True)
    text = {"input_ids": _make_tokens(model, batch, length), "attention_mask": mask}
    if "position_ids" in inspect.signature(model.forward).parameters:
        text["position_ids"] = (mask.cumsum(1) - 1).clamp(min=0)
    device = device_for(model)
    return {name: tensor.to(device) for name, tensor in text.items()}


def cut_step(
    model: Any, text: Mapping[str, torch.Tensor], start: int, stop: int, cache: Any
) -> dict[str, Any]:
    """Returns the inputs of a step that reads a part of a text; the mask is for all before, too."""
    parts = {
        name: tensor[:, (0 if name == "attention_mask" else start) : stop].clone()
        for name, tensor in text.items()
    }
    return {**parts, str(cache_parameter(model.forward)): cache, "use_cache": True}


def step_inputs(model: Any, own: Layout, cross: Layout, sizes: Sizes) -> dict[str, Any]:
    """Returns a step's inputs for a decoder behind an encoder, as ``decoding_step`` takes them.

    The cache is last.
    """
    from transformers.cache_utils import EncoderDecoderCache

    device = device_for(model)
    given = {"input_ids": _make_tokens(model, sizes.batch, sizes.sequence)}
    if reads_tokens(model):
        mask = torch.ones(sizes.batch, sizes.encoded, dtype=torch.int64)
        given["encoder_attention_mask"] = _pad_first_row(mask, left=False)
    cache = EncoderDecoderCache(
        own.make(sizes.batch, sizes.past, device), cross.make(sizes.batch, sizes.encoded, device)
    )
    return {
        **{name: tensor.to(device) for name, tensor in given.items()},
        "past_key_values": cache,
    }


def encoder_inputs(model: Any) -> dict[str, torch.Tensor]:
    """Returns text for an encoder, the first row padded on the right."""
    batch, length, device = CAPTURED.batch, CAPTURED.encoded, device_for(model)
    mask = _pad_first_row(torch.ones(batch, length, dtype=torch.int64), left=False)
    return {
        "input_ids": _make_tokens(model, batch, length).to(device),
        "attention_mask": mask.to(device),
    }


def encoder_outputs(model: Any) -> dict[str, Any]:
    """Returns keyword inputs for one step of a decoder whose encoder is not run."""
    from transformers.modeling_outputs import MoEModelOutput

    batch, device = CAPTURED.batch, device_for(model)
    config = getattr(model.get_encoder(), "config", model.config)
    width = config.get_text_config().hidden_size
    dtype = next(model.parameters()).dtype
    encoded = torch.zeros(batch, CAPTURED.encoded, width, dtype=dtype, device=device)
    return {
        "encoder_outputs": MoEModelOutput(last_hidden_state=encoded),
        "decoder_input_ids": _make_tokens(model, batch, 1).to(device),
    }


def _make_tokens(model: Any, batch: int, length: int) -> torch.Tensor:
    """Returns different tokens within the vocabulary."""
    vocabulary = int(model.config.get_text_config(decoder=True).vocab_size)
    return (torch.arange(1, 1 + batch * length) % vocabulary).reshape(batch, length)


def _pad_first_row(mask: torch.Tensor, left: bool) -> torch.Tensor:
    """Sets one 0 in the first row of a mask, unless the row has no other element."""
    if mask.shape[1] > 1:
        mask[0, 0 if left else -1] = 0
    return mask
