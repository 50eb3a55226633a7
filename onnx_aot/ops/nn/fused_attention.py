"""Attention that torch fuses: flash attention and others, and the fast paths of its layers."""

from __future__ import annotations

import math
from typing import Any

import onnx_ir as ir

from onnx_aot.builder.builder import Builder, Size
from onnx_aot.ops.core.indexing import range_of_length
from onnx_aot.ops.core.movement import reshape, swap_axes
from onnx_aot.ops.nn.attention import aten_scaled_dot_product_attention
from onnx_aot.ops.nn.normalization import aten_layer_norm
from onnx_aot.ops.registry import register
from onnx_aot.torch_compat import aten

__all__: list[str] = []

Value = ir.Value
DOUBLE, FLOAT = ir.DataType.DOUBLE, ir.DataType.FLOAT

PADDING = 1
"""Kinds of mask: ``[queries, keys]``, ``[batch, keys]``; any other has one mask per head."""


@register(aten._scaled_dot_product_flash_attention_for_cpu.default)
def aten__scaled_dot_product_flash_attention_for_cpu(
    op: Builder,
    query: Value,
    key: Value,
    value: Value,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    attn_mask: Value | None = None,
    scale: float | None = None,
) -> list[Value | None]:
    """Attention, and for each query the logarithm of the sum of its exponentials.

    Only gradients read the latter; where nothing does, its nodes are removed.
    """
    attended = aten_scaled_dot_product_attention(
        op, query, key, value, attn_mask, dropout_p, is_causal, scale
    )
    scores = _score(op, query, key, is_causal, attn_mask, scale)[0]
    return [attended, op.reduce("ReduceLogSumExp", scores, [-1], keepdims=False)]


@register(aten._scaled_dot_product_flash_attention.default)
def aten__scaled_dot_product_flash_attention(
    op: Builder,
    query: Value,
    key: Value,
    value: Value,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    return_debug_mask: bool = False,
    scale: float | None = None,
) -> list[Value | None]:
    """Attention of CUDA, and the logarithms of the sums, as on the CPU; nothing for gradients."""
    results = aten__scaled_dot_product_flash_attention_for_cpu(
        op, query, key, value, dropout_p, is_causal, None, scale
    )
    return results + [None] * 7


@register(aten._scaled_dot_product_efficient_attention.default)
def aten__scaled_dot_product_efficient_attention(
    op: Builder,
    query: Value,
    key: Value,
    value: Value,
    attn_bias: Value | None,
    compute_log_sumexp: bool,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    scale: float | None = None,
) -> list[Value | None]:
    """Attention of CUDA, without what only its gradients read."""
    attended = aten_scaled_dot_product_attention(
        op, query, key, value, attn_bias, dropout_p, is_causal, scale
    )
    return [attended, None, None, None]


@register(aten._scaled_dot_product_cudnn_attention.default)
def aten__scaled_dot_product_cudnn_attention(
    op: Builder,
    query: Value,
    key: Value,
    value: Value,
    attn_bias: Value | None,
    compute_log_sumexp: bool,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    return_debug_mask: bool = False,
    scale: float | None = None,
) -> list[Value | None]:
    """Attention of CUDA, without what only its gradients read."""
    attended = aten_scaled_dot_product_attention(
        op, query, key, value, attn_bias, dropout_p, is_causal, scale
    )
    return [attended] + [None] * 8


def _score(
    op: Builder,
    query: Value,
    key: Value,
    is_causal: bool,
    mask: Value | None,
    scale: float | None,
) -> tuple[Value, Size | float]:
    """Masked scores ``[..., queries, keys]`` in float32 at least, and the factor in them."""
    wide = DOUBLE if query.dtype == DOUBLE else FLOAT
    factor: Any = scale
    if factor is None:
        width = op.size(query, -1)
        if isinstance(width, int):
            factor = 1 / math.sqrt(width)
        else:
            factor = op.Reciprocal(op.Sqrt(op.cast(width, wide)))
    products = op.MatMul(op.cast(query, wide), swap_axes(op, op.cast(key, wide), -2, -1))
    scores = op.Mul(products, factor)
    if is_causal:
        row = op.Unsqueeze(range_of_length(op, 0, op.size(query, -2)), [1])
        later = op.Greater(range_of_length(op, 0, op.size(key, -2)), row)
        scores = op.Where(later, -math.inf, scores)
    if mask is not None and mask.dtype == ir.DataType.BOOL:
        scores = op.Where(mask, scores, -math.inf)
    elif mask is not None:
        scores = op.Add(scores, op.cast(mask, wide))
    return scores, factor


@register(aten._scaled_dot_product_flash_attention_for_cpu_backward.default)
def aten__scaled_dot_product_flash_attention_for_cpu_backward(
    op: Builder,
    grad_out: Value,
    query: Value,
    key: Value,
    value: Value,
    out: Value,
    logsumexp: Value,
    dropout_p: float,
    is_causal: bool,
    attn_mask: Value | None = None,
    scale: float | None = None,
) -> list[Value]:
    """Gradients of the queries, keys and values, by the weights of the attention.

    The gradient of a softmax ``w`` is ``w (g - sum(w g))``, and the sum here is that of the output
    times its gradient.
    """
    scores, factor = _score(op, query, key, is_causal, attn_mask, scale)
    wide = scores.dtype
    weights = op.Exp(op.Sub(scores, op.Unsqueeze(op.cast(logsumexp, wide), [-1])))
    grad, output = op.cast(grad_out, wide), op.cast(out, wide)
    by_value = op.MatMul(swap_axes(op, weights, -2, -1), grad)
    by_weights = op.MatMul(grad, swap_axes(op, op.cast(value, wide), -2, -1))
    mean = op.reduce("ReduceSum", op.Mul(grad, output), [-1], True)
    by_scores = op.Mul(op.Mul(weights, op.Sub(by_weights, mean)), factor)
    by_query = op.MatMul(by_scores, op.cast(key, wide))
    by_key = op.MatMul(swap_axes(op, by_scores, -2, -1), op.cast(query, wide))
    return [op.cast(grad, query.dtype) for grad in (by_query, by_key, by_value)]


@register(aten._native_multi_head_attention.default)
def aten__native_multi_head_attention(
    op: Builder,
    query: Value,
    key: Value,
    value: Value,
    embed_dim: int,
    num_head: int,
    qkv_weight: Value,
    qkv_bias: Value,
    proj_weight: Value,
    proj_bias: Value,
    mask: Value | None = None,
    need_weights: bool = True,
    average_attn_weights: bool = True,
    mask_type: int | None = None,
) -> list[Value | None]:
    """Projected attention and its weights; the mask is true where a key is left out."""
    weights = op.split(qkv_weight, [embed_dim] * 3, 0)
    biases = op.split(qkv_bias, [embed_dim] * 3, 0)
    batch, width = op.size(query, 0), embed_dim // num_head
    heads = []
    for source, weight, bias in zip((query, key, value), weights, biases, strict=True):
        projected = op.Add(op.MatMul(source, op.Transpose(weight, perm=[1, 0])), bias)
        split = reshape(op, projected, [batch, op.size(source, 1), num_head, width])
        heads.append(op.Transpose(split, perm=[0, 2, 1, 3]))
    scaled = op.Mul(heads[0], 1.0 / math.sqrt(width))
    scores = op.MatMul(scaled, swap_axes(op, heads[1], -2, -1))
    if mask is not None:
        if mask_type == PADDING:
            mask = op.Unsqueeze(mask, [1, 2])
        scores = op.Where(op.cast(mask, ir.DataType.BOOL), -math.inf, scores)
    attention = op.Softmax(scores, axis=-1)
    joined = op.Transpose(op.MatMul(attention, heads[2]), perm=[0, 2, 1, 3])
    joined = reshape(op, joined, [batch, op.size(query, 1), embed_dim])
    output = op.Add(op.MatMul(joined, op.Transpose(proj_weight, perm=[1, 0])), proj_bias)
    if not need_weights:
        return [output, None]
    if average_attn_weights:
        attention = op.reduce("ReduceMean", attention, [1], False)
    return [output, attention]


@register(aten._transformer_encoder_layer_fwd.default)
def aten__transformer_encoder_layer_fwd(
    op: Builder,
    src: Value,
    embed_dim: int,
    num_heads: int,
    qkv_weight: Value,
    qkv_bias: Value,
    proj_weight: Value,
    proj_bias: Value,
    use_gelu: bool,
    norm_first: bool,
    eps: float,
    norm_weight_1: Value,
    norm_bias_1: Value,
    norm_weight_2: Value,
    norm_bias_2: Value,
    ffn_weight_1: Value,
    ffn_bias_1: Value,
    ffn_weight_2: Value,
    ffn_bias_2: Value,
    mask: Value | None = None,
    mask_type: int | None = None,
) -> Value:
    """Attention and two linear layers, each added to its input; normalized before or after."""

    def normalize(x: Value, weight: Value, bias: Value) -> Value:
        x = aten_layer_norm(op, x, (embed_dim,), weight, bias, eps)
        x.shape = src.shape
        return x

    def attend(x: Value) -> Value:
        rest = (qkv_weight, qkv_bias, proj_weight, proj_bias, mask, False, True, mask_type)
        result = aten__native_multi_head_attention(op, x, x, x, embed_dim, num_heads, *rest)[0]
        assert result is not None
        return result

    def feed_forward(x: Value) -> Value:
        x = op.Add(op.MatMul(x, op.Transpose(ffn_weight_1, perm=[1, 0])), ffn_bias_1)
        if use_gelu:
            half = op.Mul(x, 0.5)
            x = op.Mul(half, op.Add(op.Erf(op.Mul(x, 1.0 / math.sqrt(2.0))), 1.0))
        else:
            x = op.Relu(x)
        return op.Add(op.MatMul(x, op.Transpose(ffn_weight_2, perm=[1, 0])), ffn_bias_2)

    first, second = (norm_weight_1, norm_bias_1), (norm_weight_2, norm_bias_2)
    if norm_first:
        value = op.Add(src, attend(normalize(src, *first)))
        return op.Add(value, feed_forward(normalize(value, *second)))
    value = normalize(op.Add(src, attend(src)), *first)
    return normalize(op.Add(value, feed_forward(value)), *second)
