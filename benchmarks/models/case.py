"""Defines the row of a model: its module, inputs, dynamic dimensions and sizes."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

import torch

__all__ = ["ModelCase", "spread_weights"]


@dataclasses.dataclass(frozen=True)
class ModelCase:
    """One model, its inputs at any size, and its dynamic dimensions.

    Attributes:
        name: Unique name, lower case.
        build: Returns the module; random weights come from torch's global generator.
        inputs: Called with one keyword per size, returns ``(args, kwargs)`` of tensors.
        dynamic_shapes: As the user would pass them to ``export``.
        sizes: Keyword sets for ``inputs``; the first is the example that is captured.
    """

    name: str
    build: Callable[[], torch.nn.Module]
    inputs: Callable[..., tuple[tuple[Any, ...], dict[str, Any]]]
    dynamic_shapes: Any
    sizes: tuple[dict[str, int], ...]

    def make(self) -> torch.nn.Module:
        """Returns the module in eval mode with reproducible weights that all matter."""
        torch.manual_seed(0)
        model = self.build()
        spread_weights(model)
        _fill_running_statistics(model, self)
        return model.eval()

    def example(self, index: int = 0) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """Returns ``(args, kwargs)`` at ``sizes[index]`` with reproducible values."""
        torch.manual_seed(index + 1)
        return self.inputs(**self.sizes[index])


def spread_weights(model: torch.nn.Module) -> None:
    """Replaces parameters near zero, which would hide errors in the values that they multiply.

    Networks without normalization get He weights, with which activations keep their size.
    """
    layers = list(model.modules())
    normalized = any("Norm" in type(layer).__name__ for layer in layers)
    convolutional = any(isinstance(layer, torch.nn.Conv2d) for layer in layers)
    with torch.no_grad():
        if convolutional and not normalized:
            for layer in layers:
                if isinstance(layer, (torch.nn.Conv2d, torch.nn.Linear)):
                    torch.nn.init.kaiming_normal_(layer.weight, nonlinearity="relu")
        for parameter in model.parameters():
            if not parameter.numel() or not parameter.is_floating_point():
                continue
            if parameter.abs().max() < 1e-3:
                parameter.normal_(std=0.2)


def _fill_running_statistics(model: torch.nn.Module, case: ModelCase) -> None:
    """Averages statistics over large examples, so that activations keep their size."""
    norms = [m for m in model.modules() if isinstance(m, torch.nn.modules.batchnorm._BatchNorm)]
    if not norms:
        return
    momenta = [norm.momentum for norm in norms]
    for norm in norms:
        norm.momentum = None  # cumulative average instead of an exponential one
    with torch.no_grad():
        for size in case.sizes:
            args, kwargs = case.inputs(**{**size, "batch": 16})
            model.train()(*args, **kwargs)
    for norm, momentum in zip(norms, momenta, strict=True):
        norm.momentum = momentum
