"""Fuses attention into one node, where the runtime has a kernel for it."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable

import onnx_ir as ir
import torch

from onnx_aot.ir_passes.fusions.attention_pattern import (
    HEADS_LAST,
    SINCE,
    Attention,
    match_attention,
    match_masked_attention,
    match_repeated_heads,
    match_split_heads,
)
from onnx_aot.ir_passes.fusions.matching import dimensions, emit_extent, permutation
from onnx_aot.ir_passes.rewriter import Rewriter, Rule

__all__ = ["ATTENTION", "ATTENTION_OF_HEADS", "Flat", "every_row", "flat_attention"]

Build = Callable[[Rewriter, Attention, "Flat", "Flat", "Flat"], ir.Value | None]


@dataclasses.dataclass(frozen=True)
class Flat:
    """A value ``[batch, rows, heads * width]`` and its number of heads."""

    value: ir.Value
    heads: int


def attention_node(node: ir.Node, rewriter: Rewriter) -> bool:
    """Fuses attention into one node, which splits and merges heads by itself.

    Before::

        q, k, v = Transpose(Reshape(xq, [0, 0, heads, width]), perm=[0, 2, 1, 3]), ...
        a = MatMul(Softmax(Add(MatMul(Mul(q, scale), Transpose(k)), bias)), v)
        y = Transpose(a, perm=[0, 2, 1, 3])

    After::

        a = Attention(xq, xk, xv, bias, q_num_heads=heads, kv_num_heads=groups, scale=scale)
        y = Reshape(a, [0, 0, heads, width])

    The operator itself repeats keys and values for groups of heads. Queries and keys may be rotated
    by ``RotaryEmbedding``, which then splits heads by itself too. A mask that zeroes rows without
    keys loses a dimension.
    """
    return flat_attention(node, rewriter, _emit_attention)


def _emit_attention(
    rewriter: Rewriter, found: Attention, query: Flat, key: Flat, value: Flat
) -> ir.Value | None:
    attributes = {"q_num_heads": query.heads, "kv_num_heads": key.heads, "scale": found.scale}
    inputs = [query.value, key.value, value.value, every_row(rewriter, found)]
    return rewriter.emit("Attention", inputs, attributes, like=found.first)


def flat_attention(node: ir.Node, rewriter: Rewriter, build: Build) -> bool:
    """Replaces an attention that ends at a Transpose by one operator that splits heads itself.

    Args:
        node: The Transpose that moves heads behind rows.
        rewriter: Emits the nodes.
        build: Emits the operator for queries, keys and values of three dimensions, and returns
            ``[batch, rows, heads * width]``, or None.

    Returns:
        True if the attention was replaced.
    """
    if permutation(node) != HEADS_LAST:
        return False
    masked = match_masked_attention(rewriter, node.inputs[0])
    sizes, flat = dimensions(node.outputs[0]), _merged_heads_shape(node.outputs[0])
    if (
        masked is None
        or sizes is None
        or flat is None
        or not _fits_operator(rewriter, masked.attention)
    ):
        return False
    found, kept = masked.attention, masked.rows
    parts = _flatten_parts(rewriter, found)
    if parts is None or (kept is not None and (dimensions(kept) or [0, 0])[1:2] != [1]):
        return False
    new = build(rewriter, found, *parts)
    if new is None:
        return False
    new.shape = flat
    if kept is not None:
        assert kept.shape is not None
        axes = rewriter.initializer(torch.tensor([1], dtype=torch.int64))
        of_rows = ir.Shape([kept.shape[0], *kept.shape[2:]])
        rows = rewriter.emit("Squeeze", [kept, axes], like=found.first, shape=of_rows)
        new = masked.emit_masking(rewriter, new, rows, flat)
    into = rewriter.initializer(torch.tensor([0, 0, *sizes[2:]], dtype=torch.int64))
    rewriter.replace(node.outputs[0], rewriter.emit("Reshape", [new, into], like=found.first))
    return True


def attention_of_heads(node: ir.Node, rewriter: Rewriter) -> bool:
    """Fuses attention on values that are already split into heads into one node.

    Before::

        a = MatMul(Softmax(Add(MatMul(Mul(q, scale), Transpose(k)), bias)), v)

    After::

        a = Attention(q, k, v, bias, scale=scale)

    Keys and values may be ``Reshape(Expand(Unsqueeze(k, [2])))``, which is removed.
    """
    found = match_attention(rewriter, node)
    if found is None or found.rows_first or not _fits_operator(rewriter, found):
        return False
    if _ends_flat(rewriter, node.outputs[0], found):
        return False
    key, value = _shared_heads(rewriter, found)
    inputs = [found.query, key, value, every_row(rewriter, found)]
    attributes = {"scale": found.scale}
    rewriter.replace(
        node.outputs[0], rewriter.emit("Attention", inputs, attributes, like=found.first)
    )
    return True


def _fits_operator(rewriter: Rewriter, found: Attention) -> bool:
    """Returns True if types and batches are equal and heads fit, as the operator requires."""
    types = {v.dtype for v in (found.query, found.key, found.value, found.bias) if v is not None}
    if len(types) != 1 or found.query.dtype != ir.DataType.FLOAT:
        return False
    shared_key, shared_value = _shared_heads(rewriter, found)
    query, key, value = (dimensions(v) or [] for v in (found.query, shared_key, shared_value))
    if found.rows_first:
        key = [key[axis] for axis in HEADS_LAST]
    if not query[0] == key[0] == value[0] or key[1:3] != value[1:3] or query[3] != key[3]:
        return False
    heads, groups = query[1], key[1]
    if isinstance(heads, int) and isinstance(groups, int):
        if not groups or heads % groups:
            return False
    elif heads != groups:
        return False
    bias = dimensions(found.bias)
    if found.bias is None or bias is None:
        return found.bias is None
    return len(bias) in (2, 4) and bias[-1] == key[2] and bias[-2] in (1, query[2])


def every_row(rewriter: Rewriter, found: Attention) -> ir.Value | None:
    """The bias with every row, as ONNX Runtime requires; all layers share the expansion."""
    bias, sizes = found.bias, dimensions(found.bias)
    rows = (dimensions(found.query) or [1, 1, 1])[2]
    if bias is None or bias.shape is None or sizes is None or sizes[-2] == rows:
        return bias
    like, whole = found.first, found.query.shape
    assert whole is not None
    one = rewriter.initializer(torch.ones(1, dtype=torch.int64))
    parts = [emit_extent(rewriter, found.query, 2, like), one]
    into = rewriter.emit("Concat", parts, {"axis": 0}, like=like, shape=[2])
    shape = ir.Shape([*bias.shape[:-2], whole[2], bias.shape[-1]])
    return rewriter.emit("Expand", [bias, into], like=like, shape=shape)


def _shared_heads(rewriter: Rewriter, found: Attention) -> tuple[ir.Value, ir.Value]:
    """Keys and values before they are repeated, if both are; otherwise as they are."""
    key, value = (
        match_repeated_heads(rewriter, found.key),
        match_repeated_heads(rewriter, found.value),
    )
    if key is None or value is None or key.groups != value.groups or key.times != value.times:
        return found.key, found.value
    return key.value, value.value


def _flatten_parts(rewriter: Rewriter, found: Attention) -> tuple[Flat, Flat, Flat] | None:
    key, value = _shared_heads(rewriter, found)
    query = _flatten_heads(rewriter, found.query)
    flat_key = _flatten_heads(rewriter, key, found.rows_first)
    flat_value = _flatten_heads(rewriter, value)
    if query is None or flat_key is None or flat_value is None:
        return None
    if flat_key.heads != flat_value.heads or query.heads % flat_key.heads:
        return None
    return query, flat_key, flat_value


def _flatten_heads(rewriter: Rewriter, value: ir.Value, rows_first: bool = False) -> Flat | None:
    split = match_split_heads(rewriter, value, rows_first)
    if split is not None:
        return Flat(split.source, split.heads)
    rotary = None if rows_first else _find_rotary(rewriter, value)
    if rotary is None:
        return None
    split = match_split_heads(rewriter, rotary.inputs[0])
    if split is None or "num_heads" in rotary.attributes:
        return None
    attributes = dict(rotary.attributes)
    if not rotary.domain:
        attributes["num_heads"] = ir.AttrInt64("num_heads", split.heads)
    inputs = [split.source, *rotary.inputs[1:]]
    new = rewriter.emit(
        "RotaryEmbedding",
        inputs,
        attributes,
        like=rotary,
        shape=split.source.shape,
        domain=rotary.domain,
    )
    return Flat(new, split.heads)


def _find_rotary(rewriter: Rewriter, value: ir.Value) -> ir.Node | None:
    """The RotaryEmbedding, of ONNX or ONNX Runtime, that only the attention reads, or None."""
    rotary = value.producer()
    if rotary is None or rotary.op_type != "RotaryEmbedding":
        return None
    return rotary if rewriter.only_use(value) else None


def _merged_heads_shape(value: ir.Value) -> ir.Shape | None:
    """The shape ``[batch, rows, heads * width]`` for a value ``[batch, rows, heads, width]``."""
    sizes = dimensions(value)
    if sizes is None or value.shape is None:
        return None
    heads, width = sizes[2:]
    if not isinstance(heads, int) or not isinstance(width, int):
        return None
    return ir.Shape([*value.shape[:2], heads * width])


def _ends_flat(rewriter: Rewriter, value: ir.Value, found: Attention) -> bool:
    """Returns True if ``attention_node`` will match at the Transpose that follows."""
    for _ in range(3):
        if not rewriter.only_use(value):
            return False
        (reader,) = value.consumers()
        if reader.domain:
            return False
        if reader.op_type == "Transpose":
            flat = _flatten_parts(rewriter, found)
            rewriter.begin()
            return permutation(reader) == HEADS_LAST and flat is not None
        if reader.op_type not in ("Mul", "Where", "Reshape") or dimensions(
            reader.outputs[0]
        ) != dimensions(value):
            return False
        value = reader.outputs[0]
    return False


ATTENTION = Rule(
    "attention", ("Transpose",), attention_node, exact=False, since=SINCE, makes="Attention"
)
ATTENTION_OF_HEADS = Rule(
    "attention_of_heads",
    ("MatMul",),
    attention_of_heads,
    exact=False,
    since=SINCE,
    makes="Attention",
)
