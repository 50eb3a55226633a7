"""Relatives of the error function: ``onnx_aot/ops/special/error_functions.py``."""

from __future__ import annotations

import math

import torch

from onnx_aot.torch_compat import aten
from tests.ops.rows import Row, check, floats, given, ints, parametrize

EDGES = given(0.0, -0.0, 1.0, -1.0, 5.0, -5.0, 20.0, -20.0, math.inf, -math.inf, math.nan)
SHARES = given(0.0, 1.0, 0.5, 1e-30, 1e-3, 0.999, 2.0, -1.0, math.nan)
ANY = (
    aten.erf.default,
    aten.erfc.default,
    aten.special_erfcx.default,
    aten.special_log_ndtr.default,
    aten.special_ndtr.default,
)

ROWS = [
    *(Row(target, (floats("n", 3, low=-6.0, high=6.0),)) for target in ANY),
    *(Row(target, (floats(low=-6.0),), name="rank0") for target in ANY),
    *(Row(target, (EDGES,), name="edges") for target in ANY),
    *(Row(target, (ints("n"),), name="int") for target in ANY),
    *(Row(target, (floats(9, low=-6.0, dtype=torch.float64),), name="double") for target in ANY),
    Row(aten.erfinv.default, (floats("n", low=-0.9, high=0.9, dtype=torch.float16),), name="half"),
    Row(aten.special_ndtri.default, (floats("n", 3, low=0.0, high=1.0),), sizes=({"n": 0},)),
    Row(aten.special_ndtri.default, (SHARES,), name="edges"),
    Row(aten.erfinv.default, (floats("n", 3, low=-1.0, high=1.0),)),
    Row(aten.erfinv.default, (floats(20, low=-1.0, high=1.0, dtype=torch.float64),), name="double"),
    Row(aten.erfinv.default, (given(0.0, 1.0, -1.0, 1e-30, 0.75, 2.0, math.nan),), name="edges"),
]


@parametrize(ROWS)
def test_error_functions(row: Row) -> None:
    check(row)
