"""Tells which calls of operators draw random numbers."""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Mapping, Sequence
from typing import Any

import torch
import torch.fx

from onnx_aot.torch_compat.lookup import OpOverload, private
from onnx_aot.torch_compat.overloads import schema_of

__all__ = ["call_draws", "draws_random_numbers", "state_of_generator"]

_FLAGS = ("train", "training")
_PROBABILITIES = ("p", "dropout", "dropout_p")


def draws_random_numbers(node: torch.fx.Node) -> bool:
    """True if an operator draws random numbers in this call.

    Not every operator with dropout is tagged as random, and in those that are tagged dropout may be
    off.
    """
    return call_draws(node.target, node.args, node.kwargs)


def call_draws(target: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> bool:
    """True if a call draws random numbers, as ``draws_random_numbers`` says it of a node."""
    if not isinstance(target, OpOverload) or not _may_draw(target):
        return False
    given = {}
    for position, argument in enumerate(schema_of(target).arguments):
        default = argument.default_value if argument.has_default_value() else None
        value = args[position] if position < len(args) else default
        given[argument.name] = kwargs.get(argument.name, value)
    if any(given.get(flag) is False for flag in _FLAGS):
        return False
    probabilities = [given[name] for name in _PROBABILITIES if name in given]
    return not any(isinstance(p, (int, float)) and p == 0 for p in probabilities)


@functools.cache
def _may_draw(target: Any) -> bool:
    schema = schema_of(target)
    return (
        torch.Tag.nondeterministic_seeded in target.tags
        or "dropout" in schema.name
        or "rrelu" in schema.name
        or any(argument.name == "dropout_p" for argument in schema.arguments)
    )


def state_of_generator(generator: torch.Generator) -> bytes:
    """The state of a generator, also while torch makes fake tensors."""
    disabled = private("torch.utils._python_dispatch:_disable_current_modes")
    with disabled() if disabled is not None else contextlib.nullcontext():
        return generator.get_state().numpy().tobytes()
