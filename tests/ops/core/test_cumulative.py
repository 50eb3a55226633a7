"""Running products, extremes, log-sums and differences: ``onnx_aot/ops/core/cumulative.py``."""

from __future__ import annotations

import math

import pytest
import torch

import onnx_aot
from onnx_aot.builder.builder import Builder
from onnx_aot.ops.core.cumulative import count_doublings
from onnx_aot.torch_compat import aten
from tests.ops.rows import Row, T, bools, check, floats, given, ints, parametrize, positive

NONE_N = ({"n": 0},)
NAN = math.nan


def with_nan(*sizes: int | str) -> T:
    """Numbers with NaN in every fourth place and some equal ones."""

    def make(*s: int) -> torch.Tensor:
        values = torch.randint(0, 4, s).float()
        return torch.where(torch.rand(s) < 0.25, NAN, values)

    return T(sizes, torch.float32, make)


EXTREMES = [
    Row(target, args, sizes=sizes, name=name)
    for target in (aten.cummax.default, aten.cummin.default)
    for name, args, sizes in (
        ("last", (floats("n", 6), 1), NONE_N),
        ("dynamic", (floats("n", 3), 0), NONE_N),
        ("negative dim", (floats(3, "n", 2), -2), NONE_N),
        ("one", (floats("n", 1), 1), ()),
        ("equal ones", (ints("n", 9, low=0, high=3), 1), ()),
        ("int32", (ints(9, "n", dtype=torch.int32), 0), ()),
        ("bool", (bools("n", 9), 1), NONE_N),
        ("nan", (with_nan(3, "h"), 1), ()),
        ("infinite", (given(-math.inf, math.inf, -math.inf, 2.0), 0), ()),
        ("rank0", (floats(), 0), ()),
    )
]

ROWS = [
    *EXTREMES,
    *(
        Row(aten.cumprod.default, args, kwargs, sizes=sizes, name=name)
        for name, args, kwargs, sizes in (
            ("last", (positive("n", 6), 1), {}, NONE_N),
            ("dynamic", (positive("n", 3), 0), {}, NONE_N),
            ("vector", (positive("n"), 0), {}, NONE_N),
            ("negative dim", (positive(3, "n", 2), -2), {}, NONE_N),
            ("int", (ints("n", 4), 1), {}, ()),
            ("bool", (bools("n", 4), 1), {}, ()),
            ("dtype", (ints("n", 4), 1), {"dtype": torch.float32}, ()),
            ("underflow", (given(1e-30, 1e-30, 1e30, 1e30), 0), {}, ()),
            ("one", (positive("n", 1), 1), {}, ()),
            ("rank0", (positive(), 0), {}, ()),
        )
    ),
    *(
        Row(aten.logcumsumexp.default, args, sizes=sizes, name=name)
        for name, args, sizes in (
            ("last", (floats("n", 6), 1), NONE_N),
            ("dynamic", (floats("n", 3), 0), NONE_N),
            ("negative dim", (floats(3, "n", 2), -2), NONE_N),
            ("large", (floats("n", 6, low=-500.0, high=500.0), 1), ()),
            ("infinite", (given(-math.inf, -math.inf, 1.0, math.inf, math.inf, 2.0), 0), ()),
            ("nan", (given(1.0, NAN, 2.0), 0), ()),
            ("rank0", (floats(), -1), ()),
        )
    ),
]


@parametrize(ROWS)
def test_row(row: Row) -> None:
    check(row)


DIFFERENCES = [
    Row(aten.diff.default, (values, *more), sizes=sizes, name=name)
    for name, values, more, sizes in (
        ("vector", floats("h"), (), ({"h": 1},)),
        ("first axis", ints("h", 3), (1, 0), ({"h": 1},)),
        ("twice", floats("n", 5), (2, -1), NONE_N),
        ("none", floats("n", 5), (0,), NONE_N),
        ("none with ends", floats("n", 5), (0, 1, floats("n", 1), floats("n", 2)), NONE_N),
        ("more than there are", floats("n", 2), (3,), NONE_N),
        ("bool", bools("n", 5), (), NONE_N),
        ("int32", ints("n", 5, dtype=torch.int32), (), ()),
        ("with ends", floats("n", 3), (1, 1, floats("n", 1), floats("n", 2)), NONE_N),
    )
] + [
    Row(
        aten.diff.default,
        (floats(3, "k"),),
        call=lambda x: x[2 : -(-x.shape[1] // 3)].diff(dim=0),
        name="nothing in the example",
    )
]


@parametrize(DIFFERENCES)
@pytest.mark.filterwarnings(
    "ignore:the model behaves differently for different sizes"
)  # the slice does this
def test_difference(row: Row) -> None:
    check(row)


@pytest.mark.parametrize("size", range(1, 70))
def test_doublings_reach_the_size(size: int) -> None:
    steps = count_doublings(Builder(20), size)
    assert isinstance(steps, int)
    assert 2**steps >= size > 2**steps // 2 or size == 1


def test_many_elements() -> None:
    class Model(torch.nn.Module):
        def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
            values, indices = x.cummax(0)
            return values, indices

    program = onnx_aot.export(Model(), (torch.randn(8),), dynamic_shapes=({0: "n"},))
    for size in (2, 3, 4, 5, 63, 64, 65, 1000):
        x = torch.randn(size)
        values, indices = program(x)
        assert values.equal(x.cummax(0)[0])
        assert indices.equal(x.cummax(0)[1])
