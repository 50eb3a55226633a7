"""Samples of distributions that need more than one formula: choices, counts and gammas.

Counts and gammas are drawn by rejection: a loop draws for all elements at once and ends when every
element has accepted a number, after a handful of steps.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import onnx_ir as ir
import torch

from onnx_aot import dtypes
from onnx_aot.builder.builder import Builder, Size
from onnx_aot.ops.random.uniform_and_normal import (
    Frame,
    draw_exponential,
    draw_normal,
    draw_uniform,
    frame_of,
    working_type,
)
from onnx_aot.ops.registry import LIMITS, register
from onnx_aot.torch_compat import aten

__all__: list[str] = []

Value = ir.Value
BOOL = ir.DataType.BOOL
DOUBLE = ir.DataType.DOUBLE
FLOAT = ir.DataType.FLOAT
INT64 = ir.DataType.INT64

# Limit on the steps of a rejection loop; one in 10^30 elements would need more.
MOST_STEPS = 200


# --- choices -------------------------------------------------------------------------------------


@register(aten.multinomial.default)
def aten_multinomial(
    op: Builder, self: Value, num_samples: Size, replacement: bool = False
) -> Value:
    """Draws indices with the weights in the last dimension.

    Without replacement, these are the largest of ``weight / exponential`` (Efraimidis and Spirakis
    2006).
    """
    work = working_type(self.dtype)
    weights = op.cast(self, work)
    count = op.number(num_samples)
    if not replacement:
        keys = op.Div(weights, draw_exponential(op, weights, work))
        return op.TopK(keys, op.sizes([num_samples]), _outputs=2)[1]
    batched = op.rank(self) == 2
    drawable = count is not None and count > 0 and 0 not in (self.shape or ())
    if drawable and op.opset < 22:  # ONNX Runtime has no kernel for Multinomial since 22
        logits = op.Log(op.cast(self, FLOAT))
        rows = logits if batched else op.Unsqueeze(logits, [0])
        drawn = op.Multinomial(rows, sample_size=count, dtype=int(INT64), seed=op.random_seed())
        return drawn if batched else op.Squeeze(drawn, [0])
    sizes = [*op.all_sizes(self)[:-1], num_samples, op.size(self, -1)]
    keys = op.Div(op.Unsqueeze(weights, [-2]), draw_exponential(op, sizes, work))
    return op.ArgMax(keys, axis=op.rank(self), keepdims=0)


LIMITS[aten.multinomial.default] = (
    "with replacement, before opset 22, ONNX Runtime refuses a dynamic batch that turns out empty"
)


# --- rejection -----------------------------------------------------------------------------------


def _draw_by_rejection(
    op: Builder, pending: Value, dtype: ir.DataType, attempt: Callable[[], tuple[Value, Value]]
) -> Value:
    """Repeats attempts until every pending element has accepted one.

    Args:
        op: The builder.
        pending: Mask of the elements that need a number; the others are 0.
        dtype: Type of the numbers.
        attempt: Emits one attempt: numbers, and a mask of the accepted ones.
    """

    def step(_: Value, numbers: Value, waiting: Value) -> list[Value]:
        drawn, accepts = attempt()
        taken = op.And(waiting, accepts)
        left = op.And(waiting, op.Not(accepts))
        return [_reduce_any(op, left), op.Where(taken, drawn, numbers), left]

    numbers = op.cast(op.Xor(pending, pending), dtype)
    return op.loop(MOST_STEPS, [numbers, pending], step, condition=_reduce_any(op, pending))[0]


def _reduce_any(op: Builder, flags: Value) -> Value:
    """True if any flag is true; False if there are none."""
    total = op.reduce("ReduceSum", op.cast(flags, FLOAT), None, False)
    return op.Greater(total, 0.0)


def _draw_by_inversion(
    op: Builder,
    pending: Value,
    first: Value,
    ratio: Callable[[Value], Value],
) -> Value:
    """Draws counts by inversion: the first ``k`` at which the sum of probabilities exceeds ``u``.

    Args:
        op: The builder.
        pending: Mask of the elements that need a number; the others are 0.
        first: Probability of 0, in DOUBLE.
        ratio: Probability of ``k`` divided by that of ``k - 1``.
    """
    target = draw_uniform(op, first, DOUBLE)

    def is_beyond(total: Value) -> Value:
        return op.And(pending, op.GreaterOrEqual(target, total))

    def step(_: Value, count: Value, probability: Value, total: Value) -> list[Value]:
        count = op.Add(count, op.cast(is_beyond(total), DOUBLE))
        probability = op.Mul(probability, ratio(count))
        after = op.Where(is_beyond(total), op.Add(total, probability), total)
        return [_reduce_any(op, is_beyond(after)), count, probability, after]

    zeros = op.Mul(op.cast(pending, DOUBLE), 0.0)
    return op.loop(
        MOST_STEPS, [zeros, first, first], step, condition=_reduce_any(op, is_beyond(first))
    )[0]


def _log_factorial(op: Builder, count: Value) -> Value:
    """``log(count!)`` in DOUBLE: Stirling's series at ``count + 8``, less the log of a product."""
    product = op.Add(count, 1.0)
    for step in range(2, 8):
        product = op.Mul(product, op.Add(count, float(step)))
    z = op.Add(count, 8.0)
    inverse = op.Reciprocal(z)
    square = op.Mul(inverse, inverse)
    tail = op.Add(op.Mul(square, 1 / 1260), -1 / 360)
    tail = op.Mul(op.Add(op.Mul(tail, square), 1 / 12), inverse)
    head = op.Sub(op.Mul(op.Sub(z, 0.5), op.Log(z)), op.Sub(z, 0.5 * math.log(2 * math.pi)))
    return op.Sub(op.Add(head, tail), op.Log(product))


# --- counts --------------------------------------------------------------------------------------


@register(aten.poisson.default)
def aten_poisson(op: Builder, self: Value) -> Value:
    """Inversion below a rate of 10, transformed rejection (PTRS, Hörmann 1993) above."""
    rate = op.cast(self, DOUBLE)
    few = op.Less(rate, 10.0)
    small = op.Where(few, rate, 0.0)
    counts = _draw_by_inversion(
        op, few, op.Exp(op.Neg(small)), lambda k: _divide_by_count(op, small, k)
    )
    large = op.Where(few, 10.0, rate)
    log_rate = op.Log(large)
    b = op.Add(op.Mul(op.Sqrt(large), 2.53), 0.931)
    a = op.Add(op.Mul(b, 0.02483), -0.059)
    scale = op.Add(op.Div(1.1328, op.Sub(b, 3.4)), 1.1239)
    sure = op.Sub(0.9277, op.Div(3.6224, op.Sub(b, 2.0)))

    def log_probability(k: Value) -> Value:
        return op.Sub(op.Sub(op.Mul(k, log_rate), large), _log_factorial(op, k))

    many = _draw_by_transformed_rejection(
        op, op.Not(few), a, b, op.Add(large, 0.43), sure, scale, log_probability, None
    )
    return op.cast(op.Add(counts, many), op.result_dtype)


def _divide_by_count(op: Builder, number: Value, count: Value) -> Value:
    """Divides a number by a count, which may still be 0 where nothing is counted."""
    return op.Div(number, op.Max(count, 1.0))


def _draw_by_transformed_rejection(
    op: Builder,
    pending: Value,
    a: Value,
    b: Value,
    centre: Value,
    sure: Value,
    scale: Value,
    log_probability: Callable[[Value], Value],
    highest: Value | None,
) -> Value:
    """Hörmann's transformed rejection: ``k = floor((2 a / (1/2 - |u|) + b) u + centre)``.

    A draw is accepted at once in the middle, else if ``v scale / (a / (1/2 - |u|)^2 + b)`` is below
    the probability of ``k``.
    """

    def attempt() -> tuple[Value, Value]:
        u = draw_uniform(op, a, DOUBLE, -0.5, 0.5)
        v = draw_uniform(op, a, DOUBLE, low=2.0**-60)
        edge = op.Max(op.Sub(0.5, op.Abs(u)), 1e-12)
        k = op.Floor(op.Add(op.Mul(op.Add(op.Div(op.Mul(a, 2.0), edge), b), u), centre))
        inside = op.GreaterOrEqual(k, 0.0)
        if highest is not None:
            inside = op.And(inside, op.LessOrEqual(k, highest))
        possible = op.Max(k, 0.0) if highest is None else op.Min(op.Max(k, 0.0), highest)
        at_once = op.And(op.GreaterOrEqual(edge, 0.07), op.LessOrEqual(v, sure))
        hat = op.Add(op.Div(a, op.Mul(edge, edge)), b)
        below = op.LessOrEqual(op.Log(op.Div(op.Mul(v, scale), hat)), log_probability(possible))
        return k, op.And(inside, op.Or(at_once, below))

    return _draw_by_rejection(op, pending, DOUBLE, attempt)


@register(aten.binomial.default)
def aten_binomial(op: Builder, count: Value, prob: Value) -> Value:
    """Inversion below a mean of 10, transformed rejection (BTRS, Hörmann 1993) above.

    Both count the rarer of successes and failures.
    """
    shape = frame_of(op, count, prob)
    n, chance = op.cast(count, DOUBLE), op.cast(prob, DOUBLE)
    n = op.Expand(n, op.Shape(shape) if isinstance(shape, Value) else op.sizes(shape))
    mostly = op.Greater(chance, 0.5)
    p = op.Where(mostly, op.Sub(1.0, chance), chance)
    mean = op.Mul(n, p)
    few = op.Less(mean, 10.0)
    odds = op.Div(p, op.Sub(1.0, p))
    first = op.Exp(op.Mul(op.Where(few, n, 0.0), op.Log(op.Sub(1.0, p))))
    counts = _draw_by_inversion(
        op, few, first, lambda k: op.Mul(_divide_by_count(op, op.Sub(op.Add(n, 1.0), k), k), odds)
    )
    rare = op.Add(counts, _draw_large_binomial(op, op.Not(few), n, p, mean))
    return op.cast(op.Where(mostly, op.Sub(n, rare), rare), op.result_dtype)


def _draw_large_binomial(
    op: Builder, pending: Value, count: Value, chance: Value, mean: Value
) -> Value:
    """Binomial numbers of mean 10 and more; 0 where they are not pending."""
    n = op.Where(pending, count, 40.0)
    p = op.Where(pending, chance, 0.5)
    mean = op.Where(pending, mean, 20.0)
    failure = op.Sub(1.0, p)
    deviation = op.Sqrt(op.Mul(mean, failure))
    b = op.Add(op.Mul(deviation, 2.53), 1.15)
    a = op.Add(op.Add(op.Mul(b, 0.0248), -0.0873), op.Mul(p, 0.01))
    sure = op.Sub(0.92, op.Div(4.2, b))
    scale = op.Mul(op.Add(op.Div(5.1, b), 2.83), deviation)
    mode = op.Floor(op.Mul(op.Add(n, 1.0), p))
    log_odds = op.Log(op.Div(p, failure))
    ways = op.Add(_log_factorial(op, mode), _log_factorial(op, op.Sub(n, mode)))

    def log_probability(k: Value) -> Value:
        """Log probability relative to that of the mode."""
        own = op.Add(_log_factorial(op, k), _log_factorial(op, op.Sub(n, k)))
        return op.Add(op.Sub(ways, own), op.Mul(op.Sub(k, mode), log_odds))

    return _draw_by_transformed_rejection(
        op, pending, a, b, op.Add(mean, 0.5), sure, scale, log_probability, n
    )


# --- gammas --------------------------------------------------------------------------------------


@register(aten._standard_gamma.default)
def aten_standard_gamma(op: Builder, self: Value) -> Value:
    drawn = op.cast(_draw_gamma(op, self), op.result_dtype)
    return op.Max(drawn, torch.finfo(dtypes.to_torch(op.result_dtype)).tiny)


@register(aten._sample_dirichlet.default)
def aten_sample_dirichlet(op: Builder, self: Value) -> Value:
    drawn = _draw_gamma(op, self)
    return op.cast(op.Div(drawn, op.reduce("ReduceSum", drawn, [-1], True)), op.result_dtype)


def _draw_gamma(op: Builder, concentration: Value) -> Value:
    """Marsaglia and Tsang 2000: a cubed normal number; below 1, times a power of a uniform one."""
    work = working_type(concentration.dtype)
    alpha = op.cast(concentration, work)
    frame: Frame = alpha
    low = op.Less(alpha, 1.0)
    d = op.Sub(op.Where(low, op.Add(alpha, 1.0), alpha), 1.0 / 3.0)
    c = op.Reciprocal(op.Sqrt(op.Mul(d, 9.0)))

    def attempt() -> tuple[Value, Value]:
        x = draw_normal(op, frame, work)
        base = op.Add(op.Mul(c, x), 1.0)
        positive = op.Greater(base, 0.0)
        cube = op.Where(positive, op.Mul(op.Mul(base, base), base), 1.0)
        bound = op.Add(
            op.Mul(op.Mul(x, x), 0.5),
            op.Mul(d, op.Add(op.Sub(1.0, cube), op.Log(cube))),
        )
        below = op.Less(op.Neg(draw_exponential(op, frame, work)), bound)
        return op.Mul(d, cube), op.And(positive, below)

    everywhere = op.Equal(d, d)
    drawn = _draw_by_rejection(op, everywhere, work, attempt)
    power = op.Exp(op.Neg(op.Div(draw_exponential(op, frame, work), alpha)))
    return op.Mul(drawn, op.Where(low, power, 1.0))
