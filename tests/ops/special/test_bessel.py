"""Bessel functions and Airy's: ``onnx_aot/ops/special/bessel.py``."""

from __future__ import annotations

import math

import torch

from onnx_aot.torch_compat import aten
from tests.ops.rows import Row, check, floats, given, ints, parametrize

EDGES = given(0.0, -0.0, 2.0, -2.0, 16.0, -16.0, 1e-10, 40.0, math.nan)
EVERYWHERE = (
    aten.i0.default,
    aten.special_airy_ai.default,
    aten.special_bessel_j0.default,
    aten.special_bessel_j1.default,
    aten.special_i0e.default,
    aten.special_i1.default,
    aten.special_i1e.default,
    aten.special_modified_bessel_i0.default,
    aten.special_modified_bessel_i1.default,
    aten.special_spherical_bessel_j0.default,
)
FROM_ZERO = (
    aten.special_bessel_y0.default,
    aten.special_bessel_y1.default,
    aten.special_modified_bessel_k0.default,
    aten.special_modified_bessel_k1.default,
    aten.special_scaled_modified_bessel_k0.default,
    aten.special_scaled_modified_bessel_k1.default,
)

ROWS = [
    *(Row(target, (floats("n", 3, low=-30.0, high=30.0),)) for target in EVERYWHERE),
    *(Row(target, (floats("n", 3, low=0.0, high=30.0),)) for target in FROM_ZERO),
    *(Row(target, (EDGES,), name="edges") for target in EVERYWHERE + FROM_ZERO),
    *(Row(target, (floats(),), name="rank0") for target in EVERYWHERE + FROM_ZERO),
    *(
        Row(target, (floats(7, low=0.1, high=4.5, dtype=torch.float64),), name="double")
        for target in EVERYWHERE + FROM_ZERO
    ),
    Row(aten.i0.default, (ints("n"),), name="int"),
    Row(aten.i0.default, (floats("n", dtype=torch.float16),), name="half", sizes=({"n": 0},)),
    Row(aten.special_spherical_bessel_j0.default, (given(math.inf, -math.inf),), name="infinite"),
]


@parametrize(ROWS)
def test_bessel_functions(row: Row) -> None:
    check(row)
