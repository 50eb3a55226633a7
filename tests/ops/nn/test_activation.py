"""Activation functions: ``onnx_aot/ops/nn/activation.py``."""

from __future__ import annotations

import math

import torch

import onnx_aot
from onnx_aot.torch_compat import aten
from tests.ops.rows import Row, T, check, floats, given, ints, parametrize
from tests.releases import TORCH

INT32 = torch.int32


def _extremes(size: int) -> torch.Tensor:
    values = torch.tensor([0.0, 100.0, -100.0, 1e-6, -1e-6, 20.0, -20.0, 21.0, -0.0])
    return values.repeat(size)[:size]


def _not_finite(size: int) -> torch.Tensor:
    return torch.tensor([math.nan, math.inf, -math.inf, 1.0]).repeat(size)[:size]


EXTREMES = T(("m",), torch.float32, _extremes)
NOT_FINITE = T((4,), torch.float32, _not_finite)

# Activations of one tensor: ranks 3 and 0, an empty dimension, and numbers far from zero.
UNARY = [
    Row(target, (values, *more), sizes=sizes, name=name)
    for target, more in (
        (aten.gelu.default, ()),
        (aten.silu.default, ()),
        (aten.mish.default, ()),
        (aten.hardswish.default, ()),
        (aten.hardsigmoid.default, ()),
        (aten.hardtanh.default, ()),
        (aten.relu6.default, ()),
        (aten.leaky_relu.default, ()),
        (aten.elu.default, ()),
        (aten.selu.default, ()),
        (aten.celu.default, ()),
        (aten.softplus.default, ()),
        (aten.log_sigmoid.default, ()),
        (aten.softshrink.default, ()),
        (aten.threshold.default, (0.5, -2.0)),
    )
    for name, values, sizes in (
        ("rank3", floats("n", 3, "m", low=-7.0, high=7.0), ({"n": 0},)),
        ("rank0", floats(), ()),
        ("extremes", EXTREMES, ()),
    )
]

ARGUMENTS = [
    Row(aten.gelu.default, (floats(9, dtype=torch.float64),), name="double"),
    Row(aten.gelu.default, (floats("n", 3),), {"approximate": "tanh"}, name="tanh"),
    Row(aten.gelu.default, (floats(),), {"approximate": "tanh"}, name="tanh rank0"),
    Row(aten.gelu.default, (EXTREMES,), {"approximate": "tanh"}, name="tanh extremes"),
    Row(aten.hardtanh.default, (floats("n", 3), -2.0, 0.5), name="bounds"),
    Row(aten.hardtanh.default, (ints("n", 3), -1.5, 2.5), name="int"),
    Row(aten.hardtanh.default, (ints("n", 3, dtype=INT32), -1, 2), name="int32"),
    Row(aten.hardtanh.default, (ints("n", 3, dtype=torch.uint8), 1, 2), name="uint8"),
    *(
        [Row(aten.hardtanh.default, (ints("n", 3, dtype=torch.uint8), -1, 300), name="below 0")]
        if TORCH >= (2, 15)  # earlier releases reject such limits
        else []
    ),
    Row(aten.relu6.default, (ints("n", 3, low=-9, high=9),), name="int"),
    Row(aten.relu6.default, (ints("n", 3, low=-9, high=9, dtype=INT32),), name="int32"),
    Row(aten.leaky_relu.default, (floats("n", 3), 0.2), name="slope"),
    Row(aten.leaky_relu.default, (floats("n", 3), -0.5), name="negative slope"),
    Row(aten.elu.default, (floats("n", 3), 0.7), name="alpha"),
    Row(aten.elu.default, (floats("n", 3), 0.7, 1.3), name="scale"),
    Row(aten.elu.default, (floats("n", 3), 0.7, 1.3, 0.5), name="input scale"),
    Row(aten.elu.default, (floats("n", 3), 0.7, 1.3, -0.5), name="negative input scale"),
    Row(aten.celu.default, (floats("n", 3), 0.3), name="alpha"),
    Row(aten.celu.default, (floats("n", 3), -0.7), name="negative alpha"),
    Row(aten.celu.default, (floats("n", 3, dtype=torch.float64), 0.3), name="double"),
    Row(aten.softplus.default, (floats("n", 3), 2.5), name="beta"),
    Row(aten.softplus.default, (floats("n", 3), -0.5), name="negative beta"),
    Row(aten.softplus.default, (floats("n", 3), 2.0, 1.0), name="beta threshold"),
    Row(aten.softplus.default, (floats("n", 3), 1, 0.5), name="threshold"),
    Row(aten.threshold.default, (floats("n", 3), 0, 20), name="int numbers"),
    Row(aten.threshold.default, (ints("n", 3), 1, -7), name="int"),
    Row(aten.threshold.default, (ints("n", 3, dtype=INT32), 2.5, 1.5), name="int32"),
    Row(aten.threshold.default, (NOT_FINITE, 0.0, 1.0), name="not finite"),
    Row(aten.hardtanh.default, (NOT_FINITE,), name="not finite"),
    Row(aten.softplus.default, (NOT_FINITE,), name="not finite"),
    Row(aten.softshrink.default, (NOT_FINITE, 0.2), name="not finite"),
    Row(aten.celu.default, (NOT_FINITE,), name="not finite"),
]

PRELU = [
    *(
        Row(aten.prelu.default, (values, floats(1)), name=f"one slope rank{len(values.sizes)}")
        for values in (
            floats(),
            floats("n"),
            floats("n", "m"),
            floats("n", 3, "m"),
            floats("n", 3, "m", 2),
            floats("n", 3, 2, "m", 2),
        )
    ),
    *(
        Row(aten.prelu.default, (values, floats(3)), name=f"per channel rank{len(values.sizes)}")
        for values in (
            floats("n", 3),
            floats("n", 3, "m"),
            floats("n", 3, 2, "m"),
            floats("n", 3, 2, "m", 2),
        )
    ),
    *(
        Row(aten.prelu.default, (values, floats()), name=f"slope rank0 rank{len(values.sizes)}")
        for values in (floats(), floats("n"), floats("n", 3, "m"))
    ),
    Row(aten.prelu.default, (floats(2, "n", 3), floats("n")), name="dynamic channels"),
    Row(aten.prelu.default, (floats(2, "n"), floats("n")), name="dynamic channels rank2"),
    Row(aten.prelu.default, (floats("n", 3, 2), floats(3)), sizes=({"n": 0},), name="empty"),
    Row(aten.prelu.default, (floats("n", 1, 2), floats(1)), name="one channel"),
]

GLU = [
    Row(aten.glu.default, (floats("n", 6),)),
    Row(aten.glu.default, (floats("n", 6, "m"), 1), sizes=({"m": 0},), name="dim"),
    Row(aten.glu.default, (floats("n", 6, "m"), -2), name="negative dim"),
    Row(aten.glu.default, (floats(2),), name="rank1"),
    Row(
        aten.glu.default,
        (floats("n", 3),),
        call=lambda x: aten.glu.default(torch.cat([x, x]), 0),
        name="dynamic dim",
    ),
]

SOFTMAX = [
    Row(target, args, {**more, **kwargs}, sizes=sizes, name=name)
    for target, more in (
        (aten.softmax.int, {}),
        (aten.log_softmax.int, {}),
        (aten._softmax.default, {"half_to_float": False}),
        (aten._log_softmax.default, {"half_to_float": False}),
    )
    for name, args, kwargs, sizes in (
        ("last", (floats("n", 3, "m"), 2), {}, ({"n": 0}, {"m": 0})),
        ("negative", (floats("n", 3, "m"), -2), {}, ()),
        ("first", (floats("n", 3), 0), {}, ({"n": 0},)),
        ("rank0", (floats(), 0), {}, ()),
        ("rank0 negative", (floats(), -1), {}, ()),
        ("size1", (floats("n", 1), 1), {}, ()),
        ("extremes", (EXTREMES, 0), {}, ()),
        ("not finite", (NOT_FINITE, 0), {}, ()),
        ("double", (floats("n", 3, dtype=torch.float64), 1), {}, ({"n": 0},)),
        ("double, NaN", (given(1.0, math.nan, 2.0, dtype=torch.float64), 0), {}, ()),
        ("double, masked", (given(1.0, -math.inf, dtype=torch.float64), 0), {}, ()),
    )
] + [
    Row(target, args, kwargs, name=name)
    for target in (aten.softmax.int, aten.log_softmax.int)
    for name, args, kwargs in (
        ("double", (floats("n", 3), -1), {"dtype": torch.float64}),
        ("from int", (ints("n", 3), 1), {"dtype": torch.float32}),
        ("from int32", (ints("n", 3, dtype=INT32), 0), {"dtype": torch.float32}),
        ("rank0 from int", (ints(), 0), {"dtype": torch.float32}),
    )
]

ROWS = [*UNARY, *ARGUMENTS, *PRELU, *GLU, *SOFTMAX]


@parametrize(ROWS)
def test_row(row: Row) -> None:
    check(row)


def test_constants_of_selu_in_float64() -> None:
    x = torch.linspace(-3, 3, 13, dtype=torch.float64)
    (actual,) = onnx_aot.export(torch.nn.SELU(), (x,))(x)
    torch.testing.assert_close(actual, torch.nn.functional.selu(x), rtol=1e-14, atol=1e-15)
