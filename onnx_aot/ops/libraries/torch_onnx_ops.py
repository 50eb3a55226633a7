"""``torch.onnx.ops``: nodes that a model names itself, and ONNX operators as PyTorch functions.

``symbolic`` and ``symbolic_multi_out`` emit the node that they name. ``attention`` and
``rotary_embedding`` are operators of opset 23, written out with others in earlier opsets.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import onnx_ir as ir
import torch

from onnx_aot.builder.builder import Builder
from onnx_aot.builder.domains import ONNX_DOMAINS
from onnx_aot.errors import MissingInOpset, OpsetError, TranslationError
from onnx_aot.ops.core.movement import swap_axes
from onnx_aot.ops.registry import register

__all__: list[str] = []

onnx = torch.ops.onnx
onnx_symbolic = torch.ops.onnx_symbolic
Value = ir.Value
BOOL = ir.DataType.BOOL

SINCE = 23  # Attention and RotaryEmbedding

# Element types without torch tensors; the capture records bytes in their place.
HALF_BYTES = (ir.DataType.UINT4, ir.DataType.INT4)


@register(onnx_symbolic._symbolic.default)
def onnx_symbolic_symbolic(
    op: Builder,
    inputs: Sequence[Value | None],
    op_type: str,
    onnx_dtype: int,
    shape: Sequence[Any],
    attr_keys: Sequence[str],
    attr_types: Sequence[str],
    attr_pos: Sequence[Sequence[int]],
    attr_ints: Sequence[int],
    attr_floats: Sequence[float],
    attr_strs: Sequence[str],
    metadata_props_keys: Sequence[str],
    metadata_props_values: Sequence[str],
    domain: str = "",
    version: int | None = None,
) -> Value:
    """Emits the node that ``torch.onnx.ops.symbolic`` names; ``shape`` was recorded already."""
    attributes = _decode_attributes(
        attr_keys, attr_types, attr_pos, attr_ints, attr_floats, attr_strs
    )
    properties = dict(zip(metadata_props_keys, metadata_props_values, strict=True))
    return _emit_named_operator(
        op, op_type, inputs, attributes, [onnx_dtype], domain, version, properties
    )[0]


@register(onnx_symbolic._symbolic_multi_out.default)
def onnx_symbolic_symbolic_multi_out(
    op: Builder,
    inputs: Sequence[Value | None],
    op_type: str,
    onnx_dtypes: Sequence[int],
    shapes: Sequence[Any],
    attr_keys: Sequence[str],
    attr_types: Sequence[str],
    attr_pos: Sequence[Sequence[int]],
    attr_ints: Sequence[int],
    attr_floats: Sequence[float],
    attr_strs: Sequence[str],
    metadata_props_keys: Sequence[str],
    metadata_props_values: Sequence[str],
    domain: str = "",
    version: int | None = None,
) -> list[Value]:
    """Emits the node that ``symbolic_multi_out`` names, with several outputs."""
    attributes = _decode_attributes(
        attr_keys, attr_types, attr_pos, attr_ints, attr_floats, attr_strs
    )
    properties = dict(zip(metadata_props_keys, metadata_props_values, strict=True))
    return _emit_named_operator(
        op, op_type, inputs, attributes, onnx_dtypes, domain, version, properties
    )


def _decode_attributes(
    keys: Sequence[str],
    kinds: Sequence[str],
    places: Sequence[Sequence[int]],
    ints: Sequence[int],
    floats: Sequence[float],
    texts: Sequence[str],
) -> dict[str, Any]:
    """Decodes attributes: torch keeps all values in one list per type, and their positions."""
    lists: dict[str, Sequence[Any]] = {"i": ints, "f": floats, "s": texts}
    found: dict[str, Any] = {}
    for key, kind, (start, end) in zip(keys, kinds, places, strict=True):
        values = list(lists[kind[0]][start:end])
        found[key] = values if len(kind) == 2 else values[0]
    return found


def _emit_named_operator(
    op: Builder,
    op_type: str,
    inputs: Sequence[Value | None],
    attributes: dict[str, Any],
    types: Sequence[int],
    domain: str,
    version: int | None,
    properties: dict[str, str],
) -> list[Value]:
    own = domain in ONNX_DOMAINS
    if own and version is not None and version > op.opset:
        problem = f"the model names ONNX {op_type} of opset {version}; the opset is {op.opset}"
        raise OpsetError(MissingInOpset(op_type, problem, version))
    if any(ir.DataType(dtype) in HALF_BYTES for dtype in types):
        raise TranslationError(
            f"the model names {op_type} with a result of 4-bit integers, which PyTorch tensors "
            "do not support; cast the result in the same node to INT8 or UINT8",
            code="OA404",
        )
    start = len(op.nodes)
    returned = op.call_op(
        op_type,
        list(inputs),
        attributes,
        domain=domain,
        version=None if own else version,
        outputs=len(types),
    )
    if len(op.nodes) > start:  # a node without an effect is not emitted
        op.nodes[-1].metadata_props.update(properties)
    return list(returned) if isinstance(returned, tuple) else [returned]


# --- RotaryEmbedding -----------------------------------------------------------------------------


@register(onnx.RotaryEmbedding.opset23)
def onnx_rotary_embedding(
    op: Builder,
    x: Value,
    cos_cache: Value,
    sin_cache: Value,
    position_ids: Value | None = None,
    interleaved: bool = False,
    num_heads: int = 0,
    rotary_embedding_dim: int = 0,
) -> Value:
    """RotaryEmbedding (23); before it, the rotation of each pair written out."""
    if op.opset >= SINCE:
        return op.RotaryEmbedding(
            x,
            cos_cache,
            sin_cache,
            position_ids,
            interleaved=int(interleaved),
            num_heads=num_heads,
            rotary_embedding_dim=rotary_embedding_dim,
        )
    heads_last = op.rank(x) == 3
    if heads_last:
        sizes = [*op.all_sizes(x)[:2], num_heads, op.size(x, 2)]
        assert isinstance(sizes[3], int), "the width of what is rotated is fixed"
        sizes[3] //= num_heads
        split = op.Reshape(x, op.sizes(sizes))
    else:
        split = op.Transpose(x, perm=[0, 2, 1, 3])
    width = op.size(split, 3)
    assert isinstance(width, int), "the width of what is rotated is fixed"
    turned = rotary_embedding_dim or width
    cos, sin = (
        op.Unsqueeze(cache if position_ids is None else op.Gather(cache, position_ids), [2])
        for cache in (cos_cache, sin_cache)
    )
    rotated = _rotate_pairs(op, op.Slice(split, [0], [turned], [3]), cos, sin, turned, interleaved)
    if turned < width:
        rotated = op.Concat(rotated, op.Slice(split, [turned], [width], [3]), axis=3)
    if heads_last:
        return op.Reshape(rotated, op.sizes(op.all_sizes(x)))
    return op.Transpose(rotated, perm=[0, 2, 1, 3])


def _rotate_pairs(
    op: Builder, x: Value, cos: Value, sin: Value, width: int, interleaved: bool
) -> Value:
    """Rotates each pair of the last axis of ``[batch, time, heads, width]``."""
    if interleaved:
        one, two = (op.Slice(x, [start], [width], [3], [2]) for start in (0, 1))
    else:
        one, two = op.split(x, [width // 2, width // 2], 3)
    real = op.Sub(op.Mul(cos, one), op.Mul(sin, two))
    imaginary = op.Add(op.Mul(sin, one), op.Mul(cos, two))
    if not interleaved:
        return op.Concat(real, imaginary, axis=3)
    pairs = op.Concat(op.Unsqueeze(real, [4]), op.Unsqueeze(imaginary, [4]), axis=4)
    return op.Reshape(pairs, op.sizes(op.all_sizes(x)))


# --- Attention -----------------------------------------------------------------------------------


@register(onnx.Attention.opset23)
def onnx_attention(
    op: Builder,
    Q: Value,  # noqa: N803
    K: Value,  # noqa: N803
    V: Value,  # noqa: N803
    attn_mask: Value | None = None,
    past_key: Value | None = None,
    past_value: Value | None = None,
    is_causal: bool = False,
    kv_num_heads: int = 0,
    q_num_heads: int = 0,
    qk_matmul_output_mode: int = 0,
    scale: float | None = None,
    softcap: float = 0.0,
    softmax_precision: int | None = None,
) -> list[Value]:
    """Attention (23): the output, the keys and values including past ones, and the scores.

    Written out before opset 23, and wherever PyTorch's function and ONNX Runtime's kernel differ:
    the function caps the scores after masking, its causal mask does not count the past, and its
    scores include the mask in mode 1 and precede the softmax in mode 2.
    """
    masked = is_causal or attn_mask is not None
    differs = (
        (masked and softcap)
        or (is_causal and past_key is not None)
        or qk_matmul_output_mode in (1, 2)
    )
    if op.opset >= SINCE and not differs:
        return list(
            op.Attention(
                Q,
                K,
                V,
                attn_mask,
                past_key,
                past_value,
                is_causal=int(is_causal),
                kv_num_heads=kv_num_heads or None,
                q_num_heads=q_num_heads or None,
                qk_matmul_output_mode=qk_matmul_output_mode,
                scale=scale,
                softcap=softcap,
                softmax_precision=softmax_precision,
                _outputs=4,
            )
        )
    heads_last = op.rank(Q) == 3
    query, key, value = Q, K, V
    if heads_last:
        query = _split_heads(op, Q, q_num_heads)
        key, value = _split_heads(op, K, kv_num_heads), _split_heads(op, V, kv_num_heads)
    if past_key is not None and past_value is not None:
        key = op.Concat(past_key, key, axis=2)
        value = op.Concat(past_value, value, axis=2)
    repeated = [_for_each_query(op, query, each) for each in (key, value)]
    products = _multiply_query_key(op, query, repeated[0], scale)
    biased = products
    if is_causal:
        biased = op.Add(biased, _make_causal_bias(op, query, key))
    if attn_mask is not None:
        biased = op.Add(biased, _convert_mask_to_bias(op, attn_mask, products))
    capped = op.Mul(op.Tanh(op.Div(biased, softcap)), softcap) if softcap else biased
    weights = op.Softmax(op.cast(capped, _type_number(softmax_precision)), axis=-1)
    weights = op.cast(weights, products.dtype)
    attended = op.MatMul(weights, repeated[1])
    plain = not softcap and not qk_matmul_output_mode and softmax_precision is None
    if plain and attn_mask is not None and attn_mask.dtype == BOOL:
        # without options the function is scaled_dot_product_attention, in which a row whose mask
        # admits no key gives zeros
        admitted = op.reduce("ReduceMax", op.cast(attn_mask, ir.DataType.INT32), [-1], True)
        attended = op.Where(op.cast(admitted, BOOL), attended, op.constant(0.0, attended.dtype))
    if heads_last:
        sizes = [*op.all_sizes(Q)[:2], -1]
        attended = op.Reshape(op.Transpose(attended, perm=[0, 2, 1, 3]), op.sizes(sizes))
    scores = (products, biased, capped, weights)[qk_matmul_output_mode]
    return [attended, key, value, scores]


def _type_number(number: int | None) -> ir.DataType | None:
    return None if number is None else ir.DataType(number)


def _split_heads(op: Builder, value: Value, heads: int) -> Value:
    """Reshapes ``[batch, time, heads * width]`` to ``[batch, heads, time, width]``."""
    sizes = op.sizes([*op.all_sizes(value)[:2], heads, -1])
    return op.Transpose(op.Reshape(value, sizes), perm=[0, 2, 1, 3])


def _for_each_query(op: Builder, query: Value, value: Value) -> Value:
    """Repeats each head of keys or values for every query head that shares it."""
    wanted, heads = op.size(query, 1), op.size(value, 1)
    if not isinstance(wanted, int) or not isinstance(heads, int) or wanted == heads:
        return value
    places = torch.arange(heads).repeat_interleave(wanted // heads)
    return op.Gather(value, places, axis=1)


def _multiply_query_key(op: Builder, query: Value, key: Value, scale: float | None) -> Value:
    """Products of queries and keys, both scaled, which keeps half precision in its range."""
    width = op.size(query, 3)
    if scale is None:
        assert isinstance(width, int), "the width of a head is fixed"
        scale = 1.0 / math.sqrt(width)
    root = math.sqrt(scale)
    return op.MatMul(op.Mul(query, root), op.Mul(swap_axes(op, key, -2, -1), root))


def _make_causal_bias(op: Builder, query: Value, key: Value) -> Value:
    """Bias with which query ``i`` sees the keys 0 to ``i``."""
    row = op.Unsqueeze(op.Range(0, op.size(query, 2), 1), [1])
    seen = op.LessOrEqual(op.Range(0, op.size(key, 2), 1), row)
    assert query.dtype is not None
    return op.Where(seen, op.constant(0.0, query.dtype), op.constant(-math.inf, query.dtype))


def _convert_mask_to_bias(op: Builder, mask: Value, like: Value) -> Value:
    if mask.dtype != BOOL:
        return mask
    return op.Where(mask, op.constant(0.0, like.dtype), op.constant(-math.inf, like.dtype))
