"""Covariances and correlations: ``onnx_aot/ops/linalg/covariance.py``."""

from __future__ import annotations

import math
from collections.abc import Callable

import pytest
import torch

import onnx_aot
from onnx_aot.errors import OnnxExporterWarning
from onnx_aot.torch_compat import aten
from tests.ops.rows import Row, check, floats, given, ints, parametrize, positive

DOUBLE = torch.float64
Tensor = torch.Tensor
COUNTS = ints("n", low=1, high=5)

COV = [
    Row(aten.cov.default, args, kwargs, name=name, sizes=({"n": 0}, {"n": 1}), refused=True)
    for name, args, kwargs in (
        ("variables", (floats(3, "n"),), {}),
        ("float64", (floats(3, "n", dtype=DOUBLE),), {}),
        ("float16", (floats(3, "n", dtype=torch.float16),), {}),
        ("integers", (ints(3, "n"),), {}),
        ("one variable", (floats("n"),), {}),
        ("one row", (floats(1, "n"),), {}),
        ("no correction", (floats(3, "n"),), {"correction": 0}),
        ("correction", (floats(3, "n"),), {"correction": 2}),
    )
]

WEIGHTED = [
    Row(aten.cov.default, (observations,), kwargs, name=name, sizes=({"n": 1},), refused=True)
    for name, observations, kwargs in (
        ("fweights", floats(3, "n"), {"fweights": COUNTS}),
        ("aweights", floats(3, "n"), {"aweights": positive("n")}),
        ("both", floats(3, "n"), {"fweights": COUNTS, "aweights": positive("n")}),
        ("both, no correction", floats(3, "n"), {"correction": 0, "aweights": positive("n")}),
        ("integers, fweights", ints(3, "n"), {"fweights": COUNTS}),
    )
]

NUMBER = [
    Row(aten.cov.default, (floats(),), name="a number", refused=True),
    Row(aten.corrcoef.default, (floats(),), name="a number", refused=True),
    Row(aten.corrcoef.default, (given(1.0, 1.0, 1.0),), name="constant", refused=True),
]

CORRCOEF = [
    Row(aten.corrcoef.default, args, name=name, sizes=({"n": 0}, {"n": 1}), refused=True)
    for name, args in (
        ("variables", (floats(3, "n"),)),
        ("integers", (ints(3, "n"),)),
        ("float16", (floats(3, "n", dtype=torch.float16),)),
        ("one variable", (floats("n"),)),
    )
]


@pytest.mark.filterwarnings("ignore:cov")
@parametrize([*COV, *WEIGHTED, *NUMBER, *CORRCOEF])
def test_rows(row: Row) -> None:
    check(row)


def test_a_variable_that_does_not_vary() -> None:
    """Its correlations are NaN; the others are within -1 and 1."""
    x = torch.tensor([[1.0, 2.0, 4.0], [3.0, 3.0, 3.0], [-2.0, -4.0, -8.0]])
    found = onnx_aot.export(torch.corrcoef, (x,))(x)[0]
    torch.testing.assert_close(found, torch.corrcoef(x), equal_nan=True)
    assert math.isnan(found[1, 1])
    assert found[0, 2] == -1.0


@pytest.mark.parametrize("function", [torch.cov, torch.corrcoef])
def test_the_number_of_variables_is_dynamic(function: Callable[[Tensor], Tensor]) -> None:
    """Eager returns a number for one variable, which a model cannot."""

    def call(x: Tensor) -> Tensor:
        return function(x)

    sizes = ({0: "v", 1: "n"},)
    with pytest.warns(OnnxExporterWarning, match=r"for one variable.*axis 0 \(v\)"):
        program = onnx_aot.export(call, (torch.randn(3, 5),), dynamic_shapes=sizes)
    for v, n in ((3, 5), (2, 9), (6, 2)):
        x = torch.randn(v, n)
        torch.testing.assert_close(program(x)[0], function(x))
