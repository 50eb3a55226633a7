"""The form of a row."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

import torch

__all__ = ["ModelCase"]


@dataclasses.dataclass(frozen=True)
class ModelCase:
    """One model, its inputs at any size, and its dynamic dimensions.

    Attributes:
        name: Unique name, lower case.
        build: Returns the module; random weights come from torch's global generator.
        inputs: Called with one keyword per size, returns ``(args, kwargs)`` of tensors.
        dynamic_shapes: What the user would pass to ``export``.
        sizes: Keyword sets for ``inputs``; the first is the example that is captured.
    """

    name: str
    build: Callable[[], torch.nn.Module]
    inputs: Callable[..., tuple[tuple[Any, ...], dict[str, Any]]]
    dynamic_shapes: Any
    sizes: tuple[dict[str, int], ...]

    def make(self) -> torch.nn.Module:
        """Returns the module in eval mode with reproducible weights."""
        torch.manual_seed(0)
        return self.build().eval()

    def example(self, index: int = 0) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """Returns ``(args, kwargs)`` at ``sizes[index]`` with reproducible values."""
        torch.manual_seed(index + 1)
        return self.inputs(**self.sizes[index])
