"""Choices, counts and gamma samples: rows without values, moments and frequencies."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import pytest
import torch

from onnx_aot.torch_compat import aten
from tests.ops.random.draws import (
    HALF,
    SHAPE,
    WIDE,
    N,
    check_moments,
    drawn,
    hidden,
    like,
)
from tests.ops.rows import Row, check, floats, given, parametrize, positive

pytestmark = pytest.mark.filterwarnings("ignore:the model was captured in training mode")

CERTAIN = [
    Row(aten.multinomial.default, (given(0.0, 0.0, 2.0, 0.0), 1), name="one"),
    Row(aten.multinomial.default, (given(0.0, 0.0, 2.0, 0.0), 4, True), name="certain"),
    Row(
        aten.multinomial.default,
        (given(0.0, 3.0, 2.0, 0.0), 2),
        call=lambda x, n: aten.multinomial.default(x, n).sort()[0],
        name="both",
    ),
    Row(aten.poisson.default, (given(0.0, 0.0),), name="rate 0"),
    Row(aten.binomial.default, (given(0, 5, 90), given(0.5, 1.0, 0.0)), name="certain"),
]

DISTRIBUTIONS = [
    like(aten.multinomial.default, positive("n", 3), 2),
    like(aten.multinomial.default, positive("n", 3), 5, True, name="replacement"),
    like(aten.multinomial.default, positive("n", dtype=WIDE), 1, name="rank 1"),
    like(aten.multinomial.default, positive("n", dtype=HALF), 3, True, name="half"),
    Row(
        aten.multinomial.default,
        (positive(2, 3), floats("m")),
        call=lambda x, y: hidden(aten.multinomial.default(x, y.shape[0], True)),
        name="as many as a size",
    ),
    like(aten.poisson.default, positive("n", 3)),
    like(aten.poisson.default, positive("n", 3, dtype=HALF), name="half"),
    like(aten.binomial.default, (positive(2, 3), floats(3, low=0.0, high=1.0))),
    like(aten._standard_gamma.default, positive("n", 3)),
    like(aten._standard_gamma.default, positive("n", 3, dtype=WIDE), name="double"),
    like(aten._sample_dirichlet.default, positive(2, 3)),
    like(aten._sample_dirichlet.default, positive(2, 3, dtype=WIDE), name="double"),
]


@parametrize([*CERTAIN, *DISTRIBUTIONS])
def test_row(row: Row) -> None:
    check(row)


MOMENTS: dict[str, tuple[Callable[..., Any], float, float, float]] = {
    # drawn values; mean, variance and kurtosis of the distribution
    "poisson, small": (lambda: torch.poisson(torch.full(SHAPE, 2.5)), 2.5, 2.5, 3.4),
    "poisson, large": (lambda: torch.poisson(torch.full(SHAPE, 40.0)), 40, 40, 3 + 1 / 40),
    "binomial, few": (
        lambda: torch.binomial(torch.full(SHAPE, 12.0), torch.full(SHAPE, 0.25)),
        3,
        2.25,
        3,
    ),
    "binomial, many": (
        lambda: torch.binomial(torch.full(SHAPE, 100.0), torch.full(SHAPE, 0.7)),
        70,
        21,
        3,
    ),
    "gamma": (lambda: torch._standard_gamma(torch.full(SHAPE, 3.0)), 3, 3, 5),
    "gamma below 1": (lambda: torch._standard_gamma(torch.full(SHAPE, 0.5)), 0.5, 0.5, 15),
    "dirichlet": (
        lambda: torch._sample_dirichlet(torch.full((N, 3), 2.0))[:, 0],
        1 / 3,
        2 / 63,
        2.6,
    ),
    "multinomial": (
        lambda: torch.multinomial(torch.tensor([0.0, 1.0, 2.0, 1.0]), N, replacement=True),
        2,
        0.5,
        2,
    ),
    "multinomial, first of two": (
        lambda: torch.multinomial(torch.tensor([[0.0, 1.0, 2.0, 1.0]]).expand(N, 4), 2)[:, 0],
        2,
        0.5,
        2,
    ),
}


@pytest.mark.parametrize("name", MOMENTS)
def test_moments(name: str) -> None:
    check_moments(*MOMENTS[name])


@pytest.mark.parametrize("rate", [0.3, 9.5, 10.5, 300.0, 1e5])
def test_poisson_has_the_frequencies(rate: float) -> None:
    numbers = drawn(lambda r: torch.poisson(r.expand(N)), torch.tensor(rate))
    low, high = rate - 3 * math.sqrt(rate), rate + 3 * math.sqrt(rate)
    exact = torch.poisson(torch.full((N,), rate), torch.Generator().manual_seed(1))
    for points in (low, rate - math.sqrt(rate), rate, rate + math.sqrt(rate), high):
        mine = float((numbers <= points).double().mean())
        eager = float((exact <= points).double().mean())
        assert abs(mine - eager) < 5 * math.sqrt(0.5 / N), points
