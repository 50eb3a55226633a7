"""Calls a model for one token after another, in a loop that becomes one of the ONNX model.

This file counts as the user's code (``metadata.user_code``): a capture looks for loops there.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch

from onnx_aot.generation.caches import Layout
from onnx_aot.generation.layers import set_position

__all__ = ["make_loop"]


def make_loop(forward: Callable[..., Any], parameter: str, layout: Layout) -> Callable[..., Any]:
    """Returns a function that calls the model's ``forward`` for each token of a step.

    Models do not look at the mask then, as no generated token is padding. A prompt may begin with
    some, which has to leave the states as they are.
    """
    attends = any(state.axis is not None for state in layout.states)

    def loop(inputs: dict[str, Any], tensors: Sequence[torch.Tensor]) -> Any:
        mask, new = inputs["attention_mask"], inputs["input_ids"].shape[1]
        earlier = mask.shape[1] - new
        columns = torch.arange(mask.shape[1], device=mask.device)
        states = [
            tensor if state.axis is None else _lengthen(tensor, state.axis, new)
            for state, tensor in zip(layout.states, tensors, strict=True)
        ]
        logits = []
        for t in range(new):
            cache = layout.fill([state.clone() for state in states])
            set_position(cache, earlier + t)
            given = {**inputs, parameter: cache}
            for name in given.keys() & {"input_ids", "position_ids"}:
                given[name] = inputs[name][:, t, None]
            given["attention_mask"] = mask * (columns <= earlier + t) if attends else None
            found = forward(**given)
            is_token = mask[:, earlier + t]
            states = [
                _chosen(is_token, after, before) if state.axis is None else after
                for state, after, before in zip(
                    layout.states, layout.tensors_of(getattr(found, parameter)), states, strict=True
                )
            ]
            logits.append(found.logits[:, 0])
        return torch.stack(logits, 1), states

    return loop


def _lengthen(tensor: torch.Tensor, axis: int, count: Any) -> torch.Tensor:
    """Appends so many zeros along an axis."""
    sizes = list(tensor.shape)
    sizes[axis] = count
    return torch.cat([tensor, tensor.new_zeros(sizes)], axis)


def _chosen(rows: torch.Tensor, new: torch.Tensor, old: torch.Tensor) -> torch.Tensor:
    """Returns ``new`` in the rows that are not 0, and ``old`` in the others."""
    return torch.where(rows.reshape(-1, *[1] * (new.dim() - 1)) != 0, new, old)
