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


def rolled(
    count: Any,
    body: Any,
    carried: Sequence[Any],
    inputs: Sequence[Any],
    starts: Sequence[Any] = (),
    joints: Sequence[tuple[int, bool]] = (),
) -> list[Any]:
    """Runs ``*carried, *made, *pieces = body(step, *carried, *inputs)`` for each step.

    Args:
        count: The number of steps.
        body: The graph of a step.
        carried: Values that a step hands on to the next.
        inputs: Values that are the same in every step.
        starts: The piece before that of the first step, or None, for each of the pieces.
        joints: For each of them the axis along which the pieces of all steps are joined, and
            whether that of the last step comes first.

    Returns:
        The last carried values, then the values that the steps made, stacked along a new first
        axis, then the joined pieces.
    """
    values: list[Any] = list(carried)
    made: list[Sequence[Any]] = []
    pieces: list[list[Any]] = [[] if start is None else [start] for start in starts]
    for step in range(int(count)):
        results = body(step, *values, *inputs)
        values = list(results[: len(values)])
        made.append(results[len(values) : len(results) - len(pieces)])
        for parts, piece in zip(pieces, results[len(results) - len(pieces) :], strict=True):
            parts.append(piece)
    joined = [
        torch.cat(parts[::-1] if backwards else parts, axis)
        for parts, (axis, backwards) in zip(pieces, joints, strict=True)
    ]
    if made:
        return [*values, *map(torch.stack, zip(*made, strict=True)), *joined]
    sizes = _bind_sizes(body, [0, *values, *inputs])
    recorded = _find_results(body)
    recorded = recorded[len(values) : len(recorded) - len(pieces)]
    return [*values, *(_make_none(each, sizes) for each in recorded), *joined]


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
