"""Gives dimensions that the example's size may have fixed another size.

Examples nearly always have batch 1, and models have shortcuts for one element. The same happens if
the example has a size that the model stores, or two dimensions that are equal by chance. The
capture is made again with inputs of other sizes.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

import torch
from torch.fx.experimental.symbolic_shapes import statically_known_true

from onnx_aot.capture.inputs import Inputs
from onnx_aot.capture.sizes.captured_dimensions import conditions_by_dimension, find_equal, sizes_of
from onnx_aot.capture.sizes.dimension_requests import DynamicShapes, RequestedDim, evaluate
from onnx_aot.capture.sizes.size_branches import Branch
from onnx_aot.capture.sizes.specialization import Finding
from onnx_aot.capture.sizes.stored_bounds import StoredBound
from onnx_aot.capture.sizes.torch_constraints import find_named
from onnx_aot.dimensions.conditions import holds
from onnx_aot.dimensions.resize import resize_leaf
from onnx_aot.torch_compat import (
    constraint_sentences,
    example_size,
    is_relation,
    pytree,
    size_conditions,
)

__all__ = [
    "Root",
    "describe_other_inputs",
    "find_coincidences",
    "find_limited_ones",
    "find_ones_left_to_model",
    "find_root",
    "make_other_inputs",
    "refused_dimensions",
    "resize_inputs",
]

Root = str | tuple[int, int | None]
"""A name, which all dimensions that have it share, or the leaf and axis of an unnamed dimension."""

LARGEST = 1 << 12
"""Sizes up to this are tried for the root of a dimension such as ``2*n``."""


LARGER = range(2, 66)
"""Sizes that are tried for a dimension of size 1."""


def find_coincidences(
    program: torch.export.ExportedProgram, requested: DynamicShapes, fixed: Sequence[Finding]
) -> list[RequestedDim]:
    """Returns the dimensions that the example's size may have fixed.

    These are the fixed ones, those of size 1 that the capture limits to 1, and those that are equal
    to one of another name.
    """
    found = [finding.dim for finding in fixed] + list(find_equal(program, requested))
    return found + list(_find_limited_to_one(program, requested))


def _find_limited_to_one(
    program: torch.export.ExportedProgram, requested: DynamicShapes
) -> Iterator[RequestedDim]:
    """Yields dimensions of size 1 for which the capture holds no larger sizes than 1."""
    conditions = conditions_by_dimension(requested, size_conditions(program))
    for dim, size in sizes_of(program, requested):
        if dim.may_be_static or dim.limits[1] <= 1 or example_size(size) != 1:
            continue
        for entry in conditions.get(dim, ()):
            if all(holds(entry.on_n, {"n": n}) is False for n in LARGER):
                yield dim
                break


def refused_dimensions(
    error: Exception, requested: DynamicShapes, inputs: Inputs
) -> list[RequestedDim]:
    """Returns the dimensions that torch refuses to make dynamic, and those of size 1.

    If it refuses them because they are equal, the first one keeps its size. Without a program it is
    not known if the capture limits dimensions of size 1 to 1, as that of an attention block may.
    """
    found: list[RequestedDim] = []
    for sentence in constraint_sentences(error):
        dims = find_named(sentence, requested)
        found += dims[1:] if is_relation(sentence) else dims
    leaves = pytree.tree_leaves((inputs.args, inputs.kwargs))
    ones = [
        dim
        for dim in requested.requested
        if dim.axis is not None and not dim.may_be_static and dim.limits[1] > 1
        if _size_of(leaves[dim.leaf], dim.axis) == 1
    ]
    return [*found, *ones] if found else []


def find_ones_left_to_model(requested: DynamicShapes, inputs: Inputs) -> list[RequestedDim]:
    """Returns the dimensions of size 1 that may be static, such as those with ``Dim.AUTO``."""
    leaves = pytree.tree_leaves((inputs.args, inputs.kwargs))
    return [
        dim
        for dim in requested.requested
        if dim.axis is not None and dim.may_be_static
        if _size_of(leaves[dim.leaf], dim.axis) == 1
    ]


def find_limited_ones(
    program: torch.export.ExportedProgram, requested: DynamicShapes
) -> list[RequestedDim]:
    """Returns the dimensions of size 1 that may be static and that the capture limits to 1.

    What was captured before the limit was known, such as a squeeze, may not hold for size 1.
    """
    return [
        dim
        for dim, size in sizes_of(program, requested)
        if dim.may_be_static and isinstance(size, torch.SymInt) and statically_known_true(size == 1)
    ]


def make_other_inputs(
    inputs: Inputs,
    requested: DynamicShapes,
    dims: Iterable[RequestedDim],
    fixed: Sequence[Branch | Finding | StoredBound] = (),
) -> Inputs | None:
    """Makes inputs in which some dimensions have another size; None if there is no such size.

    Dimensions of one name change together, those named after an expression follow. Sizes above 1
    are doubled, which keeps what divides them, and size 1 becomes 2; a size that another dimension
    has is skipped. If the doubled size takes the same branch of the user's code, the next size does
    that does not. Elements along an axis are repeated.

    Args:
        inputs: The example inputs.
        requested: The request.
        dims: The dimensions.
        fixed: The findings on them, and the bounds that they keep.
    """
    roots = _find_roots(inputs, requested)
    leaves = pytree.tree_leaves((inputs.args, inputs.kwargs))
    taken = set(roots.values()) | {size for leaf in leaves for size in getattr(leaf, "shape", ())}
    others: dict[Root, int] = {}
    for root in dict.fromkeys(map(find_root, dims)):
        if root in roots:
            same = [f.takes for f in fixed if f.takes is not None and find_root(f.dim) == root]
            size = _choose_size(root, roots[root], requested, taken, same)
            if size is None:
                return None
            others[root] = size
            taken.add(size)
    return _make_inputs(inputs, requested, {**roots, **others}) if others else None


def resize_inputs(
    inputs: Inputs, requested: DynamicShapes, sizes: Mapping[RequestedDim, int]
) -> Inputs:
    """Makes inputs in which some dimensions, and those of the same name, have these sizes."""
    roots = _find_roots(inputs, requested)
    changed = {find_root(dim): size for dim, size in sizes.items() if find_root(dim) in roots}
    return _make_inputs(inputs, requested, {**roots, **changed})


def _make_inputs(inputs: Inputs, requested: DynamicShapes, roots: Mapping[Root, int]) -> Inputs:
    leaves, structure = pytree.tree_flatten((inputs.args, inputs.kwargs))
    named = {name: size for name, size in roots.items() if isinstance(name, str)}
    for dim in requested.requested:
        size = evaluate(_text(dim), named) if _is_expression(dim) else roots.get(find_root(dim))
        if size is not None:
            leaves[dim.leaf] = _resize(leaves[dim.leaf], dim.axis, int(size))
    args, kwargs = pytree.tree_unflatten(leaves, structure)
    return Inputs(args, kwargs, inputs.separated)


def describe_other_inputs(
    inputs: Inputs, others: Inputs, requested: DynamicShapes
) -> tuple[str, ...]:
    """Returns an entry such as ``x, axis 0 ('batch'): 2 instead of 1`` per changed dimension."""
    found = []
    leaves, changed = (pytree.tree_leaves((given.args, given.kwargs)) for given in (inputs, others))
    for dim in requested.requested:
        size, other = (_size_of(held[dim.leaf], dim.axis) for held in (leaves, changed))
        if size != other:
            found.append(f"{dim}: {other} instead of {size}")
    return tuple(found)


def _size_of(leaf: Any, axis: int | None) -> int:
    return int(leaf if axis is None else leaf.shape[axis])


def _resize(leaf: Any, axis: int | None, size: int) -> Any:
    if axis is None:
        return size
    shape = tuple(leaf.shape)
    return resize_leaf(leaf, (*shape[:axis], size, *shape[axis + 1 :]))


def _text(dim: RequestedDim) -> str:
    """A derived ``Dim`` or a name as written, such as ``2*n`` or ``past + seq``."""
    return str(getattr(dim.given, "__name__", dim.given))


def _is_expression(dim: RequestedDim) -> bool:
    return dim.name is not None and (dim.derived or not dim.name.isidentifier())


def find_root(dim: RequestedDim) -> Root:
    """Returns what dimensions that change together share."""
    return (dim.leaf, dim.axis) if dim.name is None else dim.name


def _find_roots(inputs: Inputs, requested: DynamicShapes) -> dict[Root, int]:
    """Sizes by root. The root of a derived dimension may have no dimension of its own."""
    leaves = pytree.tree_leaves((inputs.args, inputs.kwargs))
    sizes = {dim: _size_of(leaves[dim.leaf], dim.axis) for dim in requested.requested}
    roots = {find_root(dim): size for dim, size in sizes.items() if not _is_expression(dim)}
    for dim, size in sizes.items():
        if dim.derived and dim.name is not None and dim.name not in roots:
            name, text = dim.name, _text(dim)
            found = (n for n in range(LARGEST) if evaluate(text, {name: n}) == size)
            value = next(found, None)
            if value is not None:
                roots[name] = value
    return roots


def _choose_size(
    root: Root,
    size: int,
    requested: DynamicShapes,
    taken: set[int],
    same: Sequence[Callable[[int], bool]],
) -> int | None:
    """Another size within the limits of all dimensions with this root, if possible a new one.

    It takes another branch than those that ``same`` tells.
    """
    limits = [
        dim.limits for dim in requested.requested if find_root(dim) == root and not dim.derived
    ]
    smallest = max((low for low, _ in limits), default=0)
    largest = min((high for _, high in limits), default=math.inf)
    unit = max(size, 1)
    multiples = [factor * unit for factor in range(2, 9)]
    parts = [size + size // part for part in (2, 4, 8, 16, 32) if size % part == 0]
    candidates = (*multiples, size // 2, *parts * bool(same), size + 1, size - 1)
    allowed = [n for n in candidates if n > 1 and n != size and smallest <= n <= largest]
    other = [n for n in allowed if not any(takes(n) for takes in same)]
    return next((n for n in other if n not in taken), other[0] if other else None)
