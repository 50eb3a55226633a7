"""``flex_attention``: attention whose scores and mask are computed by functions of positions."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import onnx_ir as ir
import torch

from onnx_aot import dtypes
from onnx_aot.builder.builder import Builder
from onnx_aot.errors import TranslationError
from onnx_aot.ops.control.callable_bodies import Body
from onnx_aot.ops.core.movement import swap_axes
from onnx_aot.ops.nn.attention import repeat_heads
from onnx_aot.ops.registry import register

__all__: list[str] = []

Value = ir.Value
INFINITY = float("inf")


@register(torch.ops.higher_order.flex_attention)
def flex_attention(
    op: Builder,
    query: Value,
    key: Value,
    value: Value,
    score_mod: Body,
    block_mask: Sequence[Any],
    scale: Any,
    kernel_options: Any,
    score_mod_other_buffers: Sequence[Any] = (),
    mask_mod_other_buffers: Sequence[Any] = (),
) -> list[Value]:
    """``softmax(score_mod(q k^T * scale) where mask_mod else -inf) v``, as eager computes it.

    Both functions are applied to all scores at once. Only the function of the block mask is used; a
    row that it masks completely gives zeros. The further results are the logarithm of the softmax's
    sum and the largest score of each row, both to base 2.
    """
    recorded, queries = op.result, op.recorded[0]
    working = torch.float64 if queries.dtype == torch.float64 else torch.float32
    key, value = repeat_heads(op, query, key), repeat_heads(op, query, value)
    dtype = dtypes.to_onnx(working)
    scores = op.MatMul(op.cast(query, dtype), swap_axes(op, op.cast(key, dtype), -2, -1))
    scores = op.Mul(scores, op.cast(scale, dtype))
    keys = op.recorded[1]
    example = queries.new_empty((*queries.shape[:3], keys.shape[2]), dtype=working)
    buffers = (score_mod_other_buffers, mask_mod_other_buffers)
    scores = _apply_score_and_mask_mods(op, scores, example, score_mod, block_mask[-1], buffers)
    largest = op.reduce("ReduceMax", scores, [-1], True)
    admitted = op.Greater(largest, -INFINITY)
    weights = op.cast(op.Softmax(scores, axis=-1), query.dtype)
    attended = op.Where(admitted, op.MatMul(weights, op.cast(value, query.dtype)), 0.0)
    shift = op.Where(admitted, largest, 0.0)
    total = op.reduce("ReduceSum", op.Exp(op.Sub(scores, shift)), [-1], True)
    log_sum = op.Mul(op.Add(op.Log(total), shift), 1.0 / math.log(2.0))
    highest = op.Mul(largest, 1.0 / math.log(2.0))
    statistics = [op.Squeeze(v, [-1]) for v in (log_sum, highest)]
    kept = [
        op.cast(v, dtypes.to_onnx(r.dtype)) for v, r in zip(statistics, recorded[1:], strict=True)
    ]
    return [attended, *kept]


def _apply_score_and_mask_mods(
    op: Builder,
    scores: Value,
    example: torch.Tensor,
    score_mod: Body,
    mask_mod: Body,
    buffers: tuple[Sequence[Any], Sequence[Any]],
) -> Value:
    """The scores after both functions, traced under ``torch.vmap`` over batch, head and positions.

    Raises:
        TranslationError: Torch cannot trace them without fixing sizes.
    """
    changes, masks = not _is_identity_score_mod(score_mod), not _is_trivial_mask_mod(mask_mod)
    if not changes and not masks:
        return scores
    mine, others = score_mod.parameters[5:], mask_mod.parameters[4:]

    def modify(given: torch.Tensor, *captured: Any) -> torch.Tensor:
        places = [torch.arange(size, device=given.device) for size in given.shape]
        changed = given
        if changes:
            function = _vmap_over_positions(score_mod.run, (0,), len(mine))
            changed = function(given, *places, *captured[: len(mine)])
        if masks:
            function = _vmap_over_positions(mask_mod.run, (), len(others))
            mask = function(*places, *captured[len(mine) :])
            changed = torch.where(mask, changed, -INFINITY)
        return changed

    body = score_mod.rewrite(modify, [example, *mine, *others])
    if body is None:
        raise TranslationError(
            "the functions that flex_attention is given cannot be applied to all scores at once "
            "without fixing their number; compute the mask as a tensor and use "
            "scaled_dot_product_attention",
            code="OA404",
        )
    result: Value = body(scores, *buffers[0], *buffers[1])[0]
    return result


def _vmap_over_positions(
    function: Callable[..., Any], scores: tuple[int, ...], captured: int
) -> Callable[..., Any]:
    """Extends a function of one score, batch, head, query and key to vectors of the last four."""
    for place in (3, 2, 1, 0):
        places = tuple(0 if index == place else None for index in range(4))
        function = torch.vmap(function, in_dims=(*scores, *places, *(None,) * captured))
    return function


def _is_identity_score_mod(body: Body) -> bool:
    """True if a score function returns the score unchanged."""
    nodes = list(body.module.graph.nodes)
    returned: Any = nodes[-1].args[0]
    item = returned[0] if isinstance(returned, (list, tuple)) else returned
    return item is nodes[0]


def _is_trivial_mask_mod(body: Body) -> bool:
    """True if a mask function is the one that stands for no mask."""
    calls = [node.target for node in body.module.graph.nodes if node.op == "call_function"]
    return calls == [torch.ops.aten.new_ones.default]
