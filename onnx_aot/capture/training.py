"""Finds operators of a captured graph in training mode, and keeps the modes of modules."""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Iterator

import torch
import torch.fx

from onnx_aot.torch_compat import OpOverload, aten, schema_of

__all__ = ["modes_kept", "training_operators"]

# Arguments that switch torch's operators to training mode.
FLAGS = frozenset({"train", "training", "use_input_stats"})

# Without this argument a normalization uses the batch's statistics in both modes.
STATISTICS = "running_mean"

# Operators that only drop elements behave alike in both modes if one of these arguments is 0.
PROBABILITIES = ("p", "dropout")

# Operators whose flag does not depend on the module's mode alone.
ALWAYS = frozenset({aten.instance_norm.default})


@contextlib.contextmanager
def modes_kept(module: torch.nn.Module) -> Iterator[None]:
    """Sets the mode of each part of a module back to what it was, training or evaluation."""
    modes = [(part, part.training) for part in module.modules()]
    try:
        yield
    finally:
        for part, mode in modes:
            part.training = mode


@functools.cache
def _arguments(target: OpOverload) -> tuple[str, ...]:
    return tuple(argument.name for argument in schema_of(target).arguments)


def training_operators(module: torch.fx.GraphModule) -> list[str]:
    """Names of the operators that are called with a training flag set, without repetition.

    Includes operators in branches, loop bodies and regions.
    """
    found: dict[str, None] = {}
    graphs = [m.graph for m in module.modules() if isinstance(m, torch.fx.GraphModule)]
    for node in (node for graph in graphs for node in graph.nodes):
        target = node.target
        if not isinstance(target, OpOverload) or target in ALWAYS:
            continue
        names = _arguments(target)
        if FLAGS.isdisjoint(names):
            continue
        given = dict(zip(names, node.args, strict=False)) | node.kwargs
        if STATISTICS in names and given.get(STATISTICS) is None:
            continue
        if any(given.get(name) == 0.0 for name in PROBABILITIES):
            continue
        if any(given.get(name) is True for name in FLAGS):
            found[str(target.overloadpacket)] = None
    return list(found)
