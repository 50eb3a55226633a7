"""Replaces ``forward`` of an encoder-decoder by what each of its two programs computes."""

from __future__ import annotations

import contextlib
import inspect
import types
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import torch

from onnx_aot.generation.caches import cache_parameter

__all__ = ["make_decoder_forward", "make_encoder_forward", "replace_forward"]


def make_encoder_forward(model: Any, forward: Callable[..., Any]) -> Callable[..., Any]:
    """Returns a ``forward`` of the encoder with the keys and values of the cross-attention.

    These are the part of the decoder that depends on the encoder alone. The decoder is called for
    one token, which they do not depend on; the rest of the call is unused, and so is not in the
    ONNX model. The encoder is called before, with the inputs that it takes, as ``generate`` does.
    """
    from transformers.cache_utils import DynamicCache, EncoderDecoderCache

    encoder = model.get_encoder()
    parameter = str(cache_parameter(forward))
    taken = inspect.signature(encoder.forward).parameters

    def encode(**inputs: torch.Tensor) -> Any:
        first = next(iter(inputs.values()))
        encoded = encoder(**{name: inputs[name] for name in inputs if name in taken})
        start = torch.zeros(first.shape[0], 1, dtype=torch.int64, device=first.device)
        cache = EncoderDecoderCache(DynamicCache(), DynamicCache())
        held = {parameter: cache}
        forward(**inputs, **held, encoder_outputs=encoded, decoder_input_ids=start, use_cache=True)
        layers: list[Any] = cache.cross_attention_cache.layers
        return encoded.last_hidden_state, [(layer.keys, layer.values) for layer in layers]

    return encode


def make_decoder_forward(_: Any, forward: Callable[..., Any], *, width: int) -> Callable[..., Any]:
    """Returns a ``forward`` of the decoder, given the keys and values of its cross-attention.

    It reads only the sizes of the encoder's output, which is ``width`` wide, so zeros replace it.
    """
    from transformers.modeling_outputs import MoEModelOutput

    parameter = str(cache_parameter(forward))

    def decode(
        input_ids: torch.Tensor,
        past_key_values: Any,
        encoder_attention_mask: torch.Tensor | None = None,
    ) -> Any:
        keys = past_key_values.cross_attention_cache.layers[0].keys
        encoded = MoEModelOutput(keys.new_zeros(keys.shape[0], keys.shape[2], width))
        masks = {} if encoder_attention_mask is None else {"attention_mask": encoder_attention_mask}
        found = forward(
            encoder_outputs=encoded,
            decoder_input_ids=input_ids,
            use_cache=True,
            **{parameter: past_key_values},
            **masks,
        )
        layers = getattr(found, parameter).self_attention_cache.layers
        return found.logits, [(layer.keys, layer.values) for layer in layers]

    return decode


@contextlib.contextmanager
def replace_forward(
    model: torch.nn.Module,
    make: Callable[[Any, Callable[..., Any]], Callable[..., Any]],
    inputs: Mapping[str, Any],
) -> Iterator[None]:
    """Context in which the model has another ``forward``, whose signature names the inputs.

    Its weights keep their names, which a wrapper module would change. A copy of the model, such as
    one in float64, has that ``forward``, too, and it computes with the weights of the copy.

    Args:
        model: The model.
        make: Makes the other ``forward``, given a model and its own one.
        inputs: Keyword inputs of the other one.
    """
    before = vars(model).get("forward")
    made = make(model, model.forward)

    def forward(self: Any, **given: Any) -> Any:
        replaced = made if self is model else make(self, before or type(self).forward.__get__(self))
        return replaced(**given)

    parameters = [inspect.Parameter("self", inspect.Parameter.POSITIONAL_OR_KEYWORD)]
    parameters += [inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY) for name in inputs]
    forward.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    model.forward = types.MethodType(forward, model)
    try:
        yield
    finally:
        del model.forward
        if before is not None:
            model.forward = before
