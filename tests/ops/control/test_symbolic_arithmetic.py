"""Arithmetic on sizes and on numbers taken from tensors."""

from __future__ import annotations

import math
import operator
from collections.abc import Callable
from typing import Any

import torch

from onnx_aot.torch_compat import LOG, LOG2, aten
from tests.ops.rows import Row, check, floats, ints, parametrize


def filled(function: Callable[..., Any]) -> Callable[..., Any]:
    """Returns a function of two sizes whose result fills a tensor."""

    def call(x: torch.Tensor) -> torch.Tensor:
        return torch.full((2,), function(x.shape[0], x.shape[1]))

    return call


SIZES = [
    Row(target, (floats("n", "m"),), call=filled(function), name=name, since=since)
    for target, name, function, since in (
        (operator.add, "", lambda n, m: n + m, 17),
        (operator.add, "float", lambda n, m: n * 0.5 + m, 17),
        (operator.sub, "", lambda n, m: n - m - 2, 17),
        (operator.sub, "number first", lambda n, m: 3 - n, 17),
        (operator.sub, "float", lambda n, m: n / 4 - m, 17),
        (operator.mul, "", lambda n, m: n * m * 3, 17),
        (operator.mul, "float", lambda n, m: n * 0.25, 17),
        (operator.truediv, "", lambda n, m: n / m, 17),
        (operator.truediv, "number first", lambda n, m: 1 / n, 17),
        (operator.floordiv, "", lambda n, m: (n + m) // n, 17),
        (operator.floordiv, "negative", lambda n, m: -n // 2, 17),
        (operator.floordiv, "negative divisor", lambda n, m: n // -3, 17),
        (operator.floordiv, "both negative", lambda n, m: -m // -4, 17),
        (operator.mod, "", lambda n, m: n % 3, 17),
        (operator.mod, "negative", lambda n, m: -n % 3, 17),
        (operator.mod, "negative divisor", lambda n, m: n % -3, 17),
        (operator.mod, "sizes", lambda n, m: m % (n + 1), 17),
        (operator.mod, "float", lambda n, m: (n * 1.5) % 2, 17),
        (operator.mod, "negative float", lambda n, m: (n * -1.5) % 2, 17),
        (operator.neg, "", lambda n, m: -n, 17),
        (operator.neg, "float", lambda n, m: -(n * 0.5), 17),
        (operator.abs, "", lambda n, m: abs(3 - n), 17),
        (operator.pow, "", lambda n, m: n**2, 17),
        (operator.pow, "float", lambda n, m: n**0.5, 17),
        (operator.pow, "inverse", lambda n, m: (n + 1) ** -1, 17),
        (operator.lshift, "", lambda n, m: n << 2, 17),
        (operator.rshift, "", lambda n, m: m >> 1, 17),
        (operator.rshift, "negative", lambda n, m: -m >> 1, 17),
        (operator.lshift, "by a size", lambda n, m: 1 << n, 17),
        (operator.and_, "int", lambda n, m: n & 3, 18),
        (operator.or_, "int", lambda n, m: n | 8, 18),
        (torch.sym_max, "", lambda n, m: torch.sym_max(n, 5), 17),
        (torch.sym_max, "Python", lambda n, m: max(n + 1, m), 17),
        (torch.sym_max, "float", lambda n, m: torch.sym_max(n * 0.5, 2), 17),
        (torch.sym_min, "", lambda n, m: torch.sym_min(n, 5), 17),
        (torch.sym_min, "negative", lambda n, m: torch.sym_min(-n, m - 6), 17),
        (torch.sym_sum, "", lambda n, m: torch.sym_sum([n, m, 2]), 17),
        (torch.sym_float, "", lambda n, m: torch.sym_float(n), 17),
        (torch.sym_sqrt, "", lambda n, m: torch.sym_sqrt(n), 17),
        (LOG2, "", lambda n, m: math.log2(n), 17),
        (LOG2, "fraction", lambda n, m: math.log2(m / 3), 17),
        (LOG, "", lambda n, m: math.log(n), 17),
        (LOG, "base", lambda n, m: math.log(m, 10), 17),
        (math.trunc, "", lambda n, m: math.trunc(-n / 3), 17),
        (math.trunc, "torch.sym_int", lambda n, m: torch.sym_int(n / 3), 17),
        (math.ceil, "", lambda n, m: math.ceil(n / 3), 17),
        (math.ceil, "negative", lambda n, m: math.ceil(-n / 3), 17),
        (math.floor, "", lambda n, m: math.floor(-n / 3), 17),
        (math.floor, "float division", lambda n, m: (n * 1.5) // 2, 17),
        (round, "", lambda n, m: round(n / 2), 17),
        (round, "negative", lambda n, m: round(-m / 4), 17),
        (round, "digits", lambda n, m: round(n / 3, 2), 17),
        (operator.eq, "", lambda n, m: n == 4, 17),
        (operator.eq, "float", lambda n, m: n / 2 == 2.0, 17),
        (operator.ne, "", lambda n, m: n != 4, 17),
        (operator.lt, "", lambda n, m: n < m - 2, 17),
        (operator.le, "", lambda n, m: n <= 4, 17),
        (operator.gt, "", lambda n, m: n > 4, 17),
        (operator.gt, "float", lambda n, m: n / 2 > 2.0, 17),
        (operator.ge, "", lambda n, m: n >= 4, 17),
        (operator.and_, "", lambda n, m: (n > 2) & (m > 5), 17),
        (operator.or_, "", lambda n, m: (n > 5) | (m > 8), 17),
        (torch.sym_not, "", lambda n, m: torch.sym_not(n > 4), 17),
        (torch.sym_ite, "", lambda n, m: torch.sym_ite(n > m - 3, n, m), 17),
        (torch.sym_ite, "expressions", lambda n, m: torch.sym_ite(n == 4, -n, m * n), 17),
    )
]

# Results that are sizes themselves.
SHAPES = [
    Row(
        operator.floordiv,
        (floats("n", "m"),),
        call=lambda x: x.new_ones(-(-x.shape[0] // 2), x.shape[1] // 2),
        name="rounded up",
    ),
    Row(
        math.ceil,
        (floats("n", "m"),),
        call=lambda x: x.new_ones(math.ceil(x.shape[1] / 4)),
        name="as a size",
    ),
    Row(
        torch.sym_max,
        (floats("n", "m"),),
        call=lambda x: x.new_ones(max(x.shape[0], x.shape[1]) + 1),
        name="as a size",
    ),
    Row(operator.mul, (floats("n", "m"),), call=lambda x: x.shape[0] * x.shape[1], name="returned"),
    Row(aten.sym_size.int, (floats("n", "m"),), call=lambda x: x.shape[0]),
    Row(aten.sym_size.int, (floats("n", "m"),), call=lambda x: x.size(-1), name="negative"),
    Row(
        aten.sym_numel.default,
        (floats("n", "m"),),
        call=lambda x: torch.full((2,), x.numel() + 1),
        sizes=({"n": 0},),
    ),
]


def ones_from(k: torch.Tensor) -> torch.Tensor:
    size = k.item()
    torch._check(size >= 0)
    return torch.ones(size, 2)


NUMBERS = [
    *(
        Row(target, (tensor,), call=call, name=name)
        for target, take in (
            (aten.item.default, torch.Tensor.item),
            (aten._local_scalar_dense.default, aten._local_scalar_dense.default),
        )
        for name, tensor, call in (
            ("int", ints(), lambda x, take=take: torch.full((2,), take(x))),
            ("int32", ints(1, dtype=torch.int32), lambda x, take=take: torch.full((2,), take(x))),
            ("float", floats(1, 1), lambda x, take=take: torch.full((2,), take(x))),
            ("bool", floats(), lambda x, take=take: torch.full((2,), take(x > 0))),
            ("of a sum", floats("n", 3), lambda x, take=take: x * take(x.sum())),
        )
    ),
    Row(aten.item.default, (ints(low=3, high=6),), call=ones_from, name="as a size"),
]

ROWS = [*SIZES, *SHAPES, *NUMBERS]


@parametrize(ROWS)
def test_row(row: Row) -> None:
    check(row)
