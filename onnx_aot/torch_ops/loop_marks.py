"""Defines operators that mark the recorded steps of a Python loop while a model is captured.

``capture/loops`` replaces them by one call of ``rolled``, so they never run.
"""

from __future__ import annotations

from typing import Any

import torch

__all__ = ["COLLECTED", "JOINED", "LOOP_STEP"]

Tensor = torch.Tensor


@torch.library.custom_op("onnx_aot::loop_step", mutates_args=())
def mark_loop_step(count: int, more: int, loop: int, step: int) -> tuple[int, Tensor]:
    """Marks where a recorded step begins, or where the loop ends; returns the number of the step.

    The second result has no meaning. Torch would remove a node that gives only an unused number.

    Args:
        count: Number of steps of the loop.
        more: Number of steps after the first one.
        loop: Number of the loop in its capture.
        step: 1 for the first step, 2 and 3 for two later ones, 4 for the end.
    """
    raise NotImplementedError("the steps of a loop are replaced after its capture")


@mark_loop_step.register_fake
def _(count: Any, more: Any, loop: int, step: int) -> tuple[Any, Tensor]:
    return count.node.shape_env.create_unbacked_symint(), torch.empty(0)


LOOP_STEP = torch.ops.onnx_aot.loop_step.default


@torch.library.custom_op("onnx_aot::collected", mutates_args=())
def collect_steps(
    first: Tensor | None, second: Tensor, third: Tensor, count: int, loop: int, backwards: bool
) -> Tensor:
    """Stacks the values of a variable at all steps along a new first axis.

    Args:
        first: Value before that of the second step; None if there is none.
        second: Value of the second step.
        third: Value of the third step.
        count: Number of values.
        loop: Number of the loop in its capture.
        backwards: Whether the value of the last step comes first.
    """
    raise NotImplementedError("the values of a loop are collected after its capture")


@collect_steps.register_fake
def _(
    first: Tensor | None, second: Tensor, third: Tensor, count: int, loop: int, backwards: bool
) -> Tensor:
    return second.new_empty([count, *second.shape])


COLLECTED = torch.ops.onnx_aot.collected.default


@torch.library.custom_op("onnx_aot::joined", mutates_args=())
def join_pieces(
    first: Tensor,
    second: Tensor,
    third: Tensor,
    size: int | None,
    loop: int,
    backwards: bool,
    dim: int,
) -> Tensor:
    """Joins the values of a variable at all steps along an axis in which their sizes differ.

    Args:
        first: Value before that of the second step.
        second: Value of the second step.
        third: Value of the third step.
        size: Size of the result in this axis; None if it depends on data.
        loop: Number of the loop in its capture.
        backwards: Whether the value of the last step comes first.
        dim: The axis.
    """
    raise NotImplementedError("the values of a loop are joined after its capture")


@join_pieces.register_fake
def _(
    first: Tensor,
    second: Tensor,
    third: Tensor,
    size: int | None,
    loop: int,
    backwards: bool,
    dim: int,
) -> Tensor:
    shape: list[Any] = list(first.shape)
    shape[dim] = torch.library.get_ctx().new_dynamic_size() if size is None else size
    return second.new_empty(shape)


JOINED = torch.ops.onnx_aot.joined.default
