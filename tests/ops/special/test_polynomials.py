"""Orthogonal polynomials: ``onnx_aot/ops/special/polynomials.py``."""

from __future__ import annotations

import torch

from onnx_aot.torch_compat import aten
from tests.ops.rows import Row, check, floats, given, ints, parametrize

PACKETS = [
    getattr(aten, f"special_{name}")
    for name in (
        "chebyshev_polynomial_t",
        "chebyshev_polynomial_u",
        "chebyshev_polynomial_v",
        "chebyshev_polynomial_w",
        "hermite_polynomial_h",
        "hermite_polynomial_he",
        "laguerre_polynomial_l",
        "legendre_polynomial_p",
        "shifted_chebyshev_polynomial_t",
        "shifted_chebyshev_polynomial_u",
        "shifted_chebyshev_polynomial_v",
        "shifted_chebyshev_polynomial_w",
    )
]
DEGREES = given(-1.0, 0.0, 1.0, 2.0, 3.7, 5.0, 12.0)

ROWS = [
    *(Row(p.default, (floats("n", 7, low=-1.5, high=1.5), DEGREES)) for p in PACKETS),
    *(Row(p.default, (floats(7), ints("n", 1, low=0, high=7)), name="int") for p in PACKETS),
    *(Row(p.x_scalar, (0.3, DEGREES)) for p in PACKETS),
    *(Row(p.n_scalar, (floats("n", 3, low=-1.5, high=1.5), 4)) for p in PACKETS),
    *(Row(p.n_scalar, (floats(3), n), name=f"degree{n}") for p in PACKETS[:1] for n in (-1, 0, 1)),
    Row(aten.special_hermite_polynomial_h.default, (given(0.1, 2.0), given(129.0, 3.0))),
    Row(
        PACKETS[0].default,
        (floats("n", dtype=torch.float64), ints("n", low=0, high=9)),
        sizes=({"n": 0},),
        name="double",
    ),
]


@parametrize(ROWS)
def test_orthogonal_polynomials(row: Row) -> None:
    check(row)
