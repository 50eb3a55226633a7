"""Branches and loops of scripted models, and Python loops that were rolled: ONNX If and Loop."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import onnx_ir as ir
import torch

from onnx_aot.builder.builder import Builder, Size
from onnx_aot.ops.control.callable_bodies import Body, flatten_items, rebuild_items
from onnx_aot.ops.control.sequences import append, cat, construct, insert
from onnx_aot.ops.registry import register
from onnx_aot.torch_ops.rolled_loops import rolled
from onnx_aot.torch_ops.scripted_ops import branch, repeat

__all__: list[str] = []

Value = ir.Value
BOOL = ir.DataType.BOOL


@register(branch)
def scripted_branch(
    op: Builder,
    condition: Any,
    then: Body,
    otherwise: Body,
    inputs: Sequence[Any],
    others: Sequence[Any],
) -> list[Value]:
    recorded = list(op.result)
    return op.if_(
        op.cast(condition, BOOL),
        lambda: flatten_items(op, then(*inputs), recorded),
        lambda: flatten_items(op, otherwise(*others), recorded),
    )


@register(repeat)
def scripted_repeat(
    op: Builder,
    count: Size | None,
    condition: Any,
    body: Body,
    carried: Sequence[Any],
    inputs: Sequence[Any],
) -> list[Value]:
    """The body's first parameter is the number of the step; its first result is the condition."""
    recorded = list(op.result)

    def run_body(number: Value, *values: Value) -> list[Value]:
        for value, example in zip(values, body.parameters[1:], strict=False):
            if isinstance(example, torch.Tensor):  # its initial shape need not persist
                sizes: list[Any] = list(example.shape)
                known = [size if type(size) is int else op.fresh() for size in sizes]
                value.shape = ir.Shape(known)
        again, *after = body(number, *values, *inputs)
        results = flatten_items(op, after, recorded)
        return results if condition is None else [op.cast(again, BOOL), *results]

    proceed = None if condition is None else op.cast(condition, BOOL)
    return op.loop(count, flatten_items(op, carried, recorded), run_body, condition=proceed)


@register(rolled)
def python_loop(
    op: Builder,
    count: Size,
    body: Body,
    carried: Sequence[Any],
    inputs: Sequence[Any],
    starts: Sequence[Any] = (),
    joints: Sequence[tuple[int, bool]] = (),
) -> list[Any]:
    """The body's first parameter is the number of the step.

    Its results are the carried values, those that are collected, and pieces, which may differ in
    size from step to step: a sequence collects them.
    """
    recorded = body.results
    kept, pieces = recorded[: len(carried)], recorded[len(recorded) - len(starts) :]
    made = recorded[len(carried) : len(recorded) - len(starts)]
    before = flatten_items(op, carried, kept)
    sequences: list[Value] = []
    places: list[tuple[int, bool]] = []
    for start, example, joint in zip(starts, pieces, joints, strict=True):
        first = flatten_items(op, [start], [example])
        element = example.real.dtype if example.is_complex() else example.dtype
        for number in range(1 + example.is_complex()):
            sequences.append(construct(op, first[number : number + 1], element))
            places.append(joint)

    def run_body(number: Value, *values: Value) -> list[Value]:
        returned = body(number, *rebuild_items(values[: len(before)], kept), *inputs)
        after = flatten_items(op, returned[: len(carried)], kept)
        collected = returned[len(carried) : len(recorded) - len(starts)]
        parts = flatten_items(op, returned[len(recorded) - len(starts) :], pieces)
        longer = [
            insert(op, sequence, 0, part) if backwards else append(op, sequence, part)
            for sequence, part, (_, backwards) in zip(
                values[len(before) :], parts, places, strict=True
            )
        ]
        return [*after, *longer, *flatten_items(op, collected, made)]

    results = op.loop(count, [*before, *sequences], run_body)
    end = len(before) + len(sequences)
    joined = [
        cat(op, sequence, axis)
        for sequence, (axis, _) in zip(results[len(before) : end], places, strict=True)
    ]
    return rebuild_items([*results[: len(before)], *results[end:], *joined], recorded)
