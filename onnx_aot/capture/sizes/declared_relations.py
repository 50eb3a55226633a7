"""Tells the capture which sizes names such as ``seq`` and ``past + seq`` say are equal."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from typing import Any

import torch

from onnx_aot.capture.sizes.dimension_requests import DynamicShapes, evaluate, plain_names
from onnx_aot.torch_compat import pytree

__all__ = ["with_promised_sizes"]


def with_promised_sizes(
    forward: Callable[..., Any], requested: DynamicShapes
) -> Callable[..., Any]:
    """Wraps ``forward`` so that relations between sizes are asserted before it runs.

    ``attention_mask.shape[1] > past + seq`` then has a known answer and adds no guard. Dimensions
    of one name are equal, so none of them becomes what an operator computes from another one.

    Args:
        forward: The function that is traced.
        requested: The requested dimensions with their names.
    """
    plain = plain_names(requested.requested)
    named: dict[str, tuple[int, int | None]] = {}
    equal = []
    for dim in requested.requested:
        if dim.name in plain and not dim.derived:
            place = (dim.leaf, dim.axis)
            first = named.setdefault(str(dim.name), place)
            equal += [(first, place)] if first != place else []
    ones = dict.fromkeys(plain, 1)
    sums = [
        (dim.leaf, dim.axis, dim.name)
        for dim in requested.requested
        if dim.axis is not None and dim.name is not None and not dim.derived
        if evaluate(dim.name, ones) is not None
    ]
    if not sums and not equal:
        return forward

    @functools.wraps(forward)
    def with_sizes(*args: Any, **kwargs: Any) -> Any:
        leaves = pytree.tree_leaves((args, kwargs))

        def size_at(place: tuple[int, int | None]) -> Any:
            leaf, axis = place
            return leaves[leaf] if axis is None else leaves[leaf].shape[axis]

        for places in equal:
            one, other = map(size_at, places)
            if isinstance(one, torch.SymInt) and isinstance(other, torch.SymInt):
                torch._check(one == other)  # type: ignore[no-untyped-call]
        sizes = {name: size_at(place) for name, place in named.items()}
        for leaf, axis, name in sums:
            size = leaves[leaf].shape[axis]
            torch._check(size == evaluate(name, sizes))  # type: ignore[no-untyped-call]
        return forward(*args, **kwargs)

    with_sizes.__signature__ = inspect.signature(forward)  # type: ignore[attr-defined]
    return with_sizes
