"""Branches and loops of scripted models, and Python loops that were rolled: ONNX If and Loop."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import onnx_ir as ir
import torch

from onnx_aot.builder.builder import Builder, Size
from onnx_aot.ops.control.callable_bodies import Body, flatten_items, rebuild_items
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
    op: Builder, count: Size, body: Body, carried: Sequence[Any], inputs: Sequence[Any]
) -> list[Any]:
    """The body's first parameter is the number of the step; its last results are collected."""
    recorded = body.results
    kept = recorded[: len(carried)]

    def run_body(number: Value, *values: Value) -> list[Value]:
        return flatten_items(op, body(number, *rebuild_items(values, kept), *inputs), recorded)

    results = op.loop(count, flatten_items(op, carried, kept), run_body)
    return rebuild_items(results, recorded)
