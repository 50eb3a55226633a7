"""Products and log-sums of complex numbers: ``onnx_aot/ops/complex/cumulative.py``."""

from __future__ import annotations

import math

import pytest
import torch

from onnx_aot.torch_compat import aten
from tests.ops.complex.complex_numbers import numbers
from tests.ops.rows import Row, T, check, floats, ints, parametrize

C = numbers("n", "m", size=1.0)
EMPTY = ({"n": 0}, {"m": 0})
INFINITE = [complex(math.inf, 1), 1 + 2j, 0j, complex(-math.inf, 2), complex(1, math.inf), 3j]
SUMMED = [
    [complex(-math.inf, 1), complex(-math.inf, 2), 1 + 3j, complex(math.inf, 1), 2j, 1 + 0j],
    [complex(math.inf, 1), complex(math.inf, 2), complex(math.inf, 2.5), 1j, 1j, 1j],
    [complex(math.inf, 0), complex(math.inf, 0), complex(math.inf, 0), 1j, 1j, 1j],
    [complex(math.inf, 1), complex(math.inf, 1.2), 1j, 1j, 1j, 1j],
    [complex(math.nan, 1), 1j, 1j, 1j, 1j, 1j],
    [1j, complex(1, math.nan), 1j, 1j, 1j, 1j],
]


def fixed(values: list[complex]) -> T:
    return T((len(values),), torch.complex64, lambda *_: torch.tensor(values))


ROWS = [
    Row(aten.prod.default, (C,), sizes=EMPTY),
    Row(aten.prod.default, (numbers(),), name="of one number"),
    Row(aten.prod.default, (numbers(300, size=0.8),), name="of many"),
    Row(aten.prod.default, (ints("n", low=1),), {"dtype": torch.complex64}, name="of integers"),
    Row(aten.prod.default, (fixed(INFINITE),), name="infinite"),
    *(
        Row(aten.prod.dim_int, (x, dim, keepdim), name=f"{dim} {keepdim}", sizes=more)
        for x, dim, keepdim, more in (
            (C, 1, True, EMPTY),
            (C, 0, False, EMPTY),
            (C, -1, False, EMPTY),
            (numbers(2, 0, 3), 1, True, ()),
            (numbers(), 0, False, ()),
            (numbers("n", 5, dtype=torch.complex128), 1, False, ()),
        )
    ),
    *(
        Row(target, (C, *rest), {"dtype": dtype}, name=f"{rest} as {dtype}", sizes=EMPTY)
        for dtype in (torch.int64, torch.int32, torch.float32)
        for target, rest in (
            (aten.prod.default, ()),
            (aten.prod.dim_int, (1, True)),
            (aten.cumprod.default, (1,)),
        )
    ),
    *(
        Row(aten.cumprod.default, (x, dim), name=f"{x.sizes} {dim}", sizes=more)
        for x, dim, more in (
            (C, 0, EMPTY),
            (C, -1, EMPTY),
            (numbers(), 0, ()),
            (numbers(0, 3), 0, ()),
            (fixed(INFINITE), 0, ()),
        )
    ),
    Row(aten.cumprod.default, (floats("n", 4), 0), {"dtype": torch.complex64}, name="of reals"),
    *(
        Row(aten.logcumsumexp.default, (x, dim), name=f"{x.sizes} {dim}", sizes=more)
        for x, dim, more in (
            (numbers("n", "m", size=4.0), 0, EMPTY),
            (numbers("n", "m", size=4.0, dtype=torch.complex128), -1, EMPTY),
            (numbers(40, 2, size=30.0), 0, ()),
            (numbers(2, 3, 4), 1, ()),
            (numbers(), 0, ()),
            (numbers(0, 3), 0, ()),
        )
    ),
    *(
        Row(aten.logcumsumexp.default, (fixed(values), 0), name=f"unusual {index}")
        for index, values in enumerate(SUMMED)
    ),
]


@parametrize(ROWS)
@pytest.mark.filterwarnings("ignore:Casting complex values to real")
def test_row(row: Row) -> None:
    check(row)
