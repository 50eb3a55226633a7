"""Random numbers: uniform and normal tensors, elementwise functions of them, and dropout.

Numbers come from RandomUniform or RandomNormal, since opset 22 from Dropout, in FLOAT or DOUBLE.
The values differ from eager PyTorch's; their distribution, type and shape do not. With a seed of
the export (``op.random_seed``) each node has one of its own.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import onnx_ir as ir
import torch

from onnx_aot.builder.builder import Builder, Size
from onnx_aot.dtypes import is_floating
from onnx_aot.ops.core.creation import make_full
from onnx_aot.ops.core.size_math import subtract_sizes
from onnx_aot.ops.registry import LIMITS, register
from onnx_aot.torch_compat import aten

__all__ = [
    "Frame",
    "draw_exponential",
    "draw_normal",
    "draw_uniform",
    "drop",
    "frame_of",
    "working_type",
]

Value = ir.Value
BFLOAT16 = ir.DataType.BFLOAT16
BOOL = ir.DataType.BOOL
DOUBLE = ir.DataType.DOUBLE
FLOAT = ir.DataType.FLOAT
FLOAT16 = ir.DataType.FLOAT16
INT64 = ir.DataType.INT64

Frame = ir.Value | Sequence[Size]
"""Shape of a random tensor: a value that has it, or its sizes."""

LIMITS.update(
    dict.fromkeys(
        (aten.rand.default, aten.randn.default, aten.rand_like.default, aten.randn_like.default),
        "without export(seed=...) ONNX Runtime numbers its generators in the order of the nodes, "
        "and the first elements that different nodes draw are close to each other",
    )
)


# --- sources -------------------------------------------------------------------------------------


def working_type(dtype: ir.DataType | None) -> ir.DataType:
    """The type to draw and compute in: DOUBLE for DOUBLE, FLOAT for everything else."""
    return DOUBLE if dtype == DOUBLE else FLOAT


def frame_of(op: Builder, *operands: Value) -> Frame:
    """Shape of the recorded result, to which the operands broadcast."""
    first = op.result[0] if isinstance(op.result, (list, tuple)) else op.result
    if all(isinstance(size, int) for size in first.shape):
        return [int(size) for size in first.shape]
    frame = operands[0]
    for operand in operands[1:]:
        frame = op.Add(frame, op.cast(operand, frame.dtype))
    return frame


def _draw(op: Builder, name: str, frame: Frame, dtype: ir.DataType, **attributes: Any) -> Value:
    """Emits RandomUniform or RandomNormal if the sizes are static, else their ``Like`` form."""
    attributes = {"dtype": int(dtype), **attributes, "seed": op.random_seed()}
    sizes = _static_sizes(op, frame)
    if all(isinstance(size, int) for size in sizes):
        value: Value = op.call_op(name, [], {"shape": sizes, **attributes})
    else:
        like = frame if isinstance(frame, Value) else make_full(op, frame, 0.0, FLOAT)
        if like.dtype == BFLOAT16:  # the operator does not support it
            like = op.cast(like, FLOAT)
        value = op.call_op(f"{name}Like", [like], attributes)
    return value


def _draw_from_coins(op: Builder, frame: Frame, dtype: ir.DataType) -> Value:
    """Uniform numbers in [0, 1) whose bits are the elements that Dropout keeps.

    ONNX Runtime has no kernel for the versions of RandomUniform and RandomNormal since opset 22,
    but one for Dropout. Its first elements, which hardly change between runs, become the last bits.
    """
    sizes = op.sizes(frame) if not isinstance(frame, Value) else op.Shape(frame)
    bits = 53 if dtype == DOUBLE else 24
    coins = op.Expand(op.constant(1.0), op.Concat(sizes, op.constant([bits]), axis=0))
    kept = op.Dropout(coins, 0.5, op.constant(True), seed=op.random_seed(), _outputs=2)[1]
    numbers = op.cast(kept, dtype)
    # a column: ONNX Runtime refuses the product of an empty tensor and a vector
    weights = op.constant([[2.0**-bit] for bit in range(bits, 0, -1)], dtype)
    return op.Squeeze(op.MatMul(numbers, weights), [-1])


def _static_sizes(op: Builder, frame: Frame) -> list[Any]:
    """Static dimensions as numbers, and another object for each of the others."""
    if not isinstance(frame, Value):
        numbers = [op.number(size) for size in frame]
        return [size if n is None else n for size, n in zip(frame, numbers, strict=True)]
    return [None] if frame.shape is None else list(frame.shape)


def draw_uniform(
    op: Builder, frame: Frame, dtype: ir.DataType, low: float = 0.0, high: float = 1.0
) -> Value:
    """Uniform numbers in ``[low, high)``, in FLOAT or DOUBLE."""
    if op.opset < 22:
        return _draw(op, "RandomUniform", frame, dtype, low=low, high=high)
    drawn = _draw_from_coins(op, frame, dtype)
    if high - low != 1.0:
        drawn = op.Mul(drawn, float(high - low))
    return drawn if low == 0.0 else op.Add(drawn, float(low))


def draw_normal(
    op: Builder, frame: Frame, dtype: ir.DataType, mean: float = 0.0, std: float = 1.0
) -> Value:
    """Normal numbers, in FLOAT or DOUBLE; since opset 22 from uniform ones (Box, Muller 1958)."""
    if op.opset < 22:
        return _draw(op, "RandomNormal", frame, dtype, mean=mean, scale=std)
    radius = op.Sqrt(op.Mul(draw_exponential(op, frame, dtype), 2.0))
    drawn = op.Mul(radius, op.Cos(op.Mul(_draw_from_coins(op, frame, dtype), 2.0 * math.pi)))
    if std != 1.0:
        drawn = op.Mul(drawn, float(std))
    return drawn if mean == 0.0 else op.Add(drawn, float(mean))


def draw_exponential(op: Builder, frame: Frame, dtype: ir.DataType) -> Value:
    """Exponential numbers of rate 1, all above zero.

    The logarithm is taken of numbers that are neither 0 nor 1: the smallest is below the
    resolution of the generator.
    """
    return op.Neg(op.Log(draw_uniform(op, frame, dtype, low=2.0**-33)))


# --- uniform -------------------------------------------------------------------------------------

# Torch draws as many bits as the type's mantissa has; rounding to nearest could also give 1.
_GRID = {FLOAT16: 2.0**11, BFLOAT16: 2.0**8}


def _draw_rand(op: Builder, frame: Frame) -> Value:
    dtype = op.result_dtype
    return _round_down_to_grid(op, draw_uniform(op, frame, working_type(dtype)), dtype)


def _round_down_to_grid(op: Builder, value: Value, dtype: ir.DataType) -> Value:
    """Converts numbers in [0, 1) to a type, including types that have few such numbers."""
    steps = _GRID.get(dtype)
    if steps is not None:
        value = op.Mul(op.Floor(op.Mul(value, steps)), 1.0 / steps)
    return op.cast(value, dtype)


@register(aten.rand.default, aten.rand.generator)
def aten_rand(op: Builder, size: Sequence[Size], dtype: Any = None) -> Value:
    return _draw_rand(op, size)


@register(aten.rand_like.default, aten.rand_like.generator)
def aten_rand_like(op: Builder, self: Value, dtype: Any = None) -> Value:
    return _draw_rand(op, self)


@register(aten.uniform.default)
def aten_uniform(op: Builder, self: Value, from_: float = 0.0, to: float = 1.0) -> Value:
    dtype = op.result_dtype
    if dtype in (FLOAT, DOUBLE):
        return draw_uniform(op, self, dtype, from_, to)
    value = op.cast(_draw_rand(op, self), FLOAT)
    return op.cast(op.Add(op.Mul(value, float(to - from_)), float(from_)), dtype)


# --- normal --------------------------------------------------------------------------------------


def _draw_randn(op: Builder, frame: Frame, mean: float = 0.0, std: float = 1.0) -> Value:
    dtype = op.result_dtype
    return op.cast(draw_normal(op, frame, working_type(dtype), mean, std), dtype)


@register(aten.randn.default, aten.randn.generator)
def aten_randn(op: Builder, size: Sequence[Size], dtype: Any = None) -> Value:
    return _draw_randn(op, size)


@register(aten.randn_like.default, aten.randn_like.generator)
def aten_randn_like(op: Builder, self: Value, dtype: Any = None) -> Value:
    return _draw_randn(op, self)


@register(aten.normal_functional.default)
def aten_normal_functional(op: Builder, self: Value, mean: float = 0.0, std: float = 1.0) -> Value:
    return _draw_randn(op, self, mean, std)


@register(aten.normal.float_float)
def aten_normal_float_float(
    op: Builder, mean: float, std: float, size: Sequence[Size], dtype: Any = None
) -> Value:
    return _draw_randn(op, size, mean, std)


@register(aten.normal.Tensor_float)
def aten_normal_tensor_float(op: Builder, mean: Value, std: float = 1.0) -> Value:
    drawn = _draw_randn(op, frame_of(op, mean), 0.0, std)
    return op.Add(op.cast(mean, op.result_dtype), drawn)


@register(aten.normal.float_Tensor)
def aten_normal_float_tensor(op: Builder, mean: float, std: Value) -> Value:
    scaled = op.Mul(_draw_randn(op, frame_of(op, std)), op.cast(std, op.result_dtype))
    return op.Add(scaled, float(mean))


@register(aten.normal.Tensor_Tensor)
def aten_normal_tensor_tensor(op: Builder, mean: Value, std: Value) -> Value:
    scaled = op.Mul(_draw_randn(op, frame_of(op, mean, std)), op.cast(std, op.result_dtype))
    return op.Add(op.cast(mean, op.result_dtype), scaled)


@register(aten.log_normal.default)
def aten_log_normal(op: Builder, self: Value, mean: float = 1.0, std: float = 2.0) -> Value:
    dtype = op.result_dtype
    return op.cast(op.Exp(draw_normal(op, self, working_type(dtype), mean, std)), dtype)


# --- integers ------------------------------------------------------------------------------------


def _draw_integers(op: Builder, frame: Frame, low: Any, high: Any) -> Value:
    """``low + floor(u (high - low))``; DOUBLE resolves every range below 2^53.

    A larger range loses its last bits, as the product with a 53-bit number must.
    """
    drawn = draw_uniform(op, frame, DOUBLE)
    if isinstance(low, int) and isinstance(high, int) and high - low > 1 << 53:
        spread = op.Add(op.Mul(drawn, float(high - low)), float(low))
        return op.cast(op.cast(spread, INT64), op.result_dtype)
    count = subtract_sizes(op, high, low)
    scaled = op.Mul(drawn, float(count) if isinstance(count, int) else op.cast(count, DOUBLE))
    integers = op.cast(op.Floor(scaled), INT64)
    if low != 0:
        integers = op.Add(integers, low)
    return op.cast(integers, op.result_dtype)


@register(aten.randint.default, aten.randint.generator)
def aten_randint(op: Builder, high: Size, size: Sequence[Size], dtype: Any = None) -> Value:
    return _draw_integers(op, size, 0, high)


@register(aten.randint.low, aten.randint.low_generator)
def aten_randint_low(
    op: Builder, low: Size, high: Size, size: Sequence[Size], dtype: Any = None
) -> Value:
    return _draw_integers(op, size, low, high)


@register(aten.randint_like.default, aten.randint_like.generator)
def aten_randint_like(op: Builder, self: Value, high: Size, dtype: Any = None) -> Value:
    return _draw_integers(op, self, 0, high)


@register(aten.randint_like.Tensor)
def aten_randint_like_tensor(op: Builder, self: Value, high: Value, dtype: Any = None) -> Value:
    return _draw_integers(op, self, 0, op.cast(high, INT64))


@register(aten.randint_like.low_dtype, aten.randint_like.low_generator_dtype)
def aten_randint_like_low(
    op: Builder, self: Value, low: Size, high: Size, dtype: Any = None
) -> Value:
    return _draw_integers(op, self, low, high)


def _past_highest(dtype: torch.dtype) -> int:
    """One more than the largest number up to which a type represents every integer."""
    if dtype == torch.bool:
        return 2
    if dtype.is_floating_point:
        return int(2 / torch.finfo(dtype).eps) + 1
    return int(torch.iinfo(dtype).max) + 1


@register(aten.random.default)
def aten_random(op: Builder, self: Value) -> Value:
    return _draw_integers(op, self, 0, _past_highest(op.result.dtype))


@register(aten.random.to)
def aten_random_to(op: Builder, self: Value, to: int) -> Value:
    return _draw_integers(op, self, 0, to)


@register(aten.randperm.default, aten.randperm.generator)
def aten_randperm(op: Builder, n: Size, dtype: Any = None) -> Value:
    """Order of random numbers; two of DOUBLE are hardly ever equal."""
    _, order = op.TopK(draw_uniform(op, [n], DOUBLE), op.sizes([n]), _outputs=2)
    return op.cast(order, op.result_dtype)


# --- elementwise distributions -------------------------------------------------------------------


@register(aten.bernoulli.default)
def aten_bernoulli(op: Builder, self: Value) -> Value:
    return _draw_bernoulli(op, self, self)


@register(aten.bernoulli.p)
def aten_bernoulli_p(op: Builder, self: Value, p: float | None) -> Value:
    """The probability may be None, as the in-place form may omit it, and is then one half."""
    probability = 0.5 if p is None else float(p)
    return op.cast(op.Less(draw_uniform(op, self, DOUBLE), probability), op.result_dtype)


@register(aten.bernoulli.Tensor)
def aten_bernoulli_tensor(op: Builder, self: Value, p: Value) -> Value:
    return _draw_bernoulli(op, self, p)


def _draw_bernoulli(op: Builder, frame: Frame, p: Value) -> Value:
    """1 with the probability in the tensor ``p``, else 0."""
    work = working_type(p.dtype)
    return op.cast(op.Less(draw_uniform(op, frame, work), op.cast(p, work)), op.result_dtype)


@register(aten.exponential.default)
def aten_exponential(op: Builder, self: Value, lambd: float = 1.0) -> Value:
    drawn = draw_exponential(op, self, working_type(op.result_dtype))
    return op.cast(op.Div(drawn, float(lambd)), op.result_dtype)


@register(aten.geometric.default)
def aten_geometric(op: Builder, self: Value, p: float) -> Value:
    """Trials up to the first success, at least 1: ``ceil(log(u) / log(1 - p))``."""
    drawn = draw_exponential(op, self, working_type(op.result_dtype))
    return op.cast(op.Ceil(op.Div(drawn, -math.log1p(-p))), op.result_dtype)


@register(aten.cauchy.default)
def aten_cauchy(op: Builder, self: Value, median: float = 0.0, sigma: float = 1.0) -> Value:
    work = working_type(op.result_dtype)
    angle = op.Mul(draw_uniform(op, self, work, -0.5, 0.5), math.pi)
    drawn = op.Add(op.Mul(op.Tan(angle), float(sigma)), float(median))
    return op.cast(drawn, op.result_dtype)


# --- dropout -------------------------------------------------------------------------------------


def _draw_keep_mask(op: Builder, frame: Frame, p: float) -> Value:
    """Booleans, true with probability ``1 - p``."""
    kept: Value = op.Less(draw_uniform(op, frame, FLOAT), 1.0 - p)
    return kept


def drop(op: Builder, value: Value, p: float, frame: Frame | None = None) -> Value:
    """Zeroes elements with probability ``p`` and scales the others by ``1 / (1 - p)``.

    ONNX's Dropout would do the same, but ONNX Runtime seeds it anew in each run with consecutive
    numbers, so that its first element is the same for many thousand runs.

    Args:
        op: The builder.
        value: Value to drop elements from.
        p: Probability that an element is dropped.
        frame: Shape that broadcasts to the value's and whose elements are dropped; by default the
            value's own.
    """
    if p in (0, 1):
        return value if p == 0 else op.Mul(value, 0.0)
    kept = _draw_keep_mask(op, value if frame is None else frame, p)
    scale = 1.0 / (1.0 - p)
    return op.Mul(value, op.Where(kept, op.cast(scale, value.dtype), op.cast(0.0, value.dtype)))


def _channel_frame(op: Builder, value: Value) -> Frame:
    """Shape with one element per channel."""
    if op.rank(value) <= 2:
        return value
    return [op.size(value, 0), op.size(value, 1), *[1] * (op.rank(value) - 2)]


@register(aten.dropout.default)
def aten_dropout(op: Builder, input: Value, p: float, train: bool) -> Value:
    return drop(op, input, p) if train else input


@register(aten.feature_dropout.default)
def aten_feature_dropout(op: Builder, input: Value, p: float, train: bool) -> Value:
    """Drops whole channels."""
    return drop(op, input, p, _channel_frame(op, input)) if train else input


@register(aten.native_dropout.default)
def aten_native_dropout(op: Builder, input: Value, p: float, train: bool | None) -> list[Value]:
    """Also returns the mask of the kept elements."""
    if train is False or p in (0, 1):
        dropped = train is not False and p == 1
        mask = op.Expand(op.constant(not dropped), op.Shape(input))
        return [op.Mul(input, 0.0) if dropped else input, mask]
    kept = _draw_keep_mask(op, input, p)
    scaled = op.Mul(op.Mul(input, op.cast(kept, input.dtype)), 1.0 / (1.0 - p))
    return [scaled, kept]


@register(aten.alpha_dropout.default)
def aten_alpha_dropout(op: Builder, input: Value, p: float, train: bool) -> Value:
    return _drop_alpha(op, input, p, input) if train else input


@register(aten.feature_alpha_dropout.default)
def aten_feature_alpha_dropout(op: Builder, input: Value, p: float, train: bool) -> Value:
    return _drop_alpha(op, input, p, _channel_frame(op, input)) if train else input


def _drop_alpha(op: Builder, input: Value, p: float, frame: Frame) -> Value:
    """Dropped elements become ``-alpha``; the result is scaled to keep its mean and variance.

    ``a x + a alpha p`` with ``a = 1 / sqrt((alpha^2 p + 1) (1 - p))`` (Klambauer et al. 2017).
    """
    if p in (0, 1):
        return drop(op, input, p)
    alpha = 1.7580993408473766  # SELU's scale times its negative slope
    scale = 1.0 / math.sqrt((alpha * alpha * p + 1.0) * (1.0 - p))
    mixed = op.Where(_draw_keep_mask(op, frame, p), input, -alpha)
    return op.Add(op.Mul(mixed, scale), scale * alpha * p)


# --- rrelu ---------------------------------------------------------------------------------------


@register(aten.rrelu.default)
def aten_rrelu(
    op: Builder, self: Value, lower: float = 0.125, upper: float = 1 / 3, training: bool = False
) -> Value:
    """LeakyRelu with a slope drawn per element in training, else with the mean of both bounds."""
    if not training:
        return op.LeakyRelu(self, alpha=(lower + upper) / 2)
    return op.Mul(self, _draw_slopes(op, self, lower, upper))


@register(aten.rrelu_with_noise_functional.default)
def aten_rrelu_with_noise(
    op: Builder,
    self: Value,
    noise: Value,
    lower: float = 0.125,
    upper: float = 1 / 3,
    training: bool = False,
) -> list[Value]:
    """Also returns the drawn slopes, 1 where the input is positive."""
    if not training:
        return [op.LeakyRelu(self, alpha=(lower + upper) / 2), noise]
    slopes = _draw_slopes(op, self, lower, upper)
    return [op.Mul(self, slopes), slopes]


def _draw_slopes(op: Builder, value: Value, lower: float, upper: float) -> Value:
    assert is_floating(value.dtype), f"rrelu of {value.dtype}"
    drawn = draw_uniform(op, value, working_type(value.dtype), float(lower), float(upper))
    return op.Where(op.Greater(value, 0.0), 1.0, op.cast(drawn, value.dtype))
