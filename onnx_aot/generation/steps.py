"""Replaces ``forward`` of a decoder by one that takes and returns all states of a step."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

import torch

from onnx_aot.generation.caches import Layout
from onnx_aot.generation.windows import cut_mask, set_earlier

__all__ = ["make_step_forward"]


def make_step_forward(
    model: Any, parameter: str, layout: Layout, one_token: bool
) -> Callable[..., Any]:
    """Returns a ``forward`` that returns logits and the tensors of the cache.

    Args:
        model: The model, with its own ``forward``.
        parameter: Its parameter that takes the cache.
        layout: The states.
        one_token: Every step is of one token. Models do not look at the mask then, as no generated
            token is padding. A prompt that is read token by token may begin with some, which must
            leave the states as they are.
    """
    forward = model.forward
    counts_from_window = _counts_from_window(model, layout)

    def step(**inputs: Any) -> Any:
        cache, mask, new = inputs[parameter], inputs["attention_mask"], inputs["input_ids"].shape[1]
        if counts_from_window:
            inputs["attention_mask"] = mask = cut_mask(mask, cache, new)
        before = layout.tensors_of(cache)
        if any(state.first is not None for state in layout.states):
            before = _begun(layout, before, mask.shape[1] - new)
        if layout.is_recurrent:  # models write to these states, which are inputs here
            cache = layout.fill([tensor.clone() for tensor in before])
        set_earlier(cache, mask.shape[1] - new)
        given = {**inputs, parameter: cache}
        if one_token and all(state.axis is None for state in layout.states):
            del given["attention_mask"]  # nothing attends to earlier tokens
        found = forward(**given)
        after = layout.tensors_of(getattr(found, parameter))
        if one_token:
            read = mask[:, -1:].bool()
            after = [
                _chosen(read, new, old) if state.axis is None else new
                for state, new, old in zip(layout.states, after, before, strict=True)
            ]
        return found.logits, after

    return step


def _counts_from_window(model: Any, layout: Layout) -> bool:
    """True if tokens may be counted from the first one that the window holds.

    A model whose layers all have one window does not see the number of tokens before it: masks
    depend on distances, and positions are an input. A mask of chunks depends on the number.
    """
    window = getattr(model.config.get_text_config(decoder=True), "sliding_window", None)
    takes_positions = "position_ids" in inspect.signature(model.forward).parameters
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


def _chosen(rows: torch.Tensor, new: torch.Tensor, old: torch.Tensor) -> torch.Tensor:
    """Returns ``new`` in the rows that are true, and ``old`` in the others."""
    return torch.where(rows.reshape(-1, *[1] * (new.dim() - 1)), new, old)
