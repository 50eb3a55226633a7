"""Each function is a row; matrices are well conditioned."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch

import onnx_aot

Tensor = torch.Tensor


def matrix(*batch: int, rows: int = 4, columns: int = 4) -> Tensor:
    torch.manual_seed(0)
    a = torch.randn(*batch, rows, columns, dtype=torch.complex64)
    return a + 3 * torch.eye(rows, columns)


def hermitian(*batch: int) -> Tensor:
    a = matrix(*batch)
    return a @ a.mH + torch.eye(4)


SQUARE = [
    torch.linalg.inv,
    torch.inverse,
    torch.linalg.inv_ex,
    torch.linalg.det,
    torch.det,
    torch.linalg.slogdet,
    torch.slogdet,
    torch.logdet,
    torch.linalg.lu_factor,
    torch.linalg.lu_factor_ex,
    torch.linalg.lu,
    lambda a: torch.lu_unpack(*torch.linalg.lu_factor(a)),
    lambda a: torch.linalg.matrix_power(a, -2),
]

PAIRS = [
    torch.linalg.solve,
    lambda a, b: torch.linalg.solve(a, b, left=False),
    lambda a, b: torch.linalg.solve(a, b[..., 0]),
    torch.linalg.solve_ex,
    lambda a, b: torch.linalg.solve_triangular(a, b, upper=True),
    lambda a, b: torch.linalg.solve_triangular(a, b, upper=False, unitriangular=True),
    lambda a, b: torch.linalg.solve_triangular(a, b, upper=False, left=False),
    lambda a, b: torch.triangular_solve(b, a, transpose=True)[0],
    lambda a, b: torch.linalg.lu_solve(*torch.linalg.lu_factor(a), b),
    lambda a, b: torch.linalg.lu_solve(*torch.linalg.lu_factor(a), b, adjoint=True),
    lambda a, b: torch.lu_solve(b, *torch.linalg.lu_factor(a)),
]

POSITIVE = [
    torch.linalg.cholesky,
    lambda a: torch.linalg.cholesky(a, upper=True),
    torch.linalg.cholesky_ex,
    lambda a: torch.cholesky_inverse(torch.linalg.cholesky(a)),
    lambda a: torch.cholesky_solve(a, torch.linalg.cholesky(a)),
    lambda a: torch.cholesky_solve(a, torch.linalg.cholesky(a, upper=True), upper=True),
    torch.linalg.eigvalsh,
    lambda a: torch.linalg.eigvalsh(a, UPLO="U"),
    torch.linalg.svdvals,
    torch.matrix_exp,
]


class Call(torch.nn.Module):
    def __init__(self, function: Callable[..., Any]) -> None:
        super().__init__()
        self.function = function

    def forward(self, *args: Tensor) -> Any:
        return self.function(*args)


def check(function: Callable[..., Any], *args: Tensor) -> None:
    onnx_aot.export(Call(function), args, verify=True)


@pytest.mark.parametrize("batch", [(), (2,), (0,)], ids=str)
@pytest.mark.parametrize("function", SQUARE)
def test_one_matrix(function: Callable[..., Any], batch: tuple[int, ...]) -> None:
    check(function, matrix(*batch))


@pytest.mark.parametrize("batch", [(), (2,)], ids=str)
@pytest.mark.parametrize("function", PAIRS)
@pytest.mark.filterwarnings("ignore:torch.(triangular_solve|lu_solve) is deprecated")
def test_two_matrices(function: Callable[..., Any], batch: tuple[int, ...]) -> None:
    check(function, matrix(*batch), matrix(*batch))


@pytest.mark.parametrize("batch", [(), (2,)], ids=str)
@pytest.mark.parametrize("function", POSITIVE)
def test_hermitian_matrices(function: Callable[..., Any], batch: tuple[int, ...]) -> None:
    scale = 0.05 if function is torch.matrix_exp else 1.0
    check(function, hermitian(*batch) * scale)


@pytest.mark.parametrize("shape", [(3, 5), (5, 3)], ids=str)
def test_oblong_matrices(shape: tuple[int, int]) -> None:
    check(torch.linalg.lu, matrix(rows=shape[0], columns=shape[1]))


def test_a_singular_matrix_has_no_determinant() -> None:
    check(torch.linalg.det, torch.ones(3, 3, dtype=torch.complex64) * (1 + 2j))
