"""Fuses attention behind a key-value cache into an operator that can write into that cache.

The rule here changes which inputs a model takes, so it runs only where ``optimize`` names it.
"""

from __future__ import annotations

import dataclasses

import onnx_ir as ir
import torch

from onnx_aot import dtypes
from onnx_aot.ir_passes.fusions.attention_pattern import (
    HEADS_LAST,
    Attention,
    match_masked_attention,
    match_repeated_heads,
    match_split_heads,
)
from onnx_aot.ir_passes.fusions.cache_masks import CacheMask, match_cache_mask
from onnx_aot.ir_passes.fusions.matching import dimensions, emit_extent, permutation
from onnx_aot.ir_passes.rewriter import Rewriter, Rule

__all__ = ["SHARED_CACHE"]

MICROSOFT = "com.microsoft"
ROWS = (2, -2)
BEFORE_PRODUCT = {"Expand", "Mul", "Reshape", "Transpose", "Unsqueeze"}


def shared_cache(node: ir.Node, rewriter: Rewriter) -> bool:
    """Fuses attention and its cache into a node whose cache may be longer than the tokens so far.

    Before::

        keys, values = Concat(past_keys, k, axis=-2), Concat(past_values, v, axis=-2)
        bias = Where(And(LessOrEqual(Range(total), Range(rows) + past), mask), 0, low)
        a = MatMul(Softmax(Add(MatMul(Mul(q, scale), Transpose(keys)), bias)), values)
        y = Transpose(a, perm=[0, 2, 1, 3])

    After::

        begun = CumSum(mask) > 0
        last = Max(ReduceSum(Where(begun, mask, 1)), rows) - 1
        bias = Expand(Where(begun, 0, low))
        a, keys, values = com.microsoft.GroupQueryAttention(
            xq, xk, xv, past_keys, past_values, last, total, attention_bias=bias
        )
        y = Reshape(a, [0, 0, heads, width])

    The caches are graph inputs. A program that runs the model may give one buffer for ``past_keys``
    and ``keys``, of any length from ``total`` on. Zeros of ``mask`` are padding, in front of the
    tokens of a row or behind those of its first step. The operator writes later tokens over padding
    behind: so only the first step may have several rows of several tokens. A window that is part of
    the mask becomes an attribute, and so does a cap of the scores, ``cap * tanh(scores / cap)``.
    Sinks, another score in each row whose weight is dropped, become an input.
    """
    if permutation(node) != HEADS_LAST:
        return False
    masked = match_masked_attention(rewriter, node.inputs[0], extended=True)
    found = None if masked is None else _match_cached(rewriter, masked.attention)
    if masked is None or found is None:
        return False
    like = masked.attention.first
    rows = dimensions(found.keys.new)
    assert rows is not None
    mask = match_cache_mask(rewriter, masked.attention.bias, rows[2])
    flat = [_flatten(rewriter, v, like) for v in (found.query, found.keys.new, found.values.new)]
    if mask is None or any(value is None for value in flat):
        return False
    query = flat[0]
    assert query is not None
    lengths = _emit_lengths(rewriter, mask, query, like)
    inputs = [*flat, found.keys.past, found.values.past, lengths.last, lengths.total]
    inputs += [None, None, None, lengths.bias]
    if masked.attention.sinks is not None:
        inputs.append(_flat_sinks(rewriter, masked.attention.sinks, found.heads))
    attributes = {
        "num_heads": found.heads,
        "kv_num_heads": rows[1],
        "scale": masked.attention.scale,
        "local_window_size": mask.window,
        "softcap": masked.attention.cap or None,
    }
    dtype = query.dtype
    made = rewriter.emit_many(
        "GroupQueryAttention", inputs, attributes, like=like, dtypes=[dtype] * 3, domain=MICROSOFT
    )
    made[0].shape = query.shape.copy() if query.shape is not None else None
    # Some masks select rows. Behind the tokens of a row, a window leaves memory as it was.
    selects = masked.rows is not None or mask.window is not None
    attended = _zero_padding(rewriter, made[0], lengths, like) if selects else made[0]
    sizes = dimensions(node.outputs[0])
    assert sizes is not None
    into = rewriter.initializer(torch.tensor([0, 0, *sizes[2:]], dtype=torch.int64))
    rewriter.replace(node.outputs[0], rewriter.emit("Reshape", [attended, into], like=like))
    rewriter.replace(found.keys.whole, made[1])
    rewriter.replace(found.values.whole, made[2])
    return True


@dataclasses.dataclass(frozen=True)
class _Cache:
    """Past and new keys or values, ``[batch, groups, length, width]``, and both in one."""

    past: ir.Value
    new: ir.Value
    whole: ir.Value


@dataclasses.dataclass(frozen=True)
class _Cached:
    """Attention of queries ``[batch, heads, rows, width]`` on keys and values of a cache."""

    query: ir.Value
    heads: int
    keys: _Cache
    values: _Cache


def _match_cached(rewriter: Rewriter, found: Attention) -> _Cached | None:
    """The parts of an attention that the operator can compute, or None."""
    if found.rows_first or found.key is found.value or found.query.dtype != found.value.dtype:
        return None
    parts = [match_repeated_heads(rewriter, v) for v in (found.key, found.value)]
    whole = [
        v if part is None else part.value
        for v, part in zip((found.key, found.value), parts, strict=True)
    ]
    keys, values = (_match_cache(rewriter, value) for value in whole)
    query = dimensions(found.query)
    if keys is None or values is None or query is None:
        return None
    sizes = dimensions(keys.new)
    if sizes is None or sizes != dimensions(values.new) or len({keys.whole, values.whole}) == 1:
        return None
    heads, groups, width = query[1], sizes[1], sizes[3]
    if not isinstance(heads, int) or not isinstance(groups, int) or not isinstance(width, int):
        return None
    if query != [sizes[0], heads, *sizes[2:]] or heads % groups or width % 8:
        return None
    return _Cached(found.query, heads, keys, values)


def _match_cache(rewriter: Rewriter, value: ir.Value) -> _Cache | None:
    """The parts of keys or values that only the attention reads, and of which one is an input."""
    joined = rewriter.producer(value, "Concat")
    if joined is None or len(joined.inputs) != 2 or not _is_for_one_product(value):
        return None
    past, new = joined.inputs
    if past is None or new is None or joined.attributes["axis"].as_int() not in ROWS:
        return None
    before, added = dimensions(past), dimensions(new)
    if before is None or added is None or len(before) != 4 or past.dtype != new.dtype:
        return None
    is_cache = past.is_graph_input() and value.is_graph_output()
    fits = [*before[:2], before[3]] == [*added[:2], added[3]]
    return _Cache(past, new, value) if is_cache and fits else None


def _is_for_one_product(value: ir.Value) -> bool:
    """Returns True if a value, repeated, moved or scaled, is an operand of one product alone."""
    while True:
        readers = value.consumers()
        if len(readers) != 1 or readers[0].domain:
            return False
        if readers[0].op_type == "MatMul":
            return True
        if readers[0].op_type not in BEFORE_PRODUCT:
            return False
        (value,) = readers[0].outputs


def _flat_sinks(rewriter: Rewriter, sinks: ir.Value, heads: int) -> ir.Value:
    """Stored sinks ``[1, heads, 1, 1]`` as ``[heads]``."""
    assert sinks.dtype is not None
    return rewriter.fold(torch.flatten, [sinks], dtype=sinks.dtype, shape=[heads], key="flat_sinks")


# --- rows before heads ---------------------------------------------------------------------------


def _flatten(rewriter: Rewriter, value: ir.Value, like: ir.Node) -> ir.Value | None:
    """A value ``[batch, heads, rows, width]`` as ``[batch, rows, heads * width]``."""
    sizes = dimensions(value)
    if sizes is None or value.shape is None:
        return None
    batch, heads, rows, width = value.shape.dims
    if not isinstance(heads, int) or not isinstance(width, int):
        return None
    shape = ir.Shape([batch, rows, heads * width])
    rotary = rewriter.producer(value, "RotaryEmbedding")
    if rotary is not None and rewriter.only_use(value) and rotary.inputs[0] is not None:
        flat = _flatten(rewriter, rotary.inputs[0], like)
        attributes = {**rotary.attributes, "num_heads": ir.AttrInt64("num_heads", heads)}
        if flat is not None and "num_heads" not in rotary.attributes:
            inputs = [flat, *rotary.inputs[1:]]
            return rewriter.emit("RotaryEmbedding", inputs, attributes, like=rotary, shape=shape)
    split = match_split_heads(rewriter, value)
    if split is not None:
        return split.source
    into = rewriter.initializer(torch.tensor([0, 0, heads * width], dtype=torch.int64))
    return rewriter.emit(
        "Reshape", [_rows_first(rewriter, value, like), into], like=like, shape=shape
    )


def _rows_first(rewriter: Rewriter, value: ir.Value, like: ir.Node) -> ir.Value:
    """A value ``[batch, heads, rows, width]`` as ``[batch, rows, heads, width]``."""
    assert value.shape is not None
    shape = ir.Shape([value.shape[axis] for axis in HEADS_LAST])
    transpose = rewriter.producer(value, "Transpose")
    if transpose is not None and permutation(transpose) == HEADS_LAST:
        assert transpose.inputs[0] is not None
        return transpose.inputs[0]
    norm = rewriter.producer(value, "RMSNormalization")
    if (
        norm is not None
        and rewriter.only_use(value)
        and norm.attributes.get_int("axis", -1) in (-1, 3)
    ):
        assert norm.inputs[0] is not None
        inputs = [_rows_first(rewriter, norm.inputs[0], like), *norm.inputs[1:]]
        return rewriter.emit("RMSNormalization", inputs, norm.attributes, like=norm, shape=shape)
    return rewriter.emit("Transpose", [value], {"perm": HEADS_LAST}, like=like, shape=shape)


# --- lengths and padding -------------------------------------------------------------------------


@dataclasses.dataclass(frozen=True)
class _Lengths:
    """Lengths and padding of the tokens so far, as the operator takes them.

    Attributes:
        last: Index of the last token in the cache, INT32 ``[batch]``.
        total: Number of tokens of the longest row, INT32 ``[1]``.
        mask: 0 at padding, INT64 ``[batch, total]``.
        bias: Excludes that padding, ``[batch, 1, rows, total]``.
        sizes: Sizes of new and of all tokens, INT64 ``[1]`` each.
    """

    last: ir.Value
    total: ir.Value
    mask: ir.Value
    bias: ir.Value
    sizes: tuple[ir.Value, ir.Value]


def _emit_lengths(rewriter: Rewriter, found: CacheMask, query: ir.Value, like: ir.Node) -> _Lengths:
    mask = found.mask
    assert mask.shape is not None
    assert query.shape is not None
    batch = mask.shape[0]
    zero, one = (rewriter.initializer(torch.tensor(n, dtype=torch.int64)) for n in (0, 1))
    axis = rewriter.initializer(torch.ones(1, dtype=torch.int64))
    rows, total = emit_extent(rewriter, query, 1, like), emit_extent(rewriter, mask, 1, like)
    boolean = ir.DataType.BOOL
    sums = rewriter.emit("CumSum", [mask, one], like=like, shape=mask.shape)
    begun = rewriter.emit("Greater", [sums, zero], like=like, dtype=boolean, shape=mask.shape)
    kept = rewriter.emit("Where", [begun, mask, one], like=like, dtype=mask.dtype, shape=mask.shape)
    count = rewriter.emit(
        "ReduceSum", [kept, axis], {"keepdims": 0}, like=like, shape=ir.Shape([batch])
    )
    # The operator takes the first step as a whole, padding behind tokens too. In later steps the
    # new tokens are counted already, so the larger number needs no test for the first step.
    long = rewriter.emit("Max", [count, rows], like=like, shape=ir.Shape([batch]))
    last = rewriter.emit("Sub", [long, one], like=like, shape=ir.Shape([batch]))
    narrow = {"to": ir.DataType.INT32.value}
    last, as_int32 = (
        rewriter.emit("Cast", [v], narrow, like=like, dtype=ir.DataType.INT32, shape=v.shape)
        for v in (last, total)
    )
    return _Lengths(
        last, as_int32, mask, _emit_bias(rewriter, begun, query, rows, like), (rows, total)
    )


def _emit_bias(
    rewriter: Rewriter, begun: ir.Value, query: ir.Value, rows: ir.Value, like: ir.Node
) -> ir.Value:
    assert begun.shape is not None
    assert query.shape is not None
    batch, whole = begun.shape.dims
    dtype = dtypes.to_torch(query.dtype)
    low = torch.tensor(torch.finfo(dtype).min / 2, dtype=dtype)  # a score is added to it
    numbers = [rewriter.initializer(n) for n in (torch.zeros((), dtype=dtype), low)]
    bias = rewriter.emit(
        "Where", [begun, *numbers], like=like, dtype=query.dtype, shape=begun.shape
    )
    middle = rewriter.initializer(torch.tensor([1, 2], dtype=torch.int64))
    one = rewriter.initializer(torch.ones(1, dtype=torch.int64))
    shape = ir.Shape([batch, 1, 1, whole])
    bias = rewriter.emit("Unsqueeze", [bias, middle], like=like, shape=shape)
    into = rewriter.emit("Concat", [one, rows, one], {"axis": 0}, like=like, shape=[3])
    return rewriter.emit(
        "Expand", [bias, into], like=like, shape=ir.Shape([batch, 1, query.shape[1], whole])
    )


def _zero_padding(
    rewriter: Rewriter, attended: ir.Value, lengths: _Lengths, like: ir.Node
) -> ir.Value:
    """Zeros in place of what attention gives for new tokens that are padding."""
    assert attended.shape is not None
    batch, length, _ = attended.shape.dims
    shape, boolean = ir.Shape([batch, length]), ir.DataType.BOOL
    axis = rewriter.initializer(torch.ones(1, dtype=torch.int64))
    rows, total = lengths.sizes
    start = rewriter.emit("Sub", [total, rows], like=like, shape=[1])
    new = rewriter.emit("Slice", [lengths.mask, start, total, axis], like=like, shape=shape)
    kept = rewriter.emit(
        "Cast", [new], {"to": boolean.value}, like=like, dtype=boolean, shape=shape
    )
    behind = rewriter.initializer(torch.tensor([2], dtype=torch.int64))
    kept = rewriter.emit("Unsqueeze", [kept, behind], like=like, shape=ir.Shape([batch, length, 1]))
    zero = rewriter.initializer(torch.zeros((), dtype=dtypes.to_torch(attended.dtype)))
    return rewriter.emit(
        "Where", [kept, attended, zero], like=like, dtype=attended.dtype, shape=attended.shape
    )


SHARED_CACHE = Rule("shared_cache", ("Transpose",), shared_cache, exact=False)
