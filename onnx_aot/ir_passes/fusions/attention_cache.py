"""Makes key-value caches inputs and outputs of attention, from opset 23 on."""

from __future__ import annotations

import onnx_ir as ir

from onnx_aot.ir_passes.rewriter import Rewriter, Rule

__all__ = ["ATTENTION_CACHE"]

ROWS = (2, -2)


def attention_cache(node: ir.Node, rewriter: Rewriter) -> bool:
    """Passes past keys and values to the operator, which returns the concatenated ones.

    Before::

        keys, values = Concat(past_keys, k, axis=-2), Concat(past_values, v, axis=-2)
        y = Attention(q, keys, values, mask)

    After::

        y, keys, values = Attention(q, k, v, mask, past_keys, past_values)

    Runtimes can keep such a cache in place; ONNX Runtime 1.31 takes the same time either way.
    Applies only without ``is_causal``, which counts rows from a different start if there is a past.
    """
    inputs = node.inputs  # queries, keys, values and a mask, as long as both parts of the keys
    if len(inputs) not in (3, 4) or len(node.outputs) != 1:
        return False
    causal = node.attributes.get("is_causal")
    if causal is not None and causal.as_int():
        return False
    keys, values = (_match_cache_concat(rewriter, node, value) for value in inputs[1:3])
    if keys is None or values is None or inputs[1] is inputs[2]:
        return False
    mask = inputs[3] if len(inputs) == 4 else None
    given = [inputs[0], keys[1], values[1], mask, keys[0], values[0]]
    dtype = node.outputs[0].dtype
    made = rewriter.emit_many(
        "Attention", given, dict(node.attributes), like=node, dtypes=[dtype] * 3
    )
    for old, new in zip((node.outputs[0], *inputs[1:3]), made, strict=True):
        assert old is not None
        rewriter.replace(old, new)
    return True


def _match_cache_concat(
    rewriter: Rewriter, node: ir.Node, value: ir.Value | None
) -> tuple[ir.Value, ir.Value] | None:
    """The past and the new part of keys or values that only this node reads, or None."""
    joined = rewriter.producer(value, "Concat")
    if joined is None or value is None or len(joined.inputs) != 2:
        return None
    past, new = joined.inputs
    if past is None or new is None or past.shape is None or new.shape is None:
        return None
    if len(past.shape) != 4 or len(new.shape) != 4 or past.dtype != new.dtype:
        return None
    if joined.attributes["axis"].as_int() not in ROWS or set(value.consumers()) != {node}:
        return None
    same_heads = past.shape[1] == new.shape[1] and past.shape[3] == new.shape[3]
    return (past, new) if same_heads else None


ATTENTION_CACHE = Rule(
    "attention_cache",
    ("Attention",),
    attention_cache,
    exact=True,
    since=23,
    behind=frozenset({"Concat"}),
)
