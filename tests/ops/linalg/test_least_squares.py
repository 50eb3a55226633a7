"""Least squares: ``onnx_aot/ops/linalg/least_squares.py``."""

from __future__ import annotations

import pytest
import torch

import onnx_aot
from onnx_aot.errors import InferenceError
from onnx_aot.torch_compat import aten
from tests.ops.rows import Row, T, check, floats, parametrize

DOUBLE = torch.float64
LSTSQ = aten.linalg_lstsq.default


def deficient(*sizes: int | str) -> T:
    """Matrices of rank 2, multiplied in float64: rounding in float32 would count as rank 3."""

    def make(*s: int) -> torch.Tensor:
        left, right = (*s[:-1], 2), (*s[:-2], 2, s[-1])
        return torch.randn(left, dtype=DOUBLE) @ torch.randn(right, dtype=DOUBLE)

    return T(sizes, DOUBLE, make)


ROWS = [
    Row(LSTSQ, args, {"driver": driver}, name=f"{name}, {driver}", refused=True)
    for driver in (None, "gels", "gelsy", "gelsd", "gelss")
    for name, args in (
        ("tall", (floats("n", 5, 3, dtype=DOUBLE), floats("n", 5, "k", dtype=DOUBLE))),
        ("square", (floats(3, 3), floats(3, "k"))),
        ("wide", (floats("n", 2, 4, dtype=DOUBLE), floats("n", 2, 3, dtype=DOUBLE))),
        ("vectors", (floats("n", 5, 3, dtype=DOUBLE), floats("n", 5, dtype=DOUBLE))),
        ("one vector", (floats(5, 3), floats(5))),
        ("broadcast", (floats(1, 5, 3), floats("n", 5, 2))),
    )
]

OTHERS = [
    Row(LSTSQ, (floats("n", 3), floats("n", 2)), name="any number of rows", refused=True),
    Row(LSTSQ, (deficient("n", 6, 4), floats("n", 6, 2, dtype=DOUBLE)), name="rank", refused=True),
    Row(LSTSQ, (deficient(3, 6), floats(3, 2, dtype=DOUBLE)), name="wide rank", refused=True),
    Row(LSTSQ, (floats(3, 3), floats(3, 2), 0.5), {"driver": "gelsd"}, name="rcond", refused=True),
    Row(LSTSQ, (floats(3, 3), floats(3, 2), -1.0), {"driver": "gelsd"}, name="eps", refused=True),
]


@parametrize([*ROWS, *OTHERS])
def test_rows(row: Row) -> None:
    check(row)


def test_residuals_bound_the_number_of_rows() -> None:
    """Only matrices with more rows than columns have residuals."""

    def residuals(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
        return torch.linalg.lstsq(a, b, driver="gels").residuals

    examples = torch.randn(5, 3), torch.randn(5, 2)
    program = onnx_aot.export(residuals, examples, dynamic_shapes=({0: "m"}, {0: "m"}))
    a, b = torch.randn(8, 3), torch.randn(8, 2)
    torch.testing.assert_close(program(a, b)[0], residuals(a, b))
    with pytest.raises(InferenceError, match="captured for 4 or more"):
        program(torch.randn(3, 3), torch.randn(3, 2))


def test_sides_that_do_not_fit_are_refused() -> None:
    with pytest.raises(Exception, match=r"input\.size\(-2\) should match other"):
        onnx_aot.export(torch.linalg.lstsq, (torch.randn(5, 3), torch.randn(4, 2)))
