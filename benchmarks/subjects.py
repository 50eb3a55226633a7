"""Finds the models that the benchmarks measure by name."""

from __future__ import annotations

from typing import Any

__all__ = ["LAYERS", "QUICK", "case_of", "catalogue", "llama_name"]

LAYERS = (4, 8, 16, 32, 64, 128, 256)
QUICK = ("linear_relu", "mlp", "resnet18", "llama")


def catalogue() -> list[str]:
    """Names of all models, the smallest first."""
    from benchmarks.models import BENCHMARKED

    return ["linear_relu", *BENCHMARKED]


def llama_name(layers: int) -> str:
    """Name of the Llama with that many layers."""
    return f"llama_{layers}_layers"


def case_of(name: str) -> Any:
    """Returns the row of a model.

    Raises:
        RuntimeError: There is no model of that name.
    """
    from benchmarks.models import BENCHMARKED
    from benchmarks.models.classic import LINEAR_RELU
    from benchmarks.models.transformer import llama

    if name == "linear_relu":
        return LINEAR_RELU
    if name.endswith("_layers"):
        return llama(int(name.split("_")[1]))
    if name not in BENCHMARKED:
        raise RuntimeError(f"no model {name!r}; there are {', '.join(catalogue())}")
    return BENCHMARKED[name]
