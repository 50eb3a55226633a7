"""Branches and loops: If, Loop and Scan, whose bodies read values of the enclosing graph.

Sources: ``torch._higher_order_ops``. Values that a body writes to its parameters are among its
results: ``written`` has the parameters' positions, their new values are the last results.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import onnx_ir as ir
import torch

from onnx_aot.builder.builder import Builder, Size
from onnx_aot.dtypes import INT64_MAX
from onnx_aot.ops.control.callable_bodies import Body, flatten_items, rebuild_items
from onnx_aot.ops.core.creation import make_full
from onnx_aot.ops.core.cumulative import count_doublings
from onnx_aot.ops.registry import register
from onnx_aot.torch_compat import higher_order

__all__: list[str] = []

Value = ir.Value
BOOL = ir.DataType.BOOL
INT64 = ir.DataType.INT64


@register(higher_order.cond)
def cond(
    op: Builder,
    pred: Any,
    true_fn: Body,
    false_fn: Body,
    operands: Sequence[Any],
    written: Sequence[int] = (),
) -> list[Any]:
    """``cond(pred, true_fn, false_fn, operands)``: ONNX If."""
    if not isinstance(pred, Value):
        return (true_fn if pred else false_fn)(*operands)
    recorded = list(op.result)

    def run_branch(body: Body) -> list[Value]:
        return flatten_items(op, body(*operands), recorded)

    if all(result is None for result in recorded):
        return recorded
    results = op.if_(op.cast(pred, BOOL), lambda: run_branch(true_fn), lambda: run_branch(false_fn))
    return rebuild_items(results, recorded)


@register(higher_order.switch)
def switch(
    op: Builder,
    index: Any,
    branches: Sequence[Body],
    operands: Sequence[Any],
    written: Sequence[int] = (),
) -> list[Any]:
    """``branches[index](*operands)``: nested ONNX Ifs. Torch keeps the index in range."""
    if not isinstance(index, Value):
        return branches[index](*operands)
    recorded = list(op.result)
    if all(result is None for result in recorded):
        return recorded

    def choose(number: int) -> list[Value]:
        def emit() -> list[Value]:
            return flatten_items(op, branches[number](*operands), recorded)

        if number == len(branches) - 1:
            return emit()
        is_this = op.Reshape(op.Equal(op.cast(index, INT64), number), [])
        return op.if_(is_this, emit, lambda: choose(number + 1))

    return rebuild_items(choose(0), recorded)


@register(higher_order.while_loop)
def while_loop(
    op: Builder,
    cond_fn: Body,
    body_fn: Body,
    carried_inputs: Sequence[Any],
    additional_inputs: Sequence[Any],
    mutated_arg_indices: str = "",
    written: Sequence[int] = (),
) -> list[Any]:
    """``while cond_fn(*carried): carried = body_fn(*carried)``: ONNX Loop without a trip count.

    The condition is computed before the loop and at the end of each step.
    """
    state = _State([*carried_inputs, *additional_inputs], len(carried_inputs), written)
    recorded = state.select_carried(body_fn.parameters)
    results = list(op.result)

    def evaluate_condition(values: Sequence[Any]) -> Value:
        return op.cast(cond_fn(*state.bind_carried(values))[0], BOOL)

    def run_body(_: Value, *values: Value) -> list[Value]:
        after = flatten_items(
            op, body_fn(*state.bind_carried(rebuild_items(values, recorded))), results
        )
        return [evaluate_condition(rebuild_items(after, recorded)), *after]

    before = flatten_items(op, state.initial, recorded)
    condition = evaluate_condition(rebuild_items(before, recorded))
    return rebuild_items(op.loop(None, before, run_body, condition=condition), results)


class _State:
    """State of a loop: its first operands, and those of the others that are written."""

    def __init__(self, operands: Sequence[Any], carried: int, written: Sequence[int]) -> None:
        self._operands = list(operands)
        self._positions = [*range(carried), *(p for p in written if p >= carried)]
        self.initial = self.select_carried(operands)

    def select_carried(self, items: Sequence[Any]) -> list[Any]:
        """Selects the items of the carried operands from a list with one item per operand."""
        return [items[position] for position in self._positions]

    def bind_carried(self, values: Sequence[Any]) -> list[Any]:
        """Operands of a body for the given carried values."""
        given = list(self._operands)
        for position, value in zip(self._positions, values, strict=True):
            given[position] = value
        return given


@register(higher_order.scan)
def scan(
    op: Builder,
    combine_fn: Body,
    init: Sequence[Any],
    xs: Sequence[Any],
    additional_inputs: Sequence[Any],
    written: Sequence[int] = (),
) -> list[Any]:
    """``carry, y = combine_fn(carry, x)`` for each ``x``: the last carry and every ``y``.

    The results are the carry, the collected values, then the additional inputs that are written.
    """
    first = len(init)
    state = _State([*init, *xs, *additional_inputs], first, written)
    results = list(op.result)
    collected = slice(first, len(results) - len(written))

    def combine_slice(carried: Sequence[Any], slices: Sequence[Any]) -> tuple[list[Any], list[Any]]:
        given = state.bind_carried(carried)
        given[first : first + len(xs)] = slices
        after = combine_fn(*given)
        return [*after[:first], *after[collected.stop :]], after[collected]

    kept = [*results[:first], *results[collected.stop :]]
    slices = combine_fn.parameters[first : first + len(xs)]
    carried, stacked = _over_slices(
        op, (state.initial, kept), (xs, slices), results[collected], combine_slice
    )
    return [*carried[:first], *stacked, *carried[first:]]


@register(higher_order.map_impl)
def map_impl(
    op: Builder, f: Body, xs: Sequence[Any], pos_args: Sequence[Any], written: Sequence[int] = ()
) -> list[Any]:
    """``f(x, *pos_args)`` for each ``x``, stacked; new values of slices are further results."""

    def map_slice(_: Sequence[Any], slices: Sequence[Any]) -> tuple[list[Any], list[Any]]:
        return [], f(*slices, *pos_args)

    slices = f.parameters[: len(xs)]
    return _over_slices(op, ([], []), (xs, slices), list(op.result), map_slice)[1]


Recorded = tuple[Sequence[Any], Sequence[Any]]
"""Items, and the value that the capture recorded for each."""


def _over_slices(
    op: Builder,
    initial: Recorded,
    sequences: Recorded,
    stacked: Sequence[Any],
    step: Callable[[Sequence[Any], Sequence[Any]], tuple[list[Any], list[Any]]],
) -> tuple[list[Any], list[Any]]:
    """Emits a Scan along the first axis, which ONNX Runtime refuses to run for zero steps.

    Torch refuses that too; here the carried values stay as they are and nothing is collected.

    Args:
        op: The builder.
        initial: Carried items before the first step.
        sequences: Items to scan over, with the recorded value of one slice of each.
        stacked: Recorded values of the collected results.
        step: ``step(carried, slices)`` returns the next carried items and the collected ones.

    Returns:
        The carried items after the last step, and the collected ones.
    """
    before, values = flatten_items(op, *initial), flatten_items(op, *sequences)
    count = len(before)

    def run_step(*inner: Value) -> list[Value]:
        after, made = step(
            rebuild_items(inner[:count], initial[1]), rebuild_items(inner[count:], sequences[1])
        )
        return [*flatten_items(op, after, initial[1]), *flatten_items(op, made, stacked)]

    made: list[Value] = []

    def scan_slices() -> list[Value]:
        made[:] = op.scan(before, values, run_step)
        return made

    def return_initial() -> list[Value]:
        return [*before, *(_make_empty_slices(op, value) for value in made[count:])]

    assert values[0].shape is not None, "torch records the shapes of what is scanned"
    if op.at_least(values[0].shape.dims[0], 1):
        results = scan_slices()
    else:
        results = op.if_(op.Greater(op.size(values[0], 0), 0), scan_slices, return_initial)
    return rebuild_items(results[:count], initial[1]), rebuild_items(results[count:], stacked)


def _make_empty_slices(op: Builder, like: Value) -> Value:
    """Zero slices of the same size as another value's slices."""
    assert like.dtype is not None
    sizes: list[Size] = [0]
    for size in like.shape.dims[1:] if like.shape is not None else ():
        known = size if isinstance(size, int) else op.known_size(str(size.value))
        sizes.append(0 if known is None else known)
    return make_full(op, sizes, 0, like.dtype)


# --- associative scans ---------------------------------------------------------------------------

SMALL_SLICE = 128
"""Largest number of elements in a slice for which joining all slices at once is faster.

That takes ``log2(n)`` rounds. Measured in ONNX Runtime with 16 to 1024 slices: 3 to 16 times as
fast for one element.
"""


@register(higher_order.associative_scan)
def associative_scan(
    op: Builder, combine_fn: Body, xs: Sequence[Any], additional_inputs: Sequence[Any]
) -> list[Any]:
    """Joins each slice with all before it: in ``log2(n)`` rounds, or one slice after the other.

    A round joins each slice with the one that is 1, 2, 4, ... places before it, all at once; for
    this the function is traced under ``torch.vmap``.
    """
    count = len(xs)
    recorded = list(op.result)
    slices = combine_fn.parameters[:count]
    sizes = [size for example in slices for size in example.shape]
    small = all(isinstance(size, int) for size in sizes) and (
        sum(example.numel() for example in slices) <= SMALL_SLICE
    )
    joined = _of_all_slices(combine_fn, count, recorded) if small else None
    if joined is None:
        return _one_by_one(op, combine_fn, xs, additional_inputs, recorded)
    values = flatten_items(op, xs, recorded)
    length = op.size(values[0], 0)
    positions = op.Range(0, length, 1)

    def combine_at_distance(_: Value, distance: Value, *current: Value) -> list[Value]:
        before = op.Sub(positions, distance)
        earlier = [op.Gather(value, op.Max(before, 0), axis=0) for value in current]
        for value, shifted in zip(current, earlier, strict=True):
            shifted.shape = value.shape
        returned = joined(
            *rebuild_items(earlier, recorded), *rebuild_items(current, recorded), *additional_inputs
        )
        first = op.Less(before, 0)
        return [op.Mul(distance, 2)] + [
            op.Where(_expand_to_rank(op, first, value), value, result)
            for value, result in zip(current, flatten_items(op, returned, recorded), strict=True)
        ]

    rounds = op.loop(
        count_doublings(op, length), [op.constant(1, INT64), *values], combine_at_distance
    )
    return rebuild_items(rounds[1:], recorded)


def _expand_to_rank(op: Builder, condition: Value, value: Value) -> Value:
    """Expands one condition per slice to the rank of the value."""
    after = list(range(1, op.rank(value)))
    return op.Unsqueeze(condition, after) if after else condition


def _of_all_slices(combine_fn: Body, count: int, recorded: Sequence[Any]) -> Body | None:
    """Vectorizes the function over slices in a new first dimension; None if it cannot be traced."""
    others = combine_fn.parameters[2 * count :]
    each = (0,) * (2 * count) + (None,) * len(others)
    return combine_fn.rewrite(
        torch.vmap(combine_fn.run, in_dims=each), [*recorded, *recorded, *others]
    )


def _one_by_one(
    op: Builder,
    combine_fn: Body,
    xs: Sequence[Any],
    additional_inputs: Sequence[Any],
    recorded: Sequence[Any],
) -> list[Any]:
    """Keeps the first slice, then scans the others starting from it."""
    values = flatten_items(op, xs, recorded)
    firsts = [op.Gather(value, op.constant(0, INT64), axis=0) for value in values]
    slices = combine_fn.parameters[: len(xs)]

    def combine_slice(
        carried: Sequence[Any], current: Sequence[Any]
    ) -> tuple[list[Any], list[Any]]:
        joined = combine_fn(*carried, *current, *additional_inputs)
        return joined, joined

    rest = [op.Slice(value, [1], [INT64_MAX], [0]) for value in values]
    following = _over_slices(
        op,
        (rebuild_items(firsts, slices), slices),
        (rebuild_items(rest, recorded), slices),
        recorded,
        combine_slice,
    )[1]
    heads = [op.Slice(value, [0], [1], [0]) for value in values]
    tails = flatten_items(op, following, recorded)
    stacked = [op.Concat(head, tail, axis=0) for head, tail in zip(heads, tails, strict=True)]
    return rebuild_items(stacked, recorded)
