"""Finds choices by sizes that change no result, by running capture and model on the other side.

``if pad > 0: x = F.pad(x, (0, pad))`` is one if the capture pads: padding by nothing gives the same
as no padding. So is ``if n == 1:`` before a shortcut.
"""

from __future__ import annotations

import dataclasses
import warnings
from collections.abc import Callable, Iterable, Iterator, Sequence

import torch

from onnx_aot.capture.inputs import Inputs
from onnx_aot.capture.sizes.captured_dimensions import sizes_of
from onnx_aot.capture.sizes.dimension_requests import DynamicShapes, RequestedDim
from onnx_aot.capture.sizes.example_check import accepts, has_equal_results, sizes_together
from onnx_aot.capture.sizes.guards import Decision
from onnx_aot.capture.sizes.other_examples import find_root, resize_inputs
from onnx_aot.capture.sizes.size_branches import find_choices, find_dimensions, find_small_sizes
from onnx_aot.capture.time_limits import TimeLimit
from onnx_aot.dimensions.conditions import holds
from onnx_aot.torch_compat import (
    SIZE_TERM,
    has_elements,
    is_symbol,
    pytree,
    set_size_conditions,
    size_conditions,
    symbolic_expression,
)

__all__ = ["settle_choices"]

Agrees = Callable[[RequestedDim, int], bool | None]
"""Tells if model and capture agree at a size of a dimension; None if the model refuses it."""

REACH = 64  # sizes beyond twice the example's that are tried


def settle_choices(
    program: torch.export.ExportedProgram,
    module: torch.nn.Module,
    inputs: Inputs,
    requested: DynamicShapes,
    decisions: Sequence[Decision],
    limit: TimeLimit,
) -> tuple[Decision, ...]:
    """Returns the decisions without choices that change no result.

    Their conditions are taken from the program. Choices that exclude only size 0 or 1 stay, but
    count as questions of operators, which limit no ``Dim``. So do bounds, ``if n > 64:``, since
    torch does not record what else the model asks beyond one.

    Args:
        program: A capture, which the caller owns.
        module: The model.
        inputs: The inputs of the capture.
        requested: The user's request.
        decisions: The decisions of the capture.
        limit: The time that is left.
    """
    longest = 0.0
    known: dict[tuple[RequestedDim, int], bool | None] = {}

    def agrees(dim: RequestedDim, size: int) -> bool | None:
        nonlocal longest
        if (dim, size) not in known:
            promised = hasattr(dim.given, "__name__")
            if limit.is_over if promised else not limit.spares(longest):
                return False
            began = limit.spent
            known[dim, size] = _agrees(program, module, inputs, requested, (dim, size))
            longest = max(longest, limit.spent - began)
        return known[dim, size]

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # torch's on sizes that the user has not given
        choices = [d for d, _ in find_choices(decisions) if d.kind == "guard"]
        idle = {id(d): d for d in choices if _is_idle(program, d, requested, agrees)}
        settled = [d for d in decisions if id(d) not in idle]
        for position, decision in enumerate(settled):
            excluded = list(_find_small(requested, decision))
            if excluded and all(agrees(dim, size) for dim, size in excluded):
                settled[position] = dataclasses.replace(decision, direct=False)
    if idle:
        kept = [
            text
            for text in size_conditions(program)
            if not any(_says(text, decision, requested) for decision in idle.values())
        ]
        set_size_conditions(program, kept)
    return tuple(settled)


def _agrees(
    program: torch.export.ExportedProgram,
    module: torch.nn.Module,
    inputs: Inputs,
    requested: DynamicShapes,
    at: tuple[RequestedDim, int],
) -> bool | None:
    sizes = sizes_together(program, requested, *at)
    if any(other < 0 for other in sizes.values()):
        return None
    varied = _vary(inputs)
    if varied is None:
        return False
    sample = resize_inputs(varied, requested, sizes)
    equal = has_equal_results(program, module, sample)
    return False if equal is None and accepts(module, sample) else equal


def _vary(inputs: Inputs) -> Inputs | None:
    """Gives different values to the elements of tensors whose elements are all equal.

    ``x.flip(0)`` and ``x`` agree for ones. None if it is not known which values a model accepts,
    as for zeros that are indices.
    """
    leaves, structure = pytree.tree_flatten((inputs.args, inputs.kwargs))
    generator = torch.Generator().manual_seed(0)
    for position, leaf in enumerate(leaves):
        if not isinstance(leaf, torch.Tensor):
            continue
        if not has_elements(leaf):
            return None
        is_plain = leaf.layout == torch.strided and not leaf.is_quantized
        if not is_plain or leaf.numel() < 2:
            continue
        first = leaf.reshape(-1)[0]
        if not bool((leaf == first).all()):
            continue
        drawn = torch.rand(leaf.shape, generator=generator)
        if leaf.is_floating_point():
            scale = float(first) or 1.0
            leaves[position] = (scale * (0.5 + drawn / 2)).to(leaf.device, leaf.dtype)
        elif leaf.dtype == torch.bool or bool(first != 0):
            keep = (drawn < 0.5).to(leaf.device)
            leaves[position] = torch.where(keep, leaf, torch.zeros_like(leaf))
        else:
            return None
    args, kwargs = pytree.tree_unflatten(leaves, structure)
    return Inputs(args, kwargs, inputs.separated)


def _is_idle(
    program: torch.export.ExportedProgram,
    decision: Decision,
    requested: DynamicShapes,
    agrees: Agrees,
) -> bool:
    """True if the capture agrees with the model at sizes near the example's that choose otherwise.

    These are the nearest ones below and above, the smallest and the largest one; and 1 and 0,
    unless the model refuses them.
    """
    for dim, example, takes in find_dimensions(decision, requested):
        if example is None:
            return False
        smallest, largest = dim.limits
        last = int(min(largest, 2 * example + REACH))
        others = [n for n in range(max(smallest, 2), last + 1) if not takes(n)]
        if not others:
            return False
        below, above = [n for n in others if n < example], [n for n in others if n > example]
        tried = dict.fromkeys((*above[:1], *below[-1:], *others[:1], *others[-1:]))
        if not _is_in_range(program, requested, dim, tried):
            return False
        if not all(agrees(dim, size) for size in tried):
            return False
        small = [n for n in (1, 0) if smallest <= n <= largest and not takes(n)]
        return all(agrees(dim, size) is not False for size in small)
    return False


def _is_in_range(
    program: torch.export.ExportedProgram,
    requested: DynamicShapes,
    dim: RequestedDim,
    sizes: Iterable[int],
) -> bool:
    """True if a capture has these sizes in the ranges of a dimension and of those named alike."""
    for other, size in sizes_of(program, requested):
        if find_root(other) != find_root(dim) or other.derived:
            continue
        if not isinstance(size, torch.SymInt) or not is_symbol(size):
            return False
        limits = program.range_constraints.get(symbolic_expression(size))
        if limits is not None and not all(limits.lower <= n <= limits.upper for n in sizes):
            return False
    return True


def _says(text: str, decision: Decision, requested: DynamicShapes) -> bool:
    """True if a condition of a program says what a decision about one size does."""
    terms = {match[0] for match in SIZE_TERM.finditer(text)}
    ((symbol, (sources, example)),) = decision.symbols.items()
    dims = {*map(requested.at, sources)} - {None}
    if len(terms) != 1 or dims.isdisjoint(map(requested.at, terms)):
        return False
    on_n = SIZE_TERM.sub("n", text)
    sizes = (*range(2, 130), *range(2 * (example or 1), 2 * (example or 1) + REACH + 1))
    return all(
        (decision.holds({symbol: n}) is not False) == (holds(on_n, {"n": n}) is not False)
        for n in sizes
    )


def _find_small(requested: DynamicShapes, decision: Decision) -> Iterator[tuple[RequestedDim, int]]:
    """Yields the promised sizes 0 and 1 that a choice ``n != 1`` of the user's line excludes."""
    import sympy

    if isinstance(decision.expression, sympy.Ne) and decision.chooses:
        for dim, size in find_small_sizes(requested, decision):
            if hasattr(dim.given, "__name__") and not dim.derived:
                yield dim, size
