"""Replaces ``forward`` of a decoder by one that takes and returns all states of a step."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from typing import Any

import torch

from onnx_aot.generation.caches import Layout, cache_parameter
from onnx_aot.generation.layers import cut_mask, set_earlier
from onnx_aot.generation.token_loop import make_loop
from onnx_aot.torch_compat import masks_kept

__all__ = ["make_step_forward"]


def make_step_forward(
    model: Any, forward: Callable[..., Any], *, layout: Layout, by_token: bool
) -> Callable[..., Any]:
    """Returns a ``forward`` that returns logits and the tensors of the cache.

    Args:
        model: The model.
        forward: Its own ``forward``.
        layout: The states.
        by_token: Call the model for one token after another, in a loop.
    """
    parameter = str(cache_parameter(forward))
    if by_token:
        read = make_loop(forward, parameter, layout)
    else:
        read = _make_call(forward, parameter, layout, _counts_from_window(model, forward, layout))

    def step(**inputs: Any) -> Any:
        tensors = layout.tensors_of(inputs[parameter])
        if any(state.first is not None for state in layout.states):
            earlier = inputs["attention_mask"].shape[1] - inputs["input_ids"].shape[1]
            tensors = _begun(layout, tensors, earlier)
        return read(inputs, tensors)

    return step


def _make_call(
    forward: Callable[..., Any], parameter: str, layout: Layout, counts_from_window: bool
) -> Callable[..., Any]:
    """Returns a function that calls the model once, for all tokens of a step."""

    def call(inputs: dict[str, Any], tensors: Sequence[torch.Tensor]) -> Any:
        # Models write to recurrent states, which are inputs here.
        cache = layout.fill([tensor.clone() for tensor in tensors])
        mask, new = inputs["attention_mask"], inputs["input_ids"].shape[1]
        if counts_from_window:
            mask = cut_mask(mask, cache, new)
        set_earlier(cache, mask.shape[1] - new)
        with masks_kept():
            found = forward(**{**inputs, "attention_mask": mask, parameter: cache})
        return found.logits, layout.tensors_of(getattr(found, parameter))

    return call


def _counts_from_window(model: Any, forward: Callable[..., Any], layout: Layout) -> bool:
    """True if tokens may be counted from the first one that the window holds.

    A model whose layers all have one window does not see the number of tokens before it: masks
    depend on distances, and positions are an input. A mask of chunks depends on the number.
    """
    window = getattr(model.config.get_text_config(decoder=True), "sliding_window", None)
    takes_positions = "position_ids" in inspect.signature(forward).parameters
    return (
        takes_positions and not layout.has_all_positions and layout.windows == [(window or 0) - 1]
    )


def _begun(layout: Layout, tensors: list[torch.Tensor], earlier: Any) -> list[torch.Tensor]:
    """Replaces zeros by what the model begins with, if there are no earlier tokens."""
    is_first = torch.full((), earlier) == 0
    return [
        tensor if state.first is None else torch.where(is_first, state.first, tensor)
        for state, tensor in zip(layout.states, tensors, strict=True)
    ]
