"""Compares a program with rolled loops with its model, at several numbers of steps."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import torch

from onnx_aot.capture.error_hints import UnrollableError
from onnx_aot.capture.inputs import Inputs
from onnx_aot.capture.loops.history import Loop
from onnx_aot.capture.sizes.captured_dimensions import sizes_of
from onnx_aot.capture.sizes.dimension_requests import DynamicShapes, RequestedDim
from onnx_aot.capture.sizes.example_check import accepts, has_equal_results, size_in_example
from onnx_aot.capture.sizes.other_examples import find_root, resize_inputs
from onnx_aot.dimensions.conditions import fulfils_condition
from onnx_aot.torch_compat import pytree, size_conditions, symbolic_expression

__all__ = ["check_rolled"]

LARGER = range(3, 12)
"""Numbers by which the example's size is exceeded: the loop has steps beyond the recorded ones."""


def check_rolled(
    program: torch.export.ExportedProgram,
    module: torch.nn.Module,
    inputs: Inputs,
    requested: DynamicShapes,
    loops: Sequence[Loop],
) -> None:
    """Runs a program and its model for the example, and for fewer and more steps of its loops.

    Raises:
        UnrollableError: The results differ, or cannot be compared.
    """
    _compare(program, module, inputs, "the example", loops)
    for dim, smallest in _find_dimensions(program, requested, loops):
        example = size_in_example(dim, requested)
        larger = [example + more for more in LARGER if example + more <= dim.limits[1]]
        smaller = range(max(smallest, dim.limits[0], 1), example)
        for sizes in (larger, smaller):
            for size in sizes:
                sample = resize_inputs(inputs, requested, {dim: size})
                if _is_allowed(program, requested, sample) and accepts(module, sample):
                    _compare(program, module, sample, f"{dim} of size {size}", loops)
                    break


def _compare(
    program: torch.export.ExportedProgram,
    module: torch.nn.Module,
    inputs: Inputs,
    where: str,
    loops: Sequence[Loop],
) -> None:
    equal = has_equal_results(program, module, inputs)
    if not equal:
        says = "cannot be compared with the model" if equal is None else "differs from the model"
        raise UnrollableError(
            f"one loop {says} for {where}; a step may depend on what the capture does not see",
            "keep what a step hands on in tensors, and not in Python numbers, lists or objects",
            loops[0].location,
        )


def _find_dimensions(
    program: torch.export.ExportedProgram, requested: DynamicShapes, loops: Sequence[Loop]
) -> Iterator[tuple[RequestedDim, int]]:
    """Yields the dimensions that give the numbers of steps, with their smallest sizes."""
    symbols: set[Any] = set()
    for loop in loops:
        symbols |= symbolic_expression(loop.count).free_symbols
    seen = set()
    for dim, size in sizes_of(program, requested):
        expression = symbolic_expression(size) if isinstance(size, torch.SymInt) else None
        if expression is None or find_root(dim) in seen or not expression.free_symbols & symbols:
            continue
        seen.add(find_root(dim))
        limits = program.range_constraints.get(expression)
        yield dim, 1 if limits is None else int(limits.lower)


def _is_allowed(
    program: torch.export.ExportedProgram, requested: DynamicShapes, sample: Inputs
) -> bool:
    """True if inputs fulfil the conditions of a program."""
    _, structure = pytree.tree_flatten(dict(requested.values))
    leaves = pytree.tree_leaves((sample.args, sample.kwargs))
    values = pytree.tree_unflatten(leaves, structure)
    conditions = size_conditions(program)
    return all(fulfils_condition(condition, values) is not False for condition in conditions)
