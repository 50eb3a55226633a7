"""Tells the capture about sizes that follow from others, as a name such as ``past + seq`` says."""

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

    ``attention_mask.shape[1] > past + seq`` then has a known answer and adds no guard.

    Args:
        forward: The function that is traced.
        requested: The requested dimensions with their names.
    """
    plain = plain_names(requested.requested)
    ones = dict.fromkeys(plain, 1)
    sums = [
        (dim.leaf, dim.axis, dim.name)
        for dim in requested.requested
        if dim.axis is not None and dim.name is not None and not dim.derived
        if evaluate(dim.name, ones) is not None
    ]
    if not sums:
        return forward
    named = {d.name: (d.leaf, d.axis) for d in requested.requested if d.name in plain}

    @functools.wraps(forward)
    def with_sizes(*args: Any, **kwargs: Any) -> Any:
        leaves = pytree.tree_leaves((args, kwargs))
        sizes = {
            str(name): leaves[leaf] if axis is None else leaves[leaf].shape[axis]
            for name, (leaf, axis) in named.items()
        }
        for leaf, axis, name in sums:
            size = leaves[leaf].shape[axis]
            torch._check(size == evaluate(name, sizes))  # type: ignore[no-untyped-call]
        return forward(*args, **kwargs)

    with_sizes.__signature__ = inspect.signature(forward)  # type: ignore[attr-defined]
    return with_sizes
