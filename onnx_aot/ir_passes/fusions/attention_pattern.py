"""Recognizes ``softmax(q k^T * scale + bias) v`` and its parts."""

from __future__ import annotations

import dataclasses

import onnx_ir as ir

from onnx_aot.ir_passes.fusions.matching import (
    both_orders,
    dimensions,
    permutation,
    scalar_constant,
    single_use,
)
from onnx_aot.ir_passes.rewriter import Rewriter

__all__ = [
    "HEADS_LAST",
    "SINCE",
    "Attention",
    "Grouped",
    "Masked",
    "Split",
    "has_attention",
    "match_attention",
    "match_masked_attention",
    "match_repeated_heads",
    "match_split_heads",
    "same_shape",
]

SINCE = 23
"""Opset that has the operator ``Attention``."""

HEADS_LAST = [0, 2, 1, 3]
SCORES_OF_ROWS = [0, 2, 3, 1]


@dataclasses.dataclass(frozen=True)
class Attention:
    """An attention whose values are, or broadcast to, ``[batch, heads, rows, width]``.

    Attributes:
        query: The queries before scaling.
        key: The keys, not transposed; ``[batch, rows, heads, width]`` if ``rows_first``.
        rows_first: Whether the rows of ``key`` come before the heads.
        value: The values that the attention weights are multiplied with.
        bias: The bias that is added to the scores.
        scale: The factor of the scores.
        first: The first of the nodes.
        cap: Scores before the bias are ``cap * tanh(score / cap)``; 0: they are not capped.
        sinks: Another score of each row, ``[1, heads, 1, 1]``, of a key without a value, or None.
    """

    query: ir.Value
    key: ir.Value
    rows_first: bool
    value: ir.Value
    bias: ir.Value | None
    scale: float
    first: ir.Node
    cap: float = 0.0
    sinks: ir.Value | None = None


def has_attention(rewriter: Rewriter) -> bool:
    """Returns True if attention becomes one node in the opset of the graph."""
    return rewriter.opset >= SINCE and rewriter.has_kernel("Attention")


def match_attention(
    rewriter: Rewriter, node: ir.Node | None, extended: bool = False
) -> Attention | None:
    """The attention whose last node is the given MatMul, if it has four dimensions.

    It may have a cap, sinks, and a softmax in another type if ``extended`` is true.
    """
    if node is None or node.op_type != "MatMul" or node.domain:
        return None
    weights, value = node.inputs
    if extended:
        weights = _without_cast(rewriter, weights)
    behind = _match_all_but_last(rewriter, weights) if extended else None
    softmax = single_use(rewriter, weights if behind is None else behind, "Softmax")
    if softmax is None or value is None or softmax.attributes.get_int("axis", -1) not in (-1, 3):
        return None
    if any(len(dimensions(v) or ()) != 4 for v in (value, node.outputs[0])):
        return None
    scores = _without_cast(rewriter, softmax.inputs[0]) if extended else softmax.inputs[0]
    if behind is None:
        return _match_scores(rewriter, scores, value, extended)
    scores, sinks = _match_sinks(rewriter, scores)
    found = None if sinks is None else _match_scores(rewriter, scores, value, extended)
    return None if found is None else dataclasses.replace(found, sinks=sinks)


def _without_cast(rewriter: Rewriter, value: ir.Value | None) -> ir.Value | None:
    """The operand of a Cast, as around a softmax in float32; otherwise the value itself."""
    cast = single_use(rewriter, value, "Cast")
    return value if cast is None else cast.inputs[0]


def _match_all_but_last(rewriter: Rewriter, value: ir.Value | None) -> ir.Value | None:
    """The value of which another is all but the last element of each row."""
    part = single_use(rewriter, value, "Slice")
    if part is None:
        return None
    numbers = [rewriter.constant(bound) for bound in part.inputs[1:]]
    bounds = [None if tensor is None else tensor.tolist() for tensor in numbers]
    fits = bounds[:2] == [[0], [-1]] and bounds[2:] in ([[3]], [[-1]], [[3], [1]], [[-1], [1]])
    return part.inputs[0] if fits else None


def _match_sinks(
    rewriter: Rewriter, scores: ir.Value | None
) -> tuple[ir.Value | None, ir.Value | None]:
    """Scores of keys, and the stored score ``[1, heads, 1, 1]`` behind them in each row."""
    joined = single_use(rewriter, scores, "Concat")
    if (
        joined is None
        or len(joined.inputs) != 2
        or joined.attributes["axis"].as_int() not in (-1, 3)
    ):
        return None, None
    inner, last = joined.inputs
    expand = rewriter.producer(last, "Expand")
    sinks = None if expand is None else expand.inputs[0]
    sizes, heads = dimensions(sinks), dimensions(inner)
    if sizes is None or heads is None or len(heads) != 4 or sizes != [1, heads[1], 1, 1]:
        return None, None
    if (dimensions(last) or [0])[-1] != 1 or not rewriter.is_foldable(sinks):
        return None, None
    return inner, sinks


def _match_scores(
    rewriter: Rewriter, scores: ir.Value | None, value: ir.Value, extended: bool
) -> Attention | None:
    product, scale, cap = _match_capped_product(rewriter, scores, extended)
    bias: ir.Value | None = None
    if product is None:
        for inner, added in both_orders(single_use(rewriter, scores, "Add")):
            product, scale, cap = _match_capped_product(rewriter, inner, extended)
            if product is not None:
                bias = added
                break
    if product is None or scores is None:
        return None
    key, rows_first, of_key = _match_key_transpose(rewriter, product.inputs[1])
    query, of_query, first = _strip_query_scale(rewriter, product.inputs[0], product)
    if query is None or key is None:
        return None
    sizes = dimensions(scores)
    if sizes is None or any(len(dimensions(v) or ()) != 4 for v in (query, key)):
        return None
    if bias is not None and not _fits_scores(bias, sizes):
        return None
    return Attention(query, key, rows_first, value, bias, scale * of_key * of_query, first, cap)


def _fits_scores(bias: ir.Value, scores: list[int | str]) -> bool:
    """Returns True if a bias is broadcast to the scores, and not the scores to it."""
    sizes = dimensions(bias)
    if sizes is None or len(sizes) > 4:
        return False
    return all(
        size in (1, wanted) for size, wanted in zip(reversed(sizes), reversed(scores), strict=False)
    )


def _match_capped_product(
    rewriter: Rewriter, value: ir.Value | None, extended: bool
) -> tuple[ir.Node | None, float, float]:
    """The MatMul of which a value is made, the factor of its result, and the cap, or 0.0."""
    if extended:
        for inner, other in both_orders(single_use(rewriter, value, "Mul")):
            cap = scalar_constant(rewriter, other)
            tanh = single_use(rewriter, inner, "Tanh")
            part = None if tanh is None else single_use(rewriter, tanh.inputs[0], "Div")
            if part is None or not cap or scalar_constant(rewriter, part.inputs[1]) != cap:
                continue
            product, scale = _match_scaled_product(rewriter, part.inputs[0])
            return product, scale, abs(cap)  # tanh is odd: the sign changes nothing
    return *_match_scaled_product(rewriter, value), 0.0


def _match_scaled_product(
    rewriter: Rewriter, value: ir.Value | None
) -> tuple[ir.Node | None, float]:
    """The MatMul whose result times a number is the value, and that number."""
    product = single_use(rewriter, value, "MatMul")
    if product is not None:
        return product, 1.0
    for inner, other in both_orders(single_use(rewriter, value, "Mul")):
        factor = scalar_constant(rewriter, other)
        product = single_use(rewriter, inner, "MatMul")
        if product is not None and factor is not None:
            return product, factor
    division = single_use(rewriter, value, "Div")
    if division is not None:
        divisor = scalar_constant(rewriter, division.inputs[1])
        product = single_use(rewriter, division.inputs[0], "MatMul")
        if product is not None and divisor:
            return product, 1.0 / divisor
    return None, 1.0


def _strip_query_scale(
    rewriter: Rewriter, value: ir.Value | None, product: ir.Node
) -> tuple[ir.Value | None, float, ir.Node]:
    for inner, other in both_orders(single_use(rewriter, value, "Mul")):
        factor = scalar_constant(rewriter, other)
        if factor is not None and inner.producer() is not None:
            scaling = inner.consumers()[0] if rewriter.only_use(inner) else product
            return inner, factor, scaling
    return value, 1.0, product


def _match_key_transpose(
    rewriter: Rewriter, value: ir.Value | None
) -> tuple[ir.Value | None, bool, float]:
    """The key, whether it is ``[batch, rows, heads, width]``, and the number that scales it."""
    factor = 1.0
    for inner, other in both_orders(single_use(rewriter, value, "Mul")):
        found = scalar_constant(rewriter, other)
        if found is not None:
            value, factor = inner, found
            break
    transpose = rewriter.producer(value, "Transpose")
    perm = permutation(transpose)
    if transpose is None or perm not in ([0, 1, 3, 2], SCORES_OF_ROWS):
        return None, False, factor
    return transpose.inputs[0], perm == SCORES_OF_ROWS, factor


@dataclasses.dataclass(frozen=True)
class Masked:
    """Attention, with or without a mask that sets rows without keys to zero.

    Attributes:
        attention: The attention that is masked.
        rows: The mask, ``[..., rows, 1]``; None: no mask.
        zero: The value for rows where ``rows`` is false; None: ``rows`` is a factor.
    """

    attention: Attention
    rows: ir.Value | None
    zero: ir.Value | None

    def emit_masking(
        self, rewriter: Rewriter, attended: ir.Value, rows: ir.Value, shape: ir.Shape
    ) -> ir.Value:
        """Emits the same masking for a result and a mask of other dimensions."""
        like = self.attention.first
        if self.zero is None:
            return rewriter.emit("Mul", [attended, rows], like=like, shape=shape)
        inputs = [rows, attended, self.zero]
        return rewriter.emit("Where", inputs, like=like, dtype=attended.dtype, shape=shape)


def match_masked_attention(
    rewriter: Rewriter, value: ir.Value | None, extended: bool = False
) -> Masked | None:
    """The attention that produces a value, with its mask of rows, or None.

    It may have a cap and sinks if ``extended`` is true.
    """
    value = same_shape(rewriter, value)
    found = None if value is None else match_attention(rewriter, value.producer(), extended)
    if found is not None:
        return Masked(found, None, None)
    for inner, rows in both_orders(single_use(rewriter, value, "Mul")):
        product = single_use(rewriter, inner, "MatMul")
        found = match_attention(rewriter, product, extended)
        if found is not None:
            return Masked(found, rows, None)
    where = single_use(rewriter, value, "Where")
    if where is not None and scalar_constant(rewriter, where.inputs[2]) == 0.0:
        product = single_use(rewriter, where.inputs[1], "MatMul")
        found = match_attention(rewriter, product, extended)
        if found is not None:
            return Masked(found, where.inputs[0], where.inputs[2])
    return None


@dataclasses.dataclass(frozen=True)
class Grouped:
    """Keys or values ``[batch, groups, rows, width]``, each shared by a group of query heads.

    Attributes:
        value: The keys or values before they are repeated.
        groups: Number of groups.
        times: Number of query heads per group.
    """

    value: ir.Value
    groups: int
    times: int


def match_repeated_heads(rewriter: Rewriter, value: ir.Value) -> Grouped | None:
    """The value that is repeated along the heads by ``Reshape(Expand(Unsqueeze(x, [2])))``."""
    reshape = rewriter.producer(value, "Reshape")
    expand = None if reshape is None else rewriter.producer(reshape.inputs[0], "Expand")
    if reshape is None or expand is None:
        return None
    source = expand.inputs[0]
    unsqueeze = rewriter.producer(source, "Unsqueeze")
    axes = None if unsqueeze is None else rewriter.constant(unsqueeze.inputs[1])
    if unsqueeze is None or axes is None or axes.tolist() not in ([2], [-3]):
        return None
    repeated, heads = dimensions(expand.outputs[0]), dimensions(value)
    x = unsqueeze.inputs[0]
    sizes = dimensions(x)
    if x is None or sizes is None or len(sizes) != 4 or repeated is None or heads is None:
        return None
    groups, times = repeated[1], repeated[2]
    if not isinstance(groups, int) or not isinstance(times, int) or len(heads) != 4:
        return None
    fits = repeated == [*sizes[:2], times, *sizes[2:]]
    fits = fits and heads == [sizes[0], groups * times, *sizes[2:]]
    return Grouped(x, groups, times) if fits else None


@dataclasses.dataclass(frozen=True)
class Split:
    """A value ``[batch, heads, rows, width]`` of ``source [batch, rows, heads * width]``."""

    source: ir.Value
    heads: int
    width: int


def match_split_heads(
    rewriter: Rewriter, value: ir.Value | None, rows_first: bool = False
) -> Split | None:
    """The source of ``Transpose(Reshape(source))``, or ``Reshape(source)`` if rows come first.

    The value may have other readers too.
    """
    if not rows_first:
        transpose = rewriter.producer(value, "Transpose")
        if transpose is None or permutation(transpose) != HEADS_LAST:
            return None
        value = transpose.inputs[0]
    reshape = rewriter.producer(value, "Reshape")
    source = None if reshape is None else reshape.inputs[0]
    sizes, whole = dimensions(value), dimensions(source)
    if source is None or sizes is None or whole is None or len(sizes) != 4 or len(whole) != 3:
        return None
    heads, width = sizes[2:]
    if not isinstance(heads, int) or not isinstance(width, int):
        return None
    fits = whole == [*sizes[:2], heads * width]
    return Split(source, heads, width) if fits else None


def same_shape(rewriter: Rewriter, value: ir.Value | None) -> ir.Value | None:
    """The operand of a Reshape that changes nothing; otherwise the value itself."""
    reshape = single_use(rewriter, value, "Reshape")
    sizes = dimensions(value)
    if reshape is None or sizes is None or dimensions(reshape.inputs[0]) != sizes:
        return value
    return reshape.inputs[0]
