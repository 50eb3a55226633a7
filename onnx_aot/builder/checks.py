"""Implements ``op.check``: nodes that fail in any runtime if a condition does not hold.

ONNX has no assertion. A check reshapes one element to a shape of one element, or of two if the
condition is false, which every runtime rejects. Each check reshapes the result of the previous one,
so that they run in order; ``guard`` makes a value depend on the last of them.
"""

from __future__ import annotations

from typing import Any

import onnx_ir as ir

from onnx_aot.builder.graph_builder import GraphBuilder
from onnx_aot.metadata.keys import CHECK

__all__ = ["emit_check", "guard"]


def emit_check(op: GraphBuilder, condition: Any, text: str) -> None:
    """Emits the nodes of ``Builder.check``."""
    if text in op.state.conditions or condition is True:
        return
    op.state.conditions.add(text)
    value = op.cast(condition, ir.DataType.BOOL)
    broken = op.Cast(op.Not(value), to=ir.DataType.INT64)
    length = op.Unsqueeze(op.Add(broken, 1), [0])
    before = op.constant([0]) if op.state.last_check is None else op.state.last_check
    # Not op.Reshape, which merges consecutive reshapes. The size stays unknown because ONNX Runtime
    # removes a reshape that is known to change nothing.
    after = ir.Value(type=ir.TensorType(ir.DataType.INT64), shape=ir.Shape([None]))
    op.add_node(ir.Node("", "Reshape", [before, length], outputs=[after], name=f"{CHECK}{text}"))
    op.state.last_check = after


def guard(op: GraphBuilder, value: ir.Value, *, copied: bool) -> ir.Value:
    """Returns the same tensor, available only once all checks so far have passed.

    Args:
        op: The builder, with at least one check.
        value: A tensor of any type and rank.
        copied: False reshapes it to its own shape, which costs nothing. Its dimensions stay
            unknown, because ONNX Runtime removes a reshape that is known to change nothing; a
            reshape of the result may be merged with it. True broadcasts the tensor to a shape
            of ones, which copies it and which no optimizer removes.
    """
    last = op.state.last_check
    assert last is not None
    rank = op.rank(value)
    if not rank:
        # Not Reshape: ONNX Runtime merges it with the next one, which drops the check.
        one = ir.Value(type=value.type, shape=ir.Shape([1]))
        op.add_node(ir.Node("", "Expand", [value, op.Add(last, 1)], outputs=[one]))
        kept = ir.Value(type=value.type, shape=ir.Shape([]))
        node = ir.Node("", "Squeeze", [one, op.constant([0])], outputs=[kept])
    elif copied:
        ones = op.Expand(op.Add(last, 1), op.constant([rank]))
        kept = ir.Value(type=value.type, shape=value.shape)
        node = ir.Node("", "Expand", [value, ones], outputs=[kept])
    else:  # a size of 0 in Reshape keeps the tensor's own size
        zeros = op.Expand(last, op.constant([rank]))
        kept = ir.Value(type=value.type, shape=ir.Shape([None] * rank))
        node = ir.Node("", "Reshape", [value, zeros], outputs=[kept])
    op.add_node(node)
    return kept
