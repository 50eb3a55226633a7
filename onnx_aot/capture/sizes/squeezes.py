"""Finds squeezes of dynamic dimensions, which change a tensor's rank if the size is 1."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping, Sequence
from typing import Any

import torch
import torch.fx
from torch.fx.experimental.symbolic_shapes import statically_known_true

from onnx_aot.capture.sizes.captured_dimensions import sizes_of
from onnx_aot.capture.sizes.dimension_requests import DynamicShapes, RequestedDim
from onnx_aot.capture.sizes.guards import Decision, Location
from onnx_aot.capture.sizes.size_branches import find_small_branches
from onnx_aot.metadata.provenance import location
from onnx_aot.torch_compat import aten, example_size, symbolic_expression

__all__ = [
    "describe_squeezed",
    "dynamic_squeezes",
    "find_squeezed_ones",
    "may_change_rank",
]

_ITSELF = (
    "squeezed, which removes it at the example's size 1 and at no other",
    "squeeze only dimensions that are always 1, as in x.squeeze(1); or give an example where "
    "{size} is not 1, and exclude 1 with torch.export.Dim(name, min=2)",
)
_PART = (
    "part of a size that is squeezed, which removes an axis at the example's {size} of {example} "
    "and not at others",
    "squeeze only dimensions that are always 1; or give an example with another {size}",
)

OVERLOADS = {
    overload
    for packet in (aten.squeeze, aten.squeeze_, aten.squeeze_copy)
    for overload in (packet.default, packet.dim, packet.dims)
}

# A covariance matrix is squeezed, which drops both axes if there is one variable.
COVARIANCES = {aten.cov.default, aten.corrcoef.default}


def dynamic_squeezes(
    program: torch.export.ExportedProgram,
    names: Mapping[str, str],
    requested: DynamicShapes,
    decisions: Sequence[Decision] = (),
) -> list[str]:
    """Describes the squeezed dimensions that may or may not be 1 at run time, with their lines.

    The values of an ONNX model have fixed ranks. The capture assumes that a dynamic dimension is
    not 1, without a condition that says so.

    Args:
        program: The captured program.
        names: Names of its symbols.
        requested: The request.
        decisions: The decisions of the capture. After ``if n > 1:``, the capture takes ``n`` to be
            above 1, and the model runs with 1 all the same.
    """
    small = {branch.dim for branch in find_small_branches(requested, decisions, "")}
    symbols = {str(size) for dim, size in sizes_of(program, requested) if dim in small}
    found: dict[str, None] = {}
    for node in program.graph.nodes:
        sizes = _axes_that_may_be_one(node, symbols)
        if sizes:
            shown = ", ".join(f"axis {axis} ({_rename_sizes(size, names)})" for axis, size in sizes)
            where = location(node)
            found[shown + (f" at {where}" if where else "")] = None
    return list(found)


def find_squeezed_ones(
    program: torch.export.ExportedProgram, requested: DynamicShapes, left_to_model: bool = True
) -> list[RequestedDim]:
    """Returns the dynamic dimensions from which the model computes a size 1 that it squeezes.

    Mostly the dimension is itself 1 in the example; ``x[1:].squeeze(0)`` does so at size 2. The
    program has another rank than the model for the example itself.

    Args:
        program: The captured program.
        requested: The request.
        left_to_model: Whether dimensions that may be static, such as those with ``Dim.AUTO``, are
            returned; otherwise all others.
    """
    squeezed = {
        symbol
        for node in program.graph.nodes
        for _, size in _axes_that_may_be_one(node)
        if example_size(size) == 1
        for symbol in _symbols_of(size)  # of n*m too
    }
    if not squeezed:
        return []
    found: dict[str, list[RequestedDim]] = {}
    for dim, size in sizes_of(program, requested):
        if squeezed & _symbols_of(size):
            found.setdefault(str(size), []).append(dim)
    return [
        dim
        for dims in found.values()
        if all(dim.may_be_static for dim in dims) == left_to_model
        for dim in dims
    ]


def describe_squeezed(
    program: torch.export.ExportedProgram, requested: DynamicShapes
) -> dict[RequestedDim, tuple[str, str, tuple[Location, ...]]]:
    """Describes those of ``find_squeezed_ones`` that may not be static, with fix and line each."""
    sizes = dict(sizes_of(program, requested))
    found: dict[RequestedDim, tuple[str, str, tuple[Location, ...]]] = {}
    for dim in find_squeezed_ones(program, requested, left_to_model=False):
        example = example_size(sizes[dim])
        what, fix = _ITSELF if example == 1 else _PART
        line = _find_squeeze(program, _symbols_of(sizes[dim]))
        lines = () if line is None else (line,)
        found[dim] = (what.format(size=dim.size, example=example), fix.format(size=dim.size), lines)
    return found


def _find_squeeze(program: torch.export.ExportedProgram, symbols: set[object]) -> Location | None:
    """The first line that squeezes a size computed from one of these symbols."""
    for node in program.graph.nodes:
        for _, size in _axes_that_may_be_one(node):
            found = location(node) if symbols & _symbols_of(size) else None
            if found is not None:
                return Location(found.file, found.line, found.function)
    return None


def may_change_rank(node: torch.fx.Node) -> bool:
    """True if a call squeezes axes of a size that may or may not be 1 at run time."""
    return bool(_axes_that_may_be_one(node))


def _axes_that_may_be_one(
    node: torch.fx.Node, small: Collection[str] = ()
) -> list[tuple[int, torch.SymInt]]:
    """Axes that a call squeezes if their size is 1 at run time, with the sizes.

    Args:
        node: The call.
        small: Symbols that may be 1 although the capture takes them to be larger.
    """
    if node.target not in OVERLOADS | COVARIANCES:
        return []
    squeezed: Any = node.args[0]
    shape = squeezed.meta["val"].shape
    axes = _axes(node, len(shape))
    return [(axis, shape[axis]) for axis in axes if _may_be_one(shape[axis], small)]


def _axes(node: torch.fx.Node, rank: int) -> list[int]:
    if not rank:
        return []
    if node.target in COVARIANCES:
        return [0] if rank == 2 else []
    given: Any = node.args[1] if len(node.args) > 1 else node.kwargs.get("dim")
    if given is None:
        return list(range(rank))
    return [int(axis) % rank for axis in (given if isinstance(given, Sequence) else [given])]


def _may_be_one(size: int | torch.SymInt, small: Collection[str]) -> bool:
    if not isinstance(size, torch.SymInt) or statically_known_true(size == 1):
        return False
    if not statically_known_true(size != 1):
        return True
    expression = symbolic_expression(size)
    ones = {symbol: 1 for symbol in expression.free_symbols if str(symbol) in small}
    return bool(ones) and bool(expression.xreplace(ones) == 1)


def _symbols_of(size: int | torch.SymInt) -> set[object]:
    return set(getattr(symbolic_expression(size), "free_symbols", ()))


def _rename_sizes(size: object, names: Mapping[str, str]) -> str:
    return re.sub(r"\w+", lambda word: names.get(word[0], word[0]), str(size))
