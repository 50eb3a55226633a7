"""Sums, means, extremes and spreads: ``onnx_aot/ops/core/reduction.py``."""

from __future__ import annotations

import math
import warnings
from typing import Any

import pytest
import torch

import onnx_aot
from onnx_aot.torch_compat import aten
from tests.ops.rows import Row, T, bools, check, floats, given, ints, parametrize

EMPTY = ({"n": 0},)


def special(*values: float) -> T:
    """A float tensor with exactly these numbers."""
    return T((len(values),), torch.float32, lambda *_: torch.tensor(values))


def quietly(target: Any) -> Any:
    """Hides eager torch's warning about zero degrees of freedom."""

    def call(*args: Any, **kwargs: Any) -> Any:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return target(*args, **kwargs)

    return call


SUMS = [
    Row(target, args, kwargs, name=name, sizes=sizes)
    for target in (aten.sum.dim_IntList, aten.mean.dim)
    for name, args, kwargs, sizes in (
        ("one", (floats("n", 3, "m"), [1]), {}, EMPTY),
        ("negative", (floats("n", 3, "m"), [-1]), {}, EMPTY),
        ("several", (floats("n", 3, "m", 2), [0, -1]), {}, EMPTY),
        ("keepdim", (floats("n", 3, "m"), [0, 2], True), {}, EMPTY),
        ("no axes", (floats("n", 3), []), {}, EMPTY),
        ("no axes, keepdim", (floats("n", 3), [], True), {}, EMPTY),
        ("None", (floats("n", 3), None), {}, EMPTY),
        ("None, keepdim", (floats("n", 3), None, True), {}, EMPTY),
        ("size 0", (floats(3, 0), [1]), {}, ()),
        ("rank 0", (floats(), [-1], True), {}, ()),
        ("int to float", (ints("n", 3), [1]), {"dtype": torch.float32}, EMPTY),
        ("bool to float", (bools("n", 3), [0]), {"dtype": torch.float32}, EMPTY),
    )
] + [
    Row(target, args, kwargs, name=name, sizes=EMPTY)
    for target in (aten.sum.default, aten.mean.default)
    for name, args, kwargs in (
        ("", (floats("n", 3, "m"),), {}),
        ("rank 0", (floats(),), {}),
        ("int to float", (ints("n", 3),), {"dtype": torch.float32}),
    )
]

INTEGER_SUMS = [
    Row(target, (tensor, *rest), kwargs, name=name, sizes=EMPTY)
    for target, rest in (
        (aten.sum.default, ()),
        (aten.sum.dim_IntList, ([1],)),
        (aten.prod.default, ()),
        (aten.prod.dim_int, (-1,)),
    )
    for name, tensor, kwargs in (
        ("int", ints("n", 3), {}),
        ("int32", ints("n", 3, dtype=torch.int32), {}),
        ("int32 kept", ints("n", 3, dtype=torch.int32), {"dtype": torch.int32}),
        ("bool", bools("n", 3), {}),
        ("float to int", floats("n", 3), {"dtype": torch.int64}),
    )
]

PRODUCTS = [
    Row(aten.prod.default, (floats("n", 3),), sizes=EMPTY),
    Row(aten.prod.default, (floats(),), name="rank 0"),
    Row(aten.prod.dim_int, (floats("n", 3, "m"), 0), name="first", sizes=EMPTY),
    Row(aten.prod.dim_int, (floats("n", 3, "m"), -2, True), name="keepdim", sizes=EMPTY),
    Row(aten.prod.dim_int, (floats(), 0), name="rank 0"),
    *(
        Row(target, (ints("n", 5, "m", low=-32768, high=32767, dtype=dtype), *args), name=name)
        for dtype in (torch.int64, torch.int16)
        for target, args, name in (
            (aten.prod.default, (), f"{dtype} beyond double"),
            (aten.prod.dim_int, (1,), f"{dtype} beyond double"),
            (aten.prod.dim_int, (-1, True), f"{dtype} beyond double, keepdim"),
        )
    ),
    Row(aten.prod.dim_int, (ints("n", 3, "m"), 0), name="integers first", sizes=EMPTY),
    Row(aten.prod.default, (ints("n", 3),), name="integers", sizes=EMPTY),
]

SHORT = [
    Row(target, (make("n", 3),), {"dtype": dtype}, name=f"{str(dtype)[6:]} {make.__name__}")
    for target in (aten.sum.default, aten.prod.default)
    for dtype in (torch.bool, torch.int8, torch.uint8, torch.int32)
    for make in (bools, ints)
]
NAN = given(1.0, math.nan, math.inf, -math.inf)
NANS = [
    *(Row(target, (NAN,), name="nan") for target in (aten.max.default, aten.min.default)),
    *(Row(target, (NAN, [0]), name="nan") for target in (aten.amax.default, aten.amin.default)),
    Row(aten.aminmax.default, (NAN,), {"dim": 0, "keepdim": True}, name="nan"),
]

EXTREMES = [
    *(
        Row(target, (tensor, *rest), name=name, sizes=sizes)
        for target in (aten.amax.default, aten.amin.default)
        for name, tensor, rest, sizes in (
            ("all", floats("n", 3), (), ()),
            ("no axes, keepdim", floats("n", 3), ([], True), ()),
            ("one", floats("n", 3, "m"), ([-2],), EMPTY),
            ("several", floats("n", 3, "m"), ([0, -1], True), ()),
            ("rank 0", floats(), ([-1], True), ()),
            ("int", ints("n", 3), ([1],), EMPTY),
            ("int32", ints("n", 3, dtype=torch.int32), ([0],), ()),
            ("bool", bools("n", 2), ([1],), EMPTY),
            ("infinite", special(float("inf"), -float("inf"), 1.0), ([0],), ()),
        )
    ),
    *(
        Row(target, (tensor,), name=name)
        for target in (aten.max.default, aten.min.default, aten.aminmax.default)
        for name, tensor in (
            ("", floats("n", 3, "m")),
            ("rank 0", floats()),
            ("int", ints("n", 3)),
            ("int32", ints("n", 3, dtype=torch.int32)),
            ("bool", bools("n", 2)),
        )
    ),
    *(
        Row(target, (tensor, *rest), name=name, sizes=sizes)
        for target in (aten.max.dim, aten.min.dim)
        for name, tensor, rest, sizes in (
            ("first", floats("n", 3, "m"), (0,), ()),
            ("negative", floats("n", 3, "m"), (-2,), EMPTY),
            ("keepdim", floats("n", 3, "m"), (-1, True), EMPTY),
            ("rank 0", floats(), (0,), ()),
            ("ties", ints("n", 9, low=0, high=2), (1,), EMPTY),
            ("int32", ints("n", 3, dtype=torch.int32), (1,), ()),
            ("bool", bools("n", 4), (1,), EMPTY),
            ("bool, keepdim", bools("n", 4), (0, True), ()),
        )
    ),
    Row(aten.aminmax.default, (floats("n", 3),), {"dim": -1}, name="dim", sizes=EMPTY),
    Row(aten.aminmax.default, (floats("n", 3),), {"dim": 0, "keepdim": True}, name="keepdim"),
    Row(aten.aminmax.default, (floats(),), {"dim": 0}, name="rank 0, dim"),
]

POSITIONS = [
    Row(target, (tensor, *rest), name=name, sizes=sizes)
    for target in (aten.argmax.default, aten.argmin.default)
    for name, tensor, rest, sizes in (
        ("all", floats("n", 3, "m"), (), ()),
        ("all, keepdim", floats("n", 3, "m"), (None, True), ()),
        ("all ties", ints("n", 9, low=0, high=2), (), ()),
        ("first", floats("n", 3, "m"), (0,), ()),
        ("negative", floats("n", 3, "m"), (-2,), EMPTY),
        ("keepdim", floats("n", 3, "m"), (-1, True), EMPTY),
        ("ties", ints("n", 9, low=0, high=2), (1,), EMPTY),
        ("float ties", T(("n", 9), torch.float32, lambda *s: torch.randint(0, 2, s)), (1,), ()),
        ("int32", ints("n", 3, dtype=torch.int32), (1,), ()),
        ("rank 0", floats(), (), ()),
        ("rank 0, dim", floats(), (-1, True), ()),
    )
]

CUMULATIVE = [
    Row(aten.cumsum.default, (floats("n", 3, "m"), 0), name="first", sizes=EMPTY),
    Row(aten.cumsum.default, (floats("n", 3, "m"), -1), name="negative", sizes=EMPTY),
    Row(aten.cumsum.default, (ints("n", 3), 1), name="int", sizes=EMPTY),
    Row(aten.cumsum.default, (ints("n", 3, dtype=torch.int32), 1), name="int32"),
    Row(aten.cumsum.default, (bools("n", 3), 0), name="bool"),
    Row(aten.cumsum.default, (ints("n", 3), 1), {"dtype": torch.float32}, name="dtype"),
    Row(aten.cumsum.default, (floats(), 0), name="rank 0"),
    Row(aten.cumsum.default, (bools(), -1), name="rank 0, bool"),
]

LOG_SUM_EXP = [
    Row(aten.logsumexp.default, (floats("n", 3, "m"), [1]), name="one", sizes=EMPTY),
    Row(aten.logsumexp.default, (floats("n", 3, "m"), [0, -1], True), name="several", sizes=EMPTY),
    Row(aten.logsumexp.default, (floats("n", 3, low=90, high=200), [1]), name="large"),
    Row(
        aten.logsumexp.default, (special(-float("inf"), -float("inf")), [0]), name="minus infinity"
    ),
    Row(aten.logsumexp.default, (special(1.0, float("inf")), [0]), name="infinity"),
    Row(aten.logsumexp.default, (floats(), [0]), name="rank 0"),
    Row(aten.logsumexp.default, (ints("n", 3), [1]), name="int"),
]

SPREADS = [
    Row(target, args, kwargs, call=quietly(target), name=name, sizes=EMPTY)
    for target in (
        aten.var.correction,
        aten.std.correction,
        aten.var_mean.correction,
        aten.std_mean.correction,
    )
    for name, args, kwargs in (
        ("all", (floats("n", 3),), {}),
        ("last", (floats("n", 3, "m"), [-1]), {}),
        ("static", (floats("n", 3), [1]), {"correction": 2}),
        ("several", (floats("n", 3, "m"), [0, 1]), {"keepdim": True}),
        ("population", (floats("n", 3, "m"), [2]), {"correction": 0}),
        ("static population", (floats("n", 3), [1]), {"correction": 0, "keepdim": True}),
        ("as many as elements", (floats("n", 3), [0]), {"correction": 4}),
        ("static, as many as elements", (floats("n", 3), [1]), {"correction": 3}),
        ("more than elements", (floats("n", 3), [1]), {"correction": 5}),
        ("fraction", (floats("n", 3), [0]), {"correction": 0.5}),
        ("fraction beyond", (floats("n", 3), [0]), {"correction": 3.5}),
        ("static fraction", (floats("n", 3), [1]), {"correction": 1.5}),
        ("whole float", (floats("n", 3), [0]), {"correction": 2.0}),
        ("rank 0", (floats(),), {}),
        ("rank 0, population", (floats(), [0]), {"correction": 0}),
        ("rank 0, fraction", (floats(),), {"correction": 0.5}),
    )
] + [
    Row(target, (tensor, *rest), call=quietly(target), name=name, sizes=EMPTY)
    for targets, tensor, rest, name in (
        ("default", floats("n", 3), (), ""),
        ("default", floats("n", 3), (False,), "population"),
        ("default", floats(), (), "rank 0"),
        ("dim", floats("n", 3, "m"), ([-1],), ""),
        ("dim", floats("n", 3, "m"), ([0, 1], False, True), "population, keepdim"),
        ("dim", floats(), ([0], False), "rank 0, population"),
    )
    for target in (
        getattr(packet, targets) for packet in (aten.var, aten.std, aten.var_mean, aten.std_mean)
    )
]

HALF_SUMS = [  # the sum and the number of elements are beyond 65504
    Row(target, (floats("n", 1, 70000, low=0.0, high=2.0, dtype=dtype),), call=quietly(target))
    for target in (aten.mean.default, aten.var.correction, aten.std.correction)
    for dtype in (torch.float16, torch.bfloat16)
]

ROWS = [
    *SHORT,
    *HALF_SUMS,
    *NANS,
    *SUMS,
    *INTEGER_SUMS,
    *PRODUCTS,
    *EXTREMES,
    *POSITIONS,
    *CUMULATIVE,
    *LOG_SUM_EXP,
    *SPREADS,
]


@parametrize(ROWS)
def test_row(row: Row) -> None:
    check(row)


@pytest.mark.parametrize("shapes", [None, ({0: "n"},)])
def test_long_cumulative_sums_are_as_exact_as_pytorchs(shapes: Any) -> None:
    """The sine of a sum of phases shows how exact the sum is."""

    def forward(x: torch.Tensor) -> torch.Tensor:
        return torch.cumsum(x, 0).sin()

    x = torch.rand(20000, generator=torch.Generator().manual_seed(0)) * 3
    program = onnx_aot.export(forward, (x,), dynamic_shapes=shapes)
    exact = forward(x.double())
    errors = [float((found - exact).abs().max()) for found in (program(x)[0], forward(x))]
    assert errors[0] <= 2 * errors[1]


def test_deviations_whose_squares_are_beyond_float16() -> None:
    def deviate(x: torch.Tensor) -> tuple[torch.Tensor, ...]:
        return x.std(1), *torch.std_mean(x, 1, correction=0), x.round(decimals=2)

    x = torch.tensor([[88.8, -104.0, 0.125, 710.0], [1.0, 2.0, 3.0, 4.256]]).half()
    for actual, expected in zip(onnx_aot.export(deviate, (x,))(x), deviate(x), strict=True):
        assert torch.isfinite(expected).all()
        torch.testing.assert_close(actual, expected, rtol=1e-2, atol=1e-3)


def test_roots_of_float64_norms_are_exact() -> None:
    x = torch.tensor([[7.0, -3.0, 2e5]], dtype=torch.float64)
    program = onnx_aot.export(lambda x: (x.norm(3, dim=1), x.norm(2.3)), (x,))
    for actual, expected in zip(program(x), (x.norm(3, dim=1), x.norm(2.3)), strict=True):
        torch.testing.assert_close(actual, expected, rtol=1e-12, atol=0)
