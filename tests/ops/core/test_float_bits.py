"""Signs, exponents and adjacent numbers: ``onnx_aot/ops/core/float_bits.py``."""

from __future__ import annotations

import math

import torch

from onnx_aot.torch_compat import aten
from tests.ops.rows import Row, check, floats, given, ints, parametrize

INF, NAN = math.inf, math.nan
EDGES = (0.0, -0.0, 1.0, -1.0, 0.5, 2.0, 3.4e38, 1e-45, 1.2e-38, INF, -INF, NAN)
HALF = {"dtype": torch.float16}
WIDE = {"dtype": torch.float64}

ROWS = [
    Row(aten.copysign.Tensor, (floats("n", 3), floats(3))),
    Row(aten.copysign.Tensor, (given(*EDGES), given(-0.0)), name="zero"),
    Row(aten.copysign.Tensor, (ints("n"), ints("n")), name="int"),
    Row(
        aten.copysign.Tensor,
        (given(0.0, -0.0, 2.0), given(-0.0, 0.0, -0.0)),
        call=lambda x, y: 1 / torch.copysign(x, y),
        name="minus zero",
    ),
    Row(aten.copysign.Scalar, (floats("n", 3), -2.0)),
    Row(aten.copysign.Scalar, (floats("n", 3), 0.0), name="plus"),
    Row(aten.hypot.default, (floats("n", 3), floats(3))),
    Row(
        aten.hypot.default,
        (given(0.0, 1e30, INF, NAN, 3.0, -INF, NAN), given(0.0, 1e30, NAN, -INF, -4.0, INF, 1.0)),
        name="edges",
    ),
    Row(aten.hypot.default, (floats("n", **HALF), floats("n", **HALF)), name="half"),
    Row(aten.frexp.Tensor, (floats("n", 3, low=-100.0, high=100.0),)),
    Row(aten.frexp.Tensor, (given(*EDGES),), name="edges"),
    Row(aten.frexp.Tensor, (given(0.0, 1e-310, 1e308, 8.0, 7.999999999, **WIDE),), name="double"),
    Row(aten.frexp.Tensor, (given(0.0, 6e-8, 65504.0, -0.3, **HALF),), name="half"),
    Row(aten.nextafter.default, (floats("n", 3), floats("n", 3))),
    Row(aten.nextafter.default, (given(*EDGES), given(INF)), name="up"),
    Row(aten.nextafter.default, (given(*EDGES), given(-INF)), name="down"),
    Row(aten.nextafter.default, (given(*EDGES), given(0.0)), name="to zero"),
    Row(
        aten.nextafter.default,
        (given(0.0, 1.0, -1.0, 1e308, 3.3, **WIDE), given(2.0, 0.0, 3.0, INF, 3.3, **WIDE)),
        name="double",
    ),
    Row(
        aten.nextafter.default,
        (given(0.0, 1.0, -1.0, dtype=torch.bfloat16), given(2.0, 0.0, 3.0, dtype=torch.bfloat16)),
        name="bfloat16",
    ),
    Row(aten.angle.default, (given(*EDGES),)),
    Row(aten.angle.default, (ints("n"),), name="int"),
]


@parametrize(ROWS)
def test_parts_of_floating_point_numbers(row: Row) -> None:
    check(row)
