"""Fake quantization: whether it observes and quantizes is decided when a model is captured.

Torch keeps the two switches in tensors, which a capture has no values of.
"""

from __future__ import annotations

import functools
import sys
from typing import Any

import torch

__all__ = ["fix_switches", "observing"]

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


def fix_switches(module: torch.nn.Module) -> None:
    """Makes the switches of fake quantization numbers, as they stand; the caller restores them.

    A module that observes and quantizes in one operator, whose translation has the switches, keeps
    them where it observes.
    """
    quantization: Any = sys.modules.get(_MODULE)
    for _, layer in _layers(module):
        switches = [int(getattr(layer, name)[0]) for name in SWITCHES]
        if isinstance(layer, quantization.FusedMovingAvgObsFakeQuantize):
            if switches[0]:
                continue
            layer.forward = functools.partial(quantization.FakeQuantize.forward, layer)
        for name, switch in zip(SWITCHES, switches, strict=True):
            layer._buffers.pop(name)
            layer.__dict__[name] = [switch]
