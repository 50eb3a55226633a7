"""Fake quantization: whether it observes and quantizes is decided when a model is captured.

Torch keeps the two switches in tensors, which a capture has no values of.
"""

from __future__ import annotations

import functools
import sys
from typing import Any

import torch

__all__ = ["observing", "quantize_only", "quantizing_only", "switches"]

SWITCHES = ("observer_enabled", "fake_quant_enabled")


_MODULE = "torch.ao.quantization.fake_quantize"


def _layers(module: torch.nn.Module) -> list[tuple[str, Any]]:
    quantization: Any = sys.modules.get(_MODULE)
    if quantization is None:  # then no module is of its classes
        return []
    kind = quantization.FakeQuantizeBase
    return [(name, layer) for name, layer in module.named_modules() if isinstance(layer, kind)]


def observing(module: torch.nn.Module) -> str | None:
    """What to do about layers that observe the range of their inputs, which few can be captured."""
    names = [name or "the model" for name, layer in _layers(module) if layer.observer_enabled[0]]
    if not names:
        return None
    more = f" and {len(names) - 1} more" if len(names) > 1 else ""
    return (
        f"{names[0]}{more} still observes the range of its input. Call "
        "model.apply(torch.ao.quantization.disable_observer) first, to quantize by what was "
        "observed so far"
    )


def switches(module: torch.nn.Module) -> list[tuple[Any, str]]:
    """Layers and names of their switches that a capture takes for numbers, as they stand.

    A module that observes and quantizes in one operator, whose translation has the switches, keeps
    them where it observes.
    """
    return [
        (layer, name)
        for _, layer in _layers(module)
        if not (_is_fused(layer) and int(layer.observer_enabled[0]))
        for name in SWITCHES
        if name in dict(layer.named_buffers(recurse=False))
    ]


def quantizing_only(module: torch.nn.Module) -> list[Any]:
    """Layers that observe and quantize in one operator, and do not observe now."""
    return [
        layer
        for _, layer in _layers(module)
        if _is_fused(layer) and not int(layer.observer_enabled[0])
    ]


def quantize_only(forward: Any) -> Any:
    """``forward`` of such a layer without the operator that observes."""
    quantization: Any = sys.modules[_MODULE]
    return functools.partial(quantization.FakeQuantize.forward, forward.__self__)


def _is_fused(layer: Any) -> bool:
    quantization: Any = sys.modules[_MODULE]
    return isinstance(layer, quantization.FusedMovingAvgObsFakeQuantize)
