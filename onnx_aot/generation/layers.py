"""Lets layers of a cache work for any number of earlier tokens.

Layers of transformers count their tokens in Python numbers and branch on them: is the window full?
A capture would take one branch. The classes here compute the same from sizes of tensors.
"""

from __future__ import annotations

import functools
from typing import Any

import torch

__all__ = ["cut_mask", "keep_windows", "set_earlier", "set_position", "window_of"]


def window_of(layer: Any) -> int | None:
    """The most positions that a layer of a cache keeps; None if it keeps all."""
    kept = getattr(layer, "kept", None)
    return None if kept is None else int(kept)


def keep_windows(cache: Any, bounded: bool) -> None:
    """Replaces the classes of layers with a window, in place.

    Args:
        cache: A cache of transformers, or something without layers.
        bounded: Keep the positions that the next token attends to, one less than the window. Else
            all positions are kept; those outside the window are masked.
    """
    for layer in _windowed(cache):
        base: Any = type(layer)
        layer.__class__ = _window_class(base)
        layer.kept = layer.sliding_window - 1 if bounded else None
        del layer.cumulative_length  # a number, which torch.export would fix


def set_earlier(cache: Any, earlier: Any) -> None:
    """Tells layers with a window how many tokens came before the step, which they cannot count."""
    for layer in _windowed(cache):
        layer.earlier = earlier


def set_position(cache: Any, position: Any) -> None:
    """Lets layers of attention write to one position of the keys and values that they have.

    So a step does not change their sizes. The mask has to leave out positions behind this one.
    """
    for layer in getattr(cache, "layers", ()):
        if isinstance(getattr(layer, "keys", None), torch.Tensor):
            base: Any = type(layer)
            layer.__class__ = _buffer_class(base)
            layer.position = position


def cut_mask(mask: torch.Tensor, cache: Any, new: Any) -> torch.Tensor:
    """Returns the columns of a mask for the positions that layers with one window hold, and new.

    Args:
        mask: ``[batch, length]``, for all tokens of a text.
        cache: A cache in which every layer of attention has the same window.
        new: Number of new tokens.
    """
    width = _windowed(cache)[0].keys.shape[-2] + new
    columns = torch.arange(width, device=mask.device) + (mask.shape[1] - width)
    return mask[:, columns]


def _windowed(cache: Any) -> list[Any]:
    return [layer for layer in getattr(cache, "layers", ()) if getattr(layer, "is_sliding", False)]


@functools.cache
def _window_class(base: Any) -> Any:
    """Returns a subclass of a layer of transformers without branches on the number of tokens."""

    class WindowLayer(base):  # type: ignore[misc]
        _layer_type = None  # transformers registers subclasses that have one, for all caches
        keys: torch.Tensor
        values: torch.Tensor

        def update(
            self, key_states: torch.Tensor, value_states: torch.Tensor, *_: Any, **__: Any
        ) -> tuple[torch.Tensor, torch.Tensor]:
            keys = torch.cat([self.keys, key_states], dim=-2)
            values = torch.cat([self.values, value_states], dim=-2)
            self.keys, self.values = self._last(keys), self._last(values)
            return keys, values

        def _last(self, states: torch.Tensor) -> torch.Tensor:
            if self.kept is None:
                return states
            length = states.shape[-2]
            kept = torch.sym_min(length, self.kept)  # type: ignore[no-untyped-call]
            return torch.split(states, [length - kept, kept], dim=-2)[1]

        def get_mask_sizes(self, query_length: int) -> tuple[int, int]:
            held = self.keys.shape[-2]
            return held + query_length, self.get_seq_length() - held

        def get_seq_length(self) -> int:
            return self.keys.shape[-2] if self.kept is None else self.earlier

    return _named(WindowLayer, base)


@functools.cache
def _buffer_class(base: Any) -> Any:
    """Returns a subclass of a layer of transformers that keeps its size."""

    class BufferLayer(base):  # type: ignore[misc]
        _layer_type = None
        keys: torch.Tensor
        values: torch.Tensor

        def update(
            self, key_states: torch.Tensor, value_states: torch.Tensor, *_: Any, **__: Any
        ) -> tuple[torch.Tensor, torch.Tensor]:
            columns = torch.arange(self.keys.shape[-2], device=self.keys.device)
            is_here = (columns == self.position)[:, None]
            self.keys = torch.where(is_here, key_states, self.keys)
            self.values = torch.where(is_here, value_states, self.values)
            return self.keys, self.values

        def get_mask_sizes(self, *_: Any) -> tuple[int, int]:
            return self.keys.shape[-2], 0

        def get_seq_length(self) -> int:
            return self.position  # type: ignore[no-any-return]

    return _named(BufferLayer, base)


def _named(cls: Any, base: Any) -> Any:
    """Names a class after its base: torch's pytree knows classes by their names."""
    cls.__qualname__ = f"{cls.__name__}[{base.__qualname__}]"
    del cls._layer_type  # that of the base again
    return cls
