"""Defines the target of FX nodes for Python loops that became one loop.

Calls are translated in ``onnx_aot/ops/control``. The function itself runs only where a captured
program is compared with its model.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
import torch.fx

__all__ = ["rolled"]


def rolled(count: Any, body: Any, carried: Sequence[Any], inputs: Sequence[Any]) -> list[Any]:
    """Runs ``*carried, *made = body(step, *carried, *inputs)`` for each step.

    Returns:
        The last carried values, then the values that the steps made, stacked along a new first
        axis.
    """
    values: list[Any] = list(carried)
    made: list[Sequence[Any]] = []
    for step in range(int(count)):
        results = body(step, *values, *inputs)
        values = list(results[: len(values)])
        made.append(results[len(values) :])
    if made:
        return [*values, *map(torch.stack, zip(*made, strict=True))]
    sizes = _bind_sizes(body, [0, *values, *inputs])
    return [*values, *(_make_none(each, sizes) for each in _find_results(body)[len(values) :])]


def _find_results(body: torch.fx.GraphModule) -> list[Any]:
    """Recorded values of a body's results."""
    returned: Any = next(iter(reversed(body.graph.nodes))).args[0]
    return [node.meta["val"] for node in returned]


def _bind_sizes(body: torch.fx.GraphModule, arguments: Sequence[Any]) -> dict[str, int]:
    """Maps the recorded sizes of a body's parameters to those of its arguments."""
    parameters = [node.meta["val"] for node in body.graph.nodes if node.op == "placeholder"]
    pairs = zip(parameters, arguments, strict=True)
    return {
        str(size): given
        for recorded, argument in pairs
        if isinstance(recorded, torch.Tensor)
        for size, given in zip(recorded.shape, argument.shape, strict=True)
    }


def _make_none(recorded: torch.Tensor, sizes: dict[str, int]) -> torch.Tensor:
    """No values like a recorded one. Sizes that are not known are 0."""
    shape = [size if type(size) is int else sizes.get(str(size), 0) for size in recorded.shape]
    return torch.empty([0, *shape], dtype=recorded.dtype)
