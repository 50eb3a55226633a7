"""Leaves modules in place that ``forward`` moves to the device and type that they have.

``module.to(x.device)`` replaces every parameter by a copy, which a capture cannot hold.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from onnx_aot.torch_compat import Patch, Settings

__all__ = ["MODULE_MOVES"]


def _skip_moves(original: Callable[..., Any], settings: Settings) -> Callable[..., Any]:
    def to(self: torch.nn.Module, *args: Any, **kwargs: Any) -> Any:
        return self if _is_there(self, *args, **kwargs) else original(self, *args, **kwargs)

    return to


def _is_there(module: torch.nn.Module, *args: Any, **kwargs: Any) -> bool:
    """True if every parameter and buffer has the device and type that are asked for."""
    asked = [*args, *(value for key, value in kwargs.items() if key != "non_blocking")]
    tensors = [*module.parameters(), *module.buffers()]
    return all(_has_property(tensor, value) for tensor in tensors for value in asked)


def _has_property(tensor: torch.Tensor, asked: Any) -> bool:
    """True if the tensor has a device or type, or those of another tensor; False for the rest."""
    if isinstance(asked, torch.Tensor):
        return _has_property(tensor, asked.device) and _has_property(tensor, asked.dtype)
    if isinstance(asked, torch.dtype):
        return asked == tensor.dtype or not (tensor.is_floating_point() or tensor.is_complex())
    if isinstance(asked, (str, torch.device)):
        return torch.device(asked) == tensor.device
    return asked is None


MODULE_MOVES = (
    Patch(
        "torch.nn:Module.to",
        _skip_moves,
        "Models that move a layer to the device of their input in forward are refused.",
    ),
)
