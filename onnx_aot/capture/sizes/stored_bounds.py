"""Finds bounds of sizes that a model keeps with a table that it fills when it is called.

``if length <= self.cached_length: return self.cached[:length]`` limits a capture to the length of
an earlier call, although the other branch, which computes the table, is right for every length. The
model is captured again with a size beyond the bound, and compared below it.
"""

from __future__ import annotations

import bisect
import functools
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

import torch

from onnx_aot.capture.sizes.dimension_requests import DynamicShapes, RequestedDim
from onnx_aot.capture.sizes.guards import Decision
from onnx_aot.capture.sizes.size_branches import raises_error

__all__ = ["FARTHEST", "StoredBound", "find_stored_bounds"]

FARTHEST = 8
"""Bounds up to this many times the example's size are looked for; see ``make_other_inputs``."""


class StoredBound(NamedTuple):
    """A bound that the size of a dimension in the capture keeps.

    Attributes:
        dim: The dimension.
        takes: True if a size keeps the bound.
    """

    dim: RequestedDim
    takes: Callable[[int], bool]


def find_stored_bounds(
    requested: DynamicShapes, decisions: Sequence[Decision]
) -> Iterator[StoredBound]:
    """Yields the upper bounds by which the user's code chooses, and that its object keeps.

    An object keeps a bound if it has a tensor with this size, or a number, as an attribute or
    buffer.

    Args:
        requested: The requested dynamic dimensions.
        decisions: The decisions of the capture.
    """
    for decision in decisions:
        place = decision.location
        if decision.kind != "guard" or not decision.chooses or place is None:
            continue
        if len(decision.symbols) != 1 or raises_error(place):
            continue
        ((symbol, (sources, example)),) = decision.symbols.items()
        if not example:
            continue
        takes = functools.partial(_is_kept, decision, symbol)
        bound = _find_bound(takes, example)
        if bound is None or not _keeps_number(place.owner, bound):
            continue
        for dim in filter(None, map(requested.at, sources)):
            if not dim.may_be_static and not dim.derived and dim.limits[1] > bound:
                yield StoredBound(dim, takes)


def _is_kept(decision: Decision, symbol: str, size: int) -> bool:
    return decision.holds({symbol: size}) is not False


def _find_bound(takes: Callable[[int], bool], example: int) -> int | None:
    """The largest size that fulfils a condition; None if it is far, or smaller ones do not."""
    sizes = range(example, FARTHEST * example + 1)
    if takes(sizes[-1]) or not all(map(takes, {1, (example + 1) // 2, example})):
        return None
    return example - 1 + bisect.bisect_left(sizes, True, key=lambda size: not takes(size))


def _keeps_number(owner: Any, number: int) -> bool:
    held = list(getattr(owner, "__dict__", {}).values())
    if isinstance(owner, torch.nn.Module):
        held += owner.buffers(recurse=False)
    return any(
        number in value.shape if isinstance(value, torch.Tensor) else _is_number(value, number)
        for value in held
    )


def _is_number(value: Any, number: int) -> bool:
    return type(value) is int and value == number
