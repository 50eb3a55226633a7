"""Carries out steps, so that the capture records them, with ``torch.cond`` for each branch."""

from __future__ import annotations

import collections
import contextlib
import dataclasses
from collections.abc import Callable, Sequence
from typing import Any

import torch
import torch.fx.traceback

from onnx_aot.capture.branches.joining import (
    VALUES,
    find_storages,
    read_writes,
)
from onnx_aot.capture.branches.regions import Region, is_region_begin, is_region_end
from onnx_aot.capture.branches.steps import (
    Branch,
    Choice,
    Constant,
    Input,
    Step,
    Way,
    list_steps,
    list_uses,
)
from onnx_aot.capture.error_hints import UnjoinableError
from onnx_aot.torch_compat import (
    SETS_GRADIENTS,
    FakeTensor,
    aten,
    fake_mode_of,
    higher_order,
    pytree,
    storage_key,
    without_gradients,
    without_new_conditions,
)

__all__ = ["replay"]


def replay(steps: Sequence[Step], inputs: Sequence[Any]) -> list[Any]:
    """Carries out steps and returns their results, flattened."""
    values: dict[Any, Any] = {
        Input(position, value): value for position, value in enumerate(inputs)
    }
    with torch.fx.traceback.preserve_node_meta(), without_gradients():
        return _run(steps, values)


def _run(steps: Sequence[Step], values: dict[Any, Any]) -> list[Any]:
    """Carries out steps; ``values`` gets their results."""
    with contextlib.ExitStack() as regions:
        for step in steps:
            with torch.fx.traceback.set_current_meta(step.node):
                if isinstance(step, Branch):
                    for position, value in enumerate(_choose(step, values)):
                        values[Choice(step, position)] = value
                    for begin in _ended_in(step):
                        values[begin].end(regions)
                elif is_region_end(step):
                    values[step.leaves[0]].end(regions)
                else:
                    given = [_look_up(leaf, values) for leaf in step.leaves]
                    if step.target is None:
                        return given
                    args, kwargs = pytree.tree_unflatten(given, step.spec)
                    if is_region_begin(step):
                        values[step] = Region.begin(args, regions)
                    elif step.target is not SETS_GRADIENTS:
                        values[step] = step.target(*args, **kwargs)
                        _check_types(step, values[step])
    return []


def _check_types(step: Step, value: Any) -> None:
    """Checks that a step computes in the type that it had in the model.

    Raises:
        UnjoinableError: It does not, as the model switched something that is not among the steps.
    """
    recorded = pytree.tree_leaves(step.node.meta.get("val"))
    for before, after in zip(recorded, pytree.tree_leaves(value), strict=False):
        both = isinstance(before, torch.Tensor) and isinstance(after, torch.Tensor)
        if both and before.dtype != after.dtype:
            raise UnjoinableError(
                f"{step.node.target} gives {before.dtype} in the model, and {after.dtype} on its "
                "own; something such as torch.set_default_dtype changes it",
                "name the type where tensors are made, torch.ones(n, dtype=...)",
            )


def _ended_in(branch: Branch) -> list[Any]:
    """The beginnings of autocast regions that the ways of a branch end."""
    steps = list(list_steps(branch.ways[0].steps))
    ends = [step.leaves[0] for step in steps if is_region_end(step)]
    return [begin for begin in ends if begin not in steps]


def _look_up(leaf: Any, values: dict[Any, Any]) -> Any:
    if isinstance(leaf, Constant):
        return values.get(leaf, leaf.value)
    return values[leaf] if isinstance(leaf, VALUES) else leaf


def _choose(branch: Branch, values: dict[Any, Any]) -> list[Any]:
    """Computes a branch and returns its results."""
    used = _find_outer(branch, values)
    begun = [value for value in used if is_region_begin(value)]
    regions = {begin: dataclasses.replace(values[begin], entered=None) for begin in begun}
    outer = [value for value in used if value not in regions]
    originals = [_look_up(value, values) for value in outer]
    # Torch names the inputs of a way after the operands, so each of these is given once.
    operands = {_identity(value): _as_operand(value) for value in originals}
    numbers: list[type | None] = []

    def make_way(way: Way) -> Callable[..., tuple[torch.Tensor, ...]]:
        def compute(*given: Any) -> tuple[torch.Tensor, ...]:
            by_identity = dict(zip(operands, given, strict=True))
            inner = {}
            for value, was in zip(outer, originals, strict=True):
                operand = by_identity[_identity(was)]
                inner[value] = operand.item() if isinstance(was, torch.SymFloat) else operand
            inner.update(regions)
            with without_new_conditions(fake_mode_of(given)):  # they hold on this way only
                _run(way.steps, inner)
            results = [_look_up(value, inner) for value in way.results]
            numbers[:] = [_number_type(result) for result in results]
            return _as_results(results)

        return compute

    _refuse_shared_writes(branch, outer, [operands[_identity(was)] for was in originals])
    condition = _look_up(branch.leaves[0], values)
    first, second = map(make_way, branch.ways)
    chosen = higher_order.cond(condition, first, second, tuple(operands.values()))
    return [
        value if kind is None else value.item() for value, kind in zip(chosen, numbers, strict=True)
    ]


def _refuse_shared_writes(branch: Branch, outer: Sequence[Any], operands: Sequence[Any]) -> None:
    """Checks that a way writes to no memory that it also reads under another name.

    Raises:
        UnjoinableError: It does.
    """
    memory = [storage_key(value) for value in operands if isinstance(value, torch.Tensor)]
    shared = {key for key, count in collections.Counter(memory).items() if count > 1}
    written = set().union(*(read_writes(way.steps) for way in branch.ways))
    for value, operand in zip(outer, operands, strict=True):
        is_shared = isinstance(operand, torch.Tensor) and storage_key(operand) in shared
        if is_shared and not written.isdisjoint(find_storages(value)):
            raise UnjoinableError(
                "one side writes to a tensor of which it reads another view",
                "write to a copy, value.clone(), or compute a new tensor",
            )


def _find_outer(branch: Branch, values: dict[Any, Any]) -> list[Any]:
    """The values from outside that a branch reads, once each."""
    inside = {id(step) for way in branch.ways for step in list_steps(way.steps)}
    found: dict[Any, None] = {}
    for way in branch.ways:
        uses = [holder[index] for holder, index in list_uses(way.steps)]
        for value in (*uses, *way.results):
            step = value.branch if isinstance(value, Choice) else value
            if isinstance(value, VALUES) and id(step) not in inside:
                is_graph = isinstance(value, Constant) and not isinstance(value.value, torch.Tensor)
                if not is_graph:
                    found[value] = None
    return list(found)


def _identity(value: Any) -> Any:
    """A key that is the same for values that one node of the graph computes."""
    if isinstance(value, (torch.SymInt, torch.SymFloat)):
        return type(value), value.node.expr
    return id(value)


def _as_operand(value: Any) -> Any:
    """A value that a way may get: an int, or a tensor of the graph."""
    if isinstance(value, torch.SymFloat):
        return aten.scalar_tensor.default(value, dtype=torch.float64)
    if isinstance(value, torch.Tensor) and not isinstance(value, FakeTensor):
        return aten.lift_fresh_copy.default(value)
    return value


def _number_type(value: Any) -> type | None:
    if isinstance(value, torch.Tensor):
        return None
    return int if isinstance(value, (int, torch.SymInt)) else float


def _as_results(results: Sequence[Any]) -> tuple[torch.Tensor, ...]:
    """Results as tensors with memory of their own, in the usual order of elements."""
    tensors = []
    for result in results:
        kind = _number_type(result)
        dtype = torch.int64 if kind is int else torch.float64
        tensor = result if kind is None else torch.scalar_tensor(result, dtype=dtype)
        tensors.append(tensor.clone(memory_format=torch.contiguous_format))
    return tuple(tensors)
