"""Recognizes layers for quantization that most captures cannot follow."""

from __future__ import annotations

import functools
import sys
from typing import Any

import torch

__all__ = ["describe_observers", "describe_packed", "quantize_only", "quantizing_only"]

_MODULE = "torch.ao.quantization.fake_quantize"


def _layers(module: torch.nn.Module) -> list[tuple[str, Any]]:
    quantization: Any = sys.modules.get(_MODULE)
    if quantization is None:  # not imported, so no module can be of its classes
        return []
    kind = quantization.FakeQuantizeBase
    return [(name, layer) for name, layer in module.named_modules() if isinstance(layer, kind)]


def describe_observers(module: torch.nn.Module) -> str | None:
    """Advice about layers that still observe their inputs, most of which cannot be captured."""
    names = [name or "the model" for name, layer in _layers(module) if layer.observer_enabled[0]]
    if not names:
        return None
    more = f" and {len(names) - 1} more" if len(names) > 1 else ""
    return (
        f"{names[0]}{more} still observes the range of its input. Call "
        "model.apply(torch.ao.quantization.disable_observer) first, to quantize by what was "
        "observed so far"
    )


def describe_packed(module: torch.nn.Module) -> str | None:
    """Advice about layers that compute with packed integers, which ``torch.export`` refuses."""
    found: dict[str, str] = {}
    for name, layer in module.named_modules():
        if type(layer).__module__.startswith(_PACKED) and name.rpartition(".")[0] not in found:
            found[name] = f"{name or 'the model'}, a quantized {type(layer).__name__},"
    if not found:
        return None
    more = f" and {len(found) - 1} more" if len(found) > 1 else ""
    return (
        f"{next(iter(found.values()))}{more} computes with packed integers, which torch.export "
        "does not capture. Export the model in float and quantize the file, or quantize the model "
        "with torchao.quantization.pt2e, which keeps operators that are exported"
    )


_PACKED = "torch.ao.nn.quantized", "torch.ao.nn.intrinsic.quantized"
"""Modules of these layers."""


def quantizing_only(module: torch.nn.Module) -> list[Any]:
    """Layers that observe and quantize in one operator and currently do not observe."""
    return [
        layer
        for _, layer in _layers(module)
        if _is_fused(layer) and not int(layer.observer_enabled[0])
    ]


def quantize_only(forward: Any) -> Any:
    """``forward`` of such a layer, without the operator that observes."""
    quantization: Any = sys.modules[_MODULE]
    return functools.partial(quantization.FakeQuantize.forward, forward.__self__)


def _is_fused(layer: Any) -> bool:
    quantization: Any = sys.modules[_MODULE]
    return isinstance(layer, quantization.FusedMovingAvgObsFakeQuantize)
