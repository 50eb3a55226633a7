"""Fuses nodes into operators that only ONNX Runtime has, for ``contrib_ops=True``.

Not included are operators that it fuses by itself when it loads a model, such as
``SkipLayerNormalization``, ``BiasGelu``, ``QuickGelu`` and ``FusedMatMul``, and those that are
slower than ONNX's own operators, such as ``SkipSimplifiedLayerNormalization``.
"""

from __future__ import annotations

import onnx_ir as ir
import torch

from onnx_aot.ir_passes.fusions.attention_pattern import Attention, has_attention
from onnx_aot.ir_passes.fusions.bounds import counts_up
from onnx_aot.ir_passes.fusions.dot_product_attention import Flat, every_row, flat_attention
from onnx_aot.ir_passes.fusions.matching import dimensions, emit_extent, scalar_constant
from onnx_aot.ir_passes.fusions.rotary_embedding import halve_cache, match_rotation
from onnx_aot.ir_passes.rewriter import Rewriter, Rule

__all__ = [
    "GROUP_QUERY_ATTENTION",
    "MICROSOFT_ROTARY_EMBEDDING",
    "MULTI_HEAD_ATTENTION",
    "mask_of_bias",
    "split_conjunction",
]

MICROSOFT = "com.microsoft"
ROWS, KEYS = -2, -1
LOW, LOW_IN_HALF = -1e30, -6e4  # float16 ends at -65504


def microsoft_rotary_embedding(node: ir.Node, rewriter: Rewriter) -> bool:
    """Fuses a rotation into one node before opset 23, which has an ONNX operator for it.

    Before::

        cos, sin = Unsqueeze(Cos(Concat(a, a)), [1]), Unsqueeze(Sin(Concat(a, a)), [1])
        y = Add(Mul(x, cos), Mul(Concat(Neg(Slice(x, half:)), Slice(x, :half)), sin))

    After::

        y = com.microsoft.RotaryEmbedding(x, [0], Squeeze(Cos(a), [0]), Squeeze(Sin(a), [0]))
    """
    found = match_rotation(rewriter, node)
    if found is None or rewriter.opset >= 23 or found.x.dtype != ir.DataType.FLOAT:
        return False
    first = rewriter.initializer(torch.zeros(1, dtype=torch.int64))
    caches = []
    for value in (found.cos, found.sin):
        half = halve_cache(rewriter, value, found)
        sizes = dimensions(half)
        if half is None or half.shape is None or sizes is None or sizes[0] != 1:
            return False
        shape = ir.Shape(half.shape[1:])
        caches.append(rewriter.emit("Squeeze", [half, first], like=found.first, shape=shape))
    emitted = rewriter.emit(
        "RotaryEmbedding", [found.x, first, *caches], like=found.first, domain=MICROSOFT
    )
    rewriter.replace(node.outputs[0], emitted)
    return True


def group_query_attention(node: ir.Node, rewriter: Rewriter) -> bool:
    """Fuses causal attention into one node, which skips the keys after each query.

    Before::

        q, k, v = Transpose(Reshape(xq, [0, 0, heads, width]), perm=[0, 2, 1, 3]), ...
        bias = Where(And(LessOrEqual(Range(keys), Unsqueeze(Range(rows))), some), 0, low)
        a = MatMul(Softmax(Add(MatMul(Mul(q, scale), Transpose(k)), bias)), v)
        y = Transpose(a, perm=[0, 2, 1, 3])

    After::

        lengths = Expand(rows - 1, [batch])
        a = com.microsoft.GroupQueryAttention(xq, xk, xv, lengths, rows, attention_bias=bias)
        y = Reshape(a, [0, 0, heads, width])

    Without ``some`` there is no bias. Groups of heads may share keys and values that were repeated
    before.
    """
    return flat_attention(node, rewriter, _emit_group_query)


def _emit_group_query(
    rewriter: Rewriter, found: Attention, query: Flat, key: Flat, value: Flat
) -> ir.Value | None:
    mask = mask_of_bias(rewriter, found.bias)
    sizes, others = dimensions(query.value), dimensions(key.value)
    if mask is None or sizes is None or others is None or dimensions(value.value) != others:
        return None
    width = sizes[2] // query.heads if isinstance(sizes[2], int) else 0
    if sizes[:2] != others[:2] or width % 8:
        return None
    only = _is_causal(rewriter, mask, sizes[1])
    if not only and not any(
        _is_causal(rewriter, part, sizes[1]) for part in split_conjunction(rewriter, mask)
    ):
        return None
    like = found.first
    lengths, total = _emit_lengths(rewriter, query.value, like)
    bias = None if only else every_row(rewriter, found)
    inputs = [query.value, key.value, value.value, None, None, lengths, total]
    if bias is not None:
        inputs += [None, None, None, bias]
    attributes = {"num_heads": query.heads, "kv_num_heads": key.heads, "scale": found.scale}
    return rewriter.emit("GroupQueryAttention", inputs, attributes, like=like, domain=MICROSOFT)


def _emit_lengths(rewriter: Rewriter, query: ir.Value, like: ir.Node) -> tuple[ir.Value, ir.Value]:
    """Emits, as INT32, the index of the last key per batch element, and the number of keys."""
    rows, batch = (emit_extent(rewriter, query, axis, like) for axis in (1, 0))
    count = rewriter.emit("Cast", [rows], {"to": 6}, like=like, dtype=ir.DataType.INT32, shape=[1])
    one = rewriter.initializer(torch.ones(1, dtype=torch.int32))
    last = rewriter.emit("Sub", [count, one], like=like, shape=[1])
    assert query.shape is not None
    lengths = rewriter.emit("Expand", [last, batch], like=like, shape=ir.Shape(query.shape[:1]))
    axis = rewriter.initializer(torch.zeros(1, dtype=torch.int64))
    return lengths, rewriter.emit("Squeeze", [count, axis], like=like, shape=[])


def mask_of_bias(rewriter: Rewriter, bias: ir.Value | None) -> ir.Value | None:
    """The mask that is true where a bias is zero; None if the bias is of another form."""
    where = rewriter.producer(bias, "Where")
    if where is None or scalar_constant(rewriter, where.inputs[1]) != 0.0:
        return None
    low = scalar_constant(rewriter, where.inputs[2])
    largest = LOW_IN_HALF if where.outputs[0].dtype == ir.DataType.FLOAT16 else LOW
    return where.inputs[0] if low is not None and low < largest else None


def split_conjunction(rewriter: Rewriter, mask: ir.Value) -> list[ir.Value]:
    """The operands of nested And nodes, which make up a mask."""
    parts: list[ir.Value] = []
    pending = [mask]
    while pending and len(parts) < 8:
        value = pending.pop()
        node = rewriter.producer(value, "And")
        if node is None:
            parts.append(value)
        else:
            pending += [operand for operand in node.inputs if operand is not None]
    return parts


def _is_causal(rewriter: Rewriter, mask: ir.Value, size: int | str) -> bool:
    """Returns True if a mask is true where the key's index does not exceed the query's."""
    node = mask.producer()
    if node is None or node.domain or node.op_type not in ("LessOrEqual", "GreaterOrEqual"):
        return False
    keys, rows = node.inputs if node.op_type == "LessOrEqual" else reversed(node.inputs)
    return _counts_along_axis(rewriter, keys, KEYS, size) and _counts_along_axis(
        rewriter, rows, ROWS, size
    )


def _counts_along_axis(
    rewriter: Rewriter, value: ir.Value | None, axis: int, size: int | str
) -> bool:
    """Returns True if a value is 0, 1, 2, ... along an axis, and all other axes have size 1."""
    sizes = dimensions(value)
    if sizes is None or len(sizes) < -axis or sizes[axis] != size:
        return False
    if any(length != 1 for length in sizes[:axis] + sizes[len(sizes) + axis + 1 :]):
        return False
    node = rewriter.producer(value, "Unsqueeze")
    while node is not None:
        value = node.inputs[0]
        node = rewriter.producer(value, "Unsqueeze")
    return counts_up(rewriter, value)


def multi_head_attention(node: ir.Node, rewriter: Rewriter) -> bool:
    """Fuses attention into one node, where ONNX's own operator, which is faster, is not used.

    Before::

        q, k, v = Transpose(Reshape(xq, [0, 0, heads, width]), perm=[0, 2, 1, 3]), ...
        a = MatMul(Softmax(Add(MatMul(Mul(q, scale), Transpose(k)), bias)), v)
        y = Transpose(a, perm=[0, 2, 1, 3])

    After::

        a = com.microsoft.MultiHeadAttention(xq, xk, xv, attention_bias=bias)
        y = Reshape(a, [0, 0, heads, width])
    """
    return not has_attention(rewriter) and flat_attention(node, rewriter, _emit_multi_head)


def _emit_multi_head(
    rewriter: Rewriter, found: Attention, query: Flat, key: Flat, value: Flat
) -> ir.Value | None:
    if query.heads != key.heads:
        return None
    inputs: list[ir.Value | None] = [query.value, key.value, value.value]
    if found.bias is not None:
        if len(dimensions(found.bias) or ()) != 4:
            return None
        inputs += [None, None, every_row(rewriter, found)]
    attributes = {"num_heads": query.heads, "scale": found.scale}
    return rewriter.emit(
        "MultiHeadAttention", inputs, attributes, like=found.first, domain=MICROSOFT
    )


MICROSOFT_ROTARY_EMBEDDING = Rule(
    "microsoft_rotary_embedding", ("Add",), microsoft_rotary_embedding, exact=False
)
GROUP_QUERY_ATTENTION = Rule(
    "group_query_attention", ("Transpose",), group_query_attention, exact=False
)
MULTI_HEAD_ATTENTION = Rule(
    "multi_head_attention", ("Transpose",), multi_head_attention, exact=False
)
