"""Complex covariances and correlations: ``onnx_aot/ops/complex/covariance.py``."""

from __future__ import annotations

from typing import Any

import pytest
import torch

import onnx_aot

WEIGHTS = {"fweights": torch.tensor([1, 3, 2, 1]), "aweights": torch.tensor([0.5, 1.0, 2.0, 0.1])}


@pytest.mark.filterwarnings("ignore:cov")
@pytest.mark.parametrize(
    ("function", "kwargs"),
    [
        (torch.cov, {}),
        (torch.cov, {"correction": 0}),
        (torch.cov, WEIGHTS),
        (torch.corrcoef, {}),
    ],
)
@pytest.mark.parametrize("shape", [(3, 4), (1, 4), (4,)])
def test_complex(function: Any, kwargs: dict[str, Any], shape: tuple[int, ...]) -> None:
    torch.manual_seed(0)
    x = torch.randn(shape, dtype=torch.complex64)
    program = onnx_aot.export(lambda x: function(x, **kwargs), (x,))
    torch.testing.assert_close(program(x)[0], function(x, **kwargs))


@pytest.mark.parametrize("driver", [None, "gels", "gelsd"])
@pytest.mark.parametrize("sides", [(5, 3), (3, 3), (2, 4)])
@pytest.mark.parametrize("right", [(2,), ()])
def test_least_squares(driver: str | None, sides: tuple[int, int], right: tuple[int, ...]) -> None:
    torch.manual_seed(0)
    a = torch.randn(2, *sides, dtype=torch.complex128)
    b = torch.randn(2, sides[0], *right, dtype=torch.complex128)

    def solve(a: torch.Tensor, b: torch.Tensor) -> tuple[torch.Tensor, ...]:
        return tuple(torch.linalg.lstsq(a, b, driver=driver))

    found = onnx_aot.export(solve, (a, b))(a, b)
    torch.testing.assert_close(tuple(found), solve(a, b))
