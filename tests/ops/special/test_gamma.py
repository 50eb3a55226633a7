"""Gamma functions and Hurwitz zeta: ``onnx_aot/ops/special/gamma.py``."""

from __future__ import annotations

import math

import torch

from onnx_aot.torch_compat import aten
from tests.ops.rows import Row, check, floats, given, ints, parametrize, positive

EDGES = given(0.0, -0.0, 1.0, 2.0, 10.0, -0.5, -3.5, 1e-20, 1e10, math.inf, math.nan)
A = given(0.0, 0.0, 1.0, 3.0, math.inf, 2.0, math.inf, -1.0, 1.0, math.nan)
X = given(0.0, 1.0, 0.0, 3.0, 2.0, math.inf, math.inf, 1.0, -1.0, 1.0)

ROWS = [
    *(Row(target, (floats("n", 3),)) for target in (aten.lgamma.default, aten.digamma.default)),
    *(
        Row(target, (floats(20, low=-9.0, high=30.0, dtype=torch.float64),), name="double")
        for target in (aten.lgamma.default, aten.digamma.default)
    ),
    *(
        Row(target, (EDGES,), name="edges")
        for target in (aten.lgamma.default, aten.digamma.default)
    ),
    *(
        Row(target, (given(-1.0, -2.0, -math.inf),), name="poles")
        for target in (aten.lgamma.default, aten.digamma.default)
    ),
    Row(aten.lgamma.default, (ints("n", 3),), name="int"),
    Row(aten.lgamma.default, (positive(),), name="rank0"),
    Row(aten.lgamma.default, (positive(4, dtype=torch.float16),), name="half"),
    Row(aten.mvlgamma.default, (floats("n", low=3.0, high=9.0), 4)),
    Row(aten.mvlgamma.default, (floats(low=3.0, high=9.0), 1), name="rank0"),
    *(Row(aten.polygamma.default, (n, floats("n", 3)), name=f"n{n}") for n in range(4)),
    *(Row(aten.polygamma.default, (n, EDGES), name=f"edges{n}") for n in (1, 2, 3)),
    Row(aten.special_zeta.default, (floats("n", 3, low=1.1, high=9.0), positive(3))),
    Row(
        aten.special_zeta.default,
        (
            given(1.0, 0.5, 2.0, 3.0, 2.0, 2.5, 2.0, 2.0, 40.0),
            given(1.0, 1.0, -2.0, -2.5, -2.5, -2.5, 0.0, 1e10, 0.3),
        ),
        name="edges",
    ),
    Row(aten.special_zeta.self_scalar, (3.0, positive("n"))),
    Row(aten.special_zeta.other_scalar, (floats("n", low=1.1, high=9.0), 0.5)),
    *(
        Row(target, (floats("n", 1, low=0.0, high=high), floats("n", 3, low=0.0, high=high)))
        for target in (aten.igamma.default, aten.igammac.default)
        for high in (3.0, 50.0, 400.0)
    ),
    *(Row(target, (A, X), name="edges") for target in (aten.igamma.default, aten.igammac.default)),
    *(
        Row(target, (positive(6, dtype=torch.float64), positive(6, dtype=torch.float64)))
        for target in (aten.igamma.default, aten.igammac.default)
    ),
]


@parametrize(ROWS)
def test_gamma_functions(row: Row) -> None:
    check(row)
