"""Tells which calls of operators draw random numbers."""

from __future__ import annotations

import torch
import torch.fx

from onnx_aot.torch_compat.lookup import OpOverload
from onnx_aot.torch_compat.overloads import schema_of

__all__ = ["draws_random_numbers"]

_FLAGS = ("train", "training")
_PROBABILITIES = ("p", "dropout", "dropout_p")


def draws_random_numbers(node: torch.fx.Node) -> bool:
    """True if an operator draws random numbers in this call.

    Not every operator with dropout is tagged as random, and in those that are tagged dropout may be
    off.
    """
    target = node.target
    if not isinstance(target, OpOverload):
        return False
    given = {}
    for position, argument in enumerate(schema_of(target).arguments):
        default = argument.default_value if argument.has_default_value() else None
        value = node.args[position] if position < len(node.args) else default
        given[argument.name] = node.kwargs.get(argument.name, value)
    name = schema_of(target).name
    may = torch.Tag.nondeterministic_seeded in target.tags or (
        "dropout" in name or "rrelu" in name or "dropout_p" in given
    )
    if not may or any(given.get(flag) is False for flag in _FLAGS):
        return False
    probabilities = [given[name] for name in _PROBABILITIES if name in given]
    return not any(isinstance(p, (int, float)) and p == 0 for p in probabilities)
