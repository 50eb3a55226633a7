"""Computes shapes and strides of views directly while a model is traced.

To view ``[b, s, 768]`` as ``[b, s, 12, 64]``, torch compares sums and products of symbolic sizes
for a millisecond. Each rule here covers the plain case. For other cases it returns None, and torch
computes the view or raises.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Sequence
from typing import Any

import torch

from onnx_aot.torch_compat import Results, ShapeRule, aten, symbolic_expression

__all__ = ["VIEW_RULES", "same_size"]

Tensor = torch.Tensor


def _permute(new: Results, self: Tensor, dims: Sequence[int]) -> Tensor | None:
    rank = self.dim()
    axes = [axis % rank for axis in dims if -rank <= axis < rank]
    if len(dims) != rank or sorted(axes) != list(range(rank)):
        return None
    sizes, strides = self.shape, self.stride()
    return new.view(self, [sizes[axis] for axis in axes], [strides[axis] for axis in axes])


def _transpose(new: Results, self: Tensor, dim0: int, dim1: int) -> Tensor | None:
    rank = self.dim()
    if not (-rank <= dim0 < rank and -rank <= dim1 < rank):
        return None
    axes = list(range(rank))
    axes[dim0], axes[dim1] = axes[dim1], axes[dim0]
    return _permute(new, self, axes)


def _t(new: Results, self: Tensor) -> Tensor | None:
    return _permute(new, self, (1, 0)) if self.dim() == 2 else None


def _unsqueeze(new: Results, self: Tensor, dim: int) -> Tensor | None:
    rank = self.dim()
    if not -rank - 1 <= dim <= rank:
        return None
    axis = dim % (rank + 1)
    sizes, strides = [*self.shape], [*self.stride()]
    strides.insert(axis, 1 if axis == rank else sizes[axis] * strides[axis])
    sizes.insert(axis, 1)
    return new.view(self, sizes, strides)


def _squeeze(new: Results, self: Tensor, dim: int) -> Tensor | None:
    rank = self.dim()
    if not -rank <= dim < rank or type(self.shape[dim]) is not int:
        return None
    sizes, strides = [*self.shape], [*self.stride()]
    if sizes[dim] == 1:
        del sizes[dim], strides[dim]
    return new.view(self, sizes, strides)


def _select(new: Results, self: Tensor, dim: int, index: Any) -> Tensor | None:
    rank = self.dim()
    if not -rank <= dim < rank:
        return None
    sizes, strides = [*self.shape], [*self.stride()]
    size = sizes[dim]
    if type(size) is not int or type(index) is not int or not -size <= index < size:
        return None
    offset = self.storage_offset() + index % size * strides[dim]
    del sizes[dim], strides[dim]
    return new.view(self, sizes, strides, offset)


def _slice(
    new: Results, self: Tensor, dim: int = 0, start: Any = None, end: Any = None, step: int = 1
) -> Tensor | None:
    rank = self.dim()
    first = 0 if start is None else start
    if not -rank <= dim < rank or type(step) is not int or step < 1:
        return None
    sizes, strides = [*self.shape], [*self.stride()]
    if type(first) is int and first == 0 and step == 1 and _is_last(end):
        return new.view(self, sizes, strides)
    given = (sizes[dim], first, sys.maxsize if end is None else end)
    if any(type(size) is not int for size in given):
        return None
    first, _, _ = slice(*given[1:]).indices(sizes[dim])
    offset = self.storage_offset() + first * strides[dim]
    sizes[dim] = len(range(sizes[dim])[slice(*given[1:], step)])
    strides[dim] *= step
    return new.view(self, sizes, strides, offset)


def _is_last(end: Any) -> bool:
    return end is None or (type(end) is int and end == sys.maxsize)


def _expand(
    new: Results, self: Tensor, size: Sequence[Any], *, implicit: bool = False
) -> Tensor | None:
    """Expands a 1 only to a number: for a symbolic size the stride depends on whether that is 1."""
    if len(size) != self.dim():
        return None
    sizes, strides = [*self.shape], [*self.stride()]
    for axis, wanted in enumerate(size):
        if (type(wanted) is int and wanted == -1) or same_size(wanted, sizes[axis]):
            continue
        if type(wanted) is not int or type(sizes[axis]) is not int or sizes[axis] != 1:
            return None
        sizes[axis], strides[axis] = wanted, 0
    return new.view(self, sizes, strides)


def same_size(size: Any, other: Any) -> bool:
    """True if sizes are the same number or the same expression. Adds no guard."""
    if type(size) is int or type(other) is int:
        return type(size) is type(other) and size == other
    return bool(symbolic_expression(size) == symbolic_expression(other))


# --- view ----------------------------------------------------------------------------------------


def _view(new: Results, self: Tensor, size: Sequence[Any]) -> Tensor | None:
    """Views a tensor if the number of elements agrees for all values of the symbols."""
    sizes = _fill_in_size(self.shape, list(size)) if self.dim() and size else None
    if sizes is None:
        return None
    if not new.is_contiguous(self):
        split = _split(self, sizes)
        return None if split is None else new.view(self, sizes, split)
    strides: list[Any] = [1]
    for one in reversed(sizes[1:]):
        strides.append(strides[-1] * one)
    return new.view(self, sizes, strides[::-1], contiguous=True)


def _split(self: Tensor, sizes: Sequence[Any]) -> list[Any] | None:
    """Strides if each dimension becomes one or several; None if dimensions are merged."""
    strides: list[Any] = []
    axis = len(sizes) - 1
    for size, stride in zip(reversed(self.shape), reversed(self.stride()), strict=True):
        count: Any = 1
        while axis >= 0 and (same_size(sizes[axis], 1) or not same_size(count, size)):
            strides.append(stride * count)
            count = count * sizes[axis]
            axis -= 1
        if not same_size(count, size):
            return None
    return strides[::-1]


def _fill_in_size(shape: Sequence[Any], sizes: list[Any]) -> list[Any] | None:
    """Returns the sizes of a view with -1 filled in; None if that would need a guard."""
    unknown = [axis for axis, one in enumerate(sizes) if type(one) is int and one == -1]
    if len(unknown) > 1:
        return None
    rest = [one for axis, one in enumerate(sizes) if axis not in unknown]
    elements, known = _product(shape), _product(rest)
    if elements is None or known is None:
        return None
    if not unknown:
        return sizes if elements == known else None
    (axis,) = unknown
    quotient = elements / known
    if quotient.is_Integer:
        sizes[axis] = int(quotient)
        return sizes
    there = [one for one in shape if type(one) is not int and symbolic_expression(one) == quotient]
    sizes[axis] = there[0] if there else math.prod(shape) // math.prod(rest)
    return sizes if symbolic_expression(sizes[axis]) == quotient else None


def _product(sizes: Sequence[Any]) -> Any:
    """Product of sizes that are all positive; None if one may be zero or depends on data."""
    import sympy

    total: Any = sympy.Integer(1)
    for size in sizes:
        expression = sympy.Integer(size) if type(size) is int else symbolic_expression(size)
        if expression.is_positive is not True:
            return None
        total = total * expression
    return total


VIEW_RULES: dict[Any, ShapeRule] = {
    aten._unsafe_view.default: _view,
    aten.expand.default: _expand,
    aten.permute.default: _permute,
    aten.select.int: _select,
    aten.slice.Tensor: _slice,
    aten.squeeze.dim: _squeeze,
    aten.t.default: _t,
    aten.transpose.int: _transpose,
    aten.unsqueeze.default: _unsqueeze,
    aten.view.default: _view,
}
