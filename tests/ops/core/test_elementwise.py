"""Pointwise arithmetic: ``onnx_aot/ops/core/elementwise.py``."""

from __future__ import annotations

import functools
import math

import torch

from onnx_aot.torch_compat import aten
from tests.ops.rows import Row, bools, check, floats, given, ints, parametrize, positive

# Operators of one tensor, with values in their domains.
SMALL = (aten.acos.default, aten.asin.default, aten.atanh.default)
ABOVE_ONE = (aten.acosh.default,)
POSITIVE = (
    aten.log.default,
    aten.log10.default,
    aten.log1p.default,
    aten.log2.default,
    aten.reciprocal.default,
    aten.rsqrt.default,
    aten.sqrt.default,
)
ANY = (
    aten.abs.default,
    aten.absolute.default,
    aten.asinh.default,
    aten.atan.default,
    aten.ceil.default,
    aten.cos.default,
    aten.cosh.default,
    aten.exp.default,
    aten.exp2.default,
    aten.expm1.default,
    aten.fix.default,
    aten.floor.default,
    aten.frac.default,
    aten.neg.default,
    aten.negative.default,
    aten.relu.default,
    aten.round.default,
    aten.sigmoid.default,
    aten.sign.default,
    aten.sin.default,
    aten.sinh.default,
    aten.square.default,
    aten.tan.default,
    aten.tanh.default,
    aten.trunc.default,
)
UNARY = [
    Row(target, (floats(*sizes, low=low, high=high),), name=f"rank{len(sizes)}")
    for targets, low, high in (
        (SMALL, -0.9, 0.9),
        (ABOVE_ONE, 1.1, 5.0),
        (POSITIVE, 0.1, 4.0),
        (ANY, -3.0, 3.0),
    )
    for target in targets
    for sizes in (("n", 3, "m"), ())
]

# Operators that turn integers into floats, and operators that leave integers unchanged.
INTEGER = [
    *(
        Row(target, (ints("n", 3, low=1, high=5),), name="int")
        for target in (aten.exp.default, aten.sqrt.default, aten.sin.default, aten.sigmoid.default)
    ),
    *(
        Row(target, (ints("n", 3),), name="int")
        for target in (aten.abs.default, aten.neg.default, aten.sign.default, aten.square.default)
    ),
    *(
        Row(target, (ints("n", 3),), name="int")
        for target in (
            aten.ceil.default,
            aten.floor.default,
            aten.round.default,
            aten.trunc.default,
        )
    ),
]

BINARY = [
    Row(target, args, name=name)
    for target in (
        aten.add.Tensor,
        aten.mul.Tensor,
        aten.multiply.Tensor,
        aten.sub.Tensor,
        aten.subtract.Tensor,
        aten.rsub.Tensor,
        aten.maximum.default,
        aten.max.other,
        aten.minimum.default,
        aten.min.other,
    )
    for name, args in (
        ("broadcast", (floats("n", 3), floats("n", 1))),
        ("rank0", (floats("n", 3), floats())),
        ("promote", (ints("n", 3), floats("n", 3))),
        ("ints", (ints("n", 3), ints(3))),
        ("int32", (ints("n", dtype=torch.int32), ints("n"))),
    )
]

DIVISIONS = [
    Row(target, args, kwargs, name=name)
    for name, args in (
        ("float", (floats("n", 3), positive("n", 3))),
        ("negative", (floats("n", 3), floats("n", 3, low=-4, high=-1))),
        ("int", (ints("n", 3, low=-20, high=20), ints("n", 3, low=1, high=6))),
        ("negative int", (ints("n", 3, low=-20, high=20), ints("n", 3, low=-6, high=-1))),
        ("mixed", (ints("n", 3), positive("n", 3))),
    )
    for target, kwargs in (
        (aten.div.Tensor, {}),
        (aten.divide.Tensor, {}),
        (aten.true_divide.Tensor, {}),
        (aten.div.Tensor_mode, {"rounding_mode": None}),
        (aten.div.Tensor_mode, {"rounding_mode": "floor"}),
        (aten.div.Tensor_mode, {"rounding_mode": "trunc"}),
        (aten.floor_divide.default, {}),
        (aten.remainder.Tensor, {}),
        (aten.fmod.Tensor, {}),
    )
]

SCALARS = [
    Row(target, (tensor, *rest), kwargs, name=name)
    for name, tensor in (("float", floats("n", 3)), ("int", ints("n", 3)))
    for target, rest, kwargs in (
        (aten.add.Scalar, (2,), {}),
        (aten.add.Tensor, (2,), {"alpha": 3}),
        (aten.add.Tensor, (1.5,), {}),
        (aten.xlogy.Scalar_Other, (1.5,), {}),
        (aten.xlogy.Scalar_Other, (-1,), {}),
        (aten.sub.Scalar, (2,), {"alpha": 3}),
        (aten.sub.Tensor, (2,), {}),
        (aten.subtract.Scalar, (2,), {}),
        (aten.rsub.Scalar, (1.0,), {}),
        (aten.rsub.Scalar, (2,), {"alpha": 2}),
        (aten.mul.Scalar, (2,), {}),
        (aten.mul.Tensor, (0.5,), {}),
        (aten.multiply.Scalar, (2,), {}),
        (aten.div.Scalar, (2,), {}),
        (aten.divide.Scalar, (2,), {}),
        (aten.true_divide.Scalar, (2,), {}),
        (aten.div.Scalar_mode, (2,), {"rounding_mode": "floor"}),
        (aten.div.Scalar_mode, (2,), {"rounding_mode": "trunc"}),
        (aten.floor_divide.Scalar, (2,), {}),
        (aten.remainder.Scalar, (3,), {}),
        (aten.remainder.Scalar, (-3,), {}),
        (aten.fmod.Scalar, (3,), {}),
        (aten.pow.Tensor_Scalar, (2,), {}),
        (aten.pow.Tensor_Scalar, (1,), {}),
        (aten.pow.Tensor_Scalar, (0,), {}),
        (aten.clamp.default, (-1, 1), {}),
        (aten.clip.default, (-1, 1), {}),
        (aten.clamp.default, (None, 1), {}),
        (aten.clamp_min.default, (0,), {}),
        (aten.clamp_max.default, (0,), {}),
    )
]

# Python numbers in place of the first tensor.
NUMBERS_FIRST = [
    Row(
        target,
        (tensor,),
        call=functools.partial(function, number),
        name=f"{number} first, {name}",
    )
    for name, tensor in (("float", positive("n", 3)), ("int", ints("n", 3, low=1)))
    for number in (2.5, 2, True)
    for target, function in (
        (aten.add.Tensor, torch.add),
        (aten.mul.Tensor, torch.mul),
        (aten.multiply.Tensor, torch.multiply),
        (aten.sub.Tensor, torch.sub),
        (aten.div.Tensor, torch.div),
        (aten.xlogy.Scalar_Self, torch.xlogy),
    )
    if not (number is True and function is torch.sub)
]

OTHERS = [
    Row(aten.xlogy.Tensor, (given(0.0, 0.0, 2.0, 0.0), given(1.0, 0.0, 0.0, math.nan)), name="nan"),
    Row(aten.xlogy.Scalar_Self, (0, given(1.0, 0.0, -1.0, math.nan)), name="nan"),
    Row(
        aten.add.Tensor,
        (floats("n", 3),),
        call=lambda x: torch.add(x.shape[0], x, alpha=2),
        name="size first",
    ),
    Row(
        aten.mul.Tensor,
        (ints("n", 3),),
        call=lambda x: torch.mul(x.shape[0] * 0.5, x),
        name="fraction of a size first",
    ),
    *[
        Row(target, (given(*values, dtype=torch.float16), number), name=f"{number} beside half")
        for target in (aten.mul.Tensor, aten.div.Tensor)
        for number in (70000, 1e-8, -70000.0)
        for values in ((1e-4, 2.0, -300.0, 60000.0, 0.0),)
    ],
    Row(
        aten.div.Tensor,
        (floats("n", 300, dtype=torch.float16),),
        call=lambda x: x * 30000.0 / (x.shape[0] * x.shape[1] ** 2),
        name="size beyond half",
    ),
    *[
        Row(target, (ints("n", dtype=dtype), 300), name=f"{target} 300 beside {dtype}")
        for target in (aten.add.Tensor, aten.sub.Tensor, aten.mul.Tensor, aten.lt.Scalar)
        for dtype in (torch.uint8, torch.int8)
    ],
    Row(aten.add.Tensor, (floats("n", 3), floats("n", 3)), {"alpha": 0.5}, name="alpha"),
    Row(aten.add.Tensor, (ints("n"), ints("n")), {"alpha": 2}, name="int alpha"),
    Row(aten.add.Tensor, (bools("n"), bools("n")), name="bool"),
    Row(aten.add.Tensor, (bools("n"), ints("n")), name="bool int"),
    Row(aten.mul.Tensor, (bools("n", 3), bools(3)), name="bool"),
    Row(aten.maximum.default, (bools("n"), bools("n")), name="bool"),
    Row(aten.minimum.default, (bools("n"), bools("n")), name="bool"),
    Row(aten.remainder.Scalar_Tensor, (7, ints("n", low=1)), name="int"),
    Row(aten.pow.Tensor_Tensor, (positive("n", 3), floats("n", 3))),
    Row(aten.pow.Tensor_Tensor, (ints("n", low=1), ints("n", low=0, high=4)), name="int"),
    Row(aten.pow.Scalar, (2, floats("n", 3))),
    Row(aten.pow.Scalar, (2, ints("n", low=0)), name="int"),
    Row(aten.pow.Tensor_Scalar, (positive("n"), 0.5), name="root"),
    Row(aten.pow.Tensor_Scalar, (positive("n"), -0.5), name="inverse root"),
    Row(aten.pow.Tensor_Scalar, (positive("n"), -1), name="inverse"),
    Row(aten.pow.Tensor_Scalar, (positive("n"), 1.7), name="fraction"),
    Row(aten.round.decimals, (floats("n", 3),), {"decimals": 2}),
    Row(aten.round.decimals, (floats("n", low=-900, high=900),), {"decimals": -2}, name="tens"),
    Row(aten.expm1.default, (floats("n", low=-1e-4, high=1e-4),), name="small"),
    Row(aten.log1p.default, (floats("n", low=-1e-4, high=1e-4),), name="small"),
    Row(aten.atan2.default, (floats("n", 3), floats("n", 3))),
    Row(aten.lerp.Scalar, (floats("n"), floats("n"), 0.3)),
    Row(aten.lerp.Tensor, (floats("n", 3), floats(3), floats("n", 1))),
    Row(aten.addcmul.default, (floats("n"), floats("n"), floats("n")), {"value": 0.5}),
    Row(aten.addcdiv.default, (floats("n"), floats("n"), positive("n")), {"value": 2}),
    Row(aten.clamp.Tensor, (floats("n", 3), floats(3, high=-1), floats(3, low=1))),
    Row(aten.clip.Tensor, (floats("n", 3), None, floats(3))),
    Row(aten.clamp_min.Tensor, (floats("n", 3), floats(3))),
    Row(aten.clamp_max.Tensor, (floats("n", 3), floats(3))),
]

I32, I64, F64 = torch.int32, torch.int64, torch.float64
INF = math.inf
LEAST = -(2**31)

# Numbers for which a simpler form would be wrong.
EXACT = [
    Row(
        aten.add.Tensor,
        (floats("n"), 1),
        call=lambda x, y: torch.add(x, y, alpha=x.shape[0]),
        name="number, dynamic alpha",
    ),
    Row(aten.add.Tensor, (bools("n"), bools("n")), {"alpha": False}, name="bool, no alpha"),
    Row(
        aten.log2.default, (given(32768.0, 2.0**30),), call=lambda x: x.log2().floor(), name="floor"
    ),
    Row(
        aten.log2.default,
        (given(8.0, 2.0**-4, 0.0, INF, 5.0, dtype=F64),),
        call=lambda x: torch.cat([x.log2().floor(), x.log2()]),
        name="float64",
    ),
    Row(
        aten.log10.default,
        (given(10.0, 1000.0, 1e15, 7.0, dtype=F64),),
        call=lambda x: torch.cat([x.log10().floor(), x.log10()]),
        name="float64",
    ),
    Row(
        aten.atan2.default,
        (
            given(1.0, -1.0, 0.0, -0.0, 0.0, -0.0, -0.0, 0.0, 3.0, -3.0),
            given(-0.0, -0.0, -0.0, -0.0, 0.0, 0.0, -1.0, -1.0, 0.0, 0.0),
        ),
        name="zeros",
    ),
    Row(
        aten.atan2.default,
        (given(INF, -INF, INF, -INF, 1.0, INF, 1.0), given(INF, INF, -INF, -INF, -INF, 1.0, INF)),
        name="infinities",
    ),
    Row(
        aten.atan2.default,
        (given(math.nan, 0.0, 1.0, math.nan), given(0.0, math.nan, math.nan, INF)),
        name="nan",
    ),
    Row(aten.pow.Tensor_Scalar, (given(3, -3, 0, 1, dtype=I64), 39), name="large"),
    Row(aten.pow.Tensor_Scalar, (ints("n", dtype=I32), 5), name="int32"),
    Row(
        aten.floor_divide.default,
        (given(LEAST, LEAST, 2**31 - 1, -1, dtype=I32), given(7, -7, -7, 7, dtype=I32)),
        name="extremes",
    ),
    Row(aten.floor_divide.default, (7, given(2, -2, 7, -3, dtype=I64)), name="number first"),
    Row(aten.floor_divide.default, (7.5, given(2.0, -2.0)), name="float first"),
    *(
        Row(target, (ints("n", 3),), call=call, sizes=({"n": 0},), name="size of nothing")
        for target, call in (
            (aten.remainder.Scalar, lambda x: x % x.shape[0]),
            (aten.floor_divide.default, lambda x: x // x.shape[0]),
            (aten.fmod.Scalar, lambda x: torch.fmod(x, x.shape[0])),
            (aten.div.Tensor_mode, lambda x: torch.div(x, x.shape[0], rounding_mode="trunc")),
        )
    ),
    Row(aten.fmod.Scalar, (given(2**53 + 1, -(2**53) - 1, 5, dtype=I64), 7), name="large"),
    Row(
        aten.erfc.default,
        (given(-5.0, -0.5, 0.0, 0.3, 0.5, 0.6, 2.0, 4.0, 5.0, 9.0),),
        call=lambda x: torch.cat([torch.erfc(x), torch.log(torch.erfc(x))]),
        name="tail",
    ),
    Row(aten.erfc.default, (given(INF, -INF, math.nan),), name="infinities"),
    Row(aten.lerp.Scalar, (given(1e8), given(1.0), 1.0), name="end"),
    Row(aten.lerp.Scalar, (given(1.0), given(1e8), -2.0), name="outside"),
    Row(aten.lerp.Tensor, (given(1e8, 1.0), given(1.0, 1e8), given(1.0, 0.0)), name="ends"),
    Row(aten.relu.default, (ints("n"),), name="int"),
    Row(aten.relu.default, (ints("n", dtype=I32),), name="int32"),
    Row(aten.sign.default, (bools("n"),), name="bool"),
]

DOUBLES = [
    *(
        Row(target, (floats(40, low=-30.0, high=30.0, dtype=torch.float64),), name="double")
        for target in (aten.cosh.default, aten.sinh.default, aten.tan.default)
    ),
    Row(aten.sinh.default, (given(0.0, -1e-9, 1e-3, -0.99, dtype=torch.float64),), name="small"),
]
NAN_OPERANDS = [
    row
    for target in (aten.fmax.default, aten.fmin.default)
    for row in (
        Row(target, (floats("n", 3), floats(3))),
        Row(target, (given(1.0, math.nan, math.nan), given(math.nan, 2.0, math.nan)), name="nan"),
        Row(target, (ints("n"), ints("n")), name="int"),
        Row(target, (bools("n"), bools("n")), name="bool"),
    )
]
TRUTHS_AND_BYTES = [
    Row(aten.sign.default, (given(0.0, -0.0, 2.0, -INF, math.nan),), name="nan"),
    Row(aten.clamp.default, (floats("n"), math.nan, 1.0), name="nan below"),
    *(
        Row(target, (given(-INF, -2.0, math.nan, INF, dtype=dtype), -1.5), name=f"infinite {dtype}")
        for target in (aten.clamp.default, aten.clamp_min.default, aten.clamp_max.default)
        for dtype in (torch.float32, torch.float16, torch.float64)
    ),
    Row(aten.clamp.default, (floats("n"), 0.0, math.nan), name="nan above"),
    Row(aten.clamp_min.Tensor, (bools("n"), bools("n")), name="bool"),
    Row(aten.clamp_max.Tensor, (bools("n"), bools("n")), name="bool"),
    Row(aten.neg.default, (ints("n", low=0, high=255, dtype=torch.uint8),), name="uint8"),
]

ROWS = [
    *DOUBLES,
    *NAN_OPERANDS,
    *TRUTHS_AND_BYTES,
    *UNARY,
    *INTEGER,
    *BINARY,
    *DIVISIONS,
    *SCALARS,
    *NUMBERS_FIRST,
    *OTHERS,
    *EXACT,
]


@parametrize(ROWS)
def test_row(row: Row) -> None:
    check(row)
