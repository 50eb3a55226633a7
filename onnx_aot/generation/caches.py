"""Finds the layout of a transformers model's key-value cache by one call of the model."""

from __future__ import annotations

import copy
import inspect
from collections.abc import Callable, Mapping
from typing import Any

import torch

from onnx_aot.errors import InvalidOptionError

__all__ = ["Pair", "cache_parameter", "cached_states"]

Pair = tuple[torch.Tensor, torch.Tensor]
"""Keys and values of one layer, ``[batch, heads, length, size of a head]`` each."""


def cache_parameter(forward: Callable[..., Any]) -> str | None:
    """Returns the name of the parameter of ``forward`` that takes the cache, or None.

    It is ``cache`` since transformers 5.24, and ``past_key_values`` before. The output of a model
    has an attribute of the same name.
    """
    taken = inspect.signature(forward).parameters
    return next((name for name in ("cache", "past_key_values") if name in taken), None)


def cached_states(
    model: torch.nn.Module, inputs: Mapping[str, Any], cross: bool = False
) -> tuple[Pair, ...]:
    """Returns the keys and values that a model puts into its cache, layer by layer.

    Args:
        model: The model, which is called once with its cache. If weights have no values, a copy is
            called whose buffers have none either.
        inputs: Keyword inputs of the call.
        cross: Return the keys and values of the encoder's output, instead of the decoder's own.

    Raises:
        InvalidOptionError: The model takes or returns no cache, or one with states other than keys
            and values; or it fails, and the cause is chained.
    """
    name = type(model).__name__
    parameter = cache_parameter(model.forward)
    if parameter is None:
        raise InvalidOptionError(
            f"{name}.forward takes neither cache nor past_key_values, so it has no key-value "
            "cache. Export it without one: onnx_aot.export(model, kwargs=...)",
            code="OA701",
        )
    if any(weight.is_meta for weight in model.parameters()):
        model = copy.deepcopy(model).to("meta")
        inputs = {name: _on_meta(value) for name, value in inputs.items()}
    try:
        with torch.no_grad():
            returned = model(**inputs, use_cache=True)
    except Exception as error:
        raise InvalidOptionError(
            f"{name} fails on one token with its own cache, even without an export: {error}",
            code="OA701",
        ) from error
    cache = getattr(returned, parameter, None)
    part = getattr(cache, "cross_attention_cache" if cross else "self_attention_cache", cache)
    layers = getattr(part, "layers", None)
    if not layers:
        raise InvalidOptionError(
            f"{name} returns no key-value cache ({parameter} is a {type(cache).__name__}). A "
            "decoder returns one. If the model can be a decoder or an encoder, set "
            "config.is_decoder=True. Export other models with onnx_aot.export(model, kwargs=...)",
            code="OA701",
        )
    return tuple(_keys_and_values(layer, index, name) for index, layer in enumerate(layers))


def _on_meta(value: Any) -> Any:
    """Moves a tensor, or an output of transformers that holds some, to the meta device."""
    if isinstance(value, Mapping):
        return type(value)(**{key: _on_meta(held) for key, held in value.items()})
    return value.to("meta") if isinstance(value, torch.Tensor) else value


def _keys_and_values(layer: Any, index: int, name: str) -> Pair:
    from transformers.cache_utils import DynamicLayer, DynamicSlidingWindowLayer

    if type(layer) not in (DynamicLayer, DynamicSlidingWindowLayer):
        raise InvalidOptionError(
            f"layer {index} of the cache of {name} is a {type(layer).__name__} whose state is "
            "not keys and values of attention; DynamicLayer and DynamicSlidingWindowLayer are "
            "supported. Pass the cache to onnx_aot.export among the kwargs, with "
            "dynamic_shapes, input_names and output_names for its tensors",
            code="OA701",
        )
    return layer.keys, layer.values
