"""Linear algebra with well-conditioned complex matrices."""

from __future__ import annotations

import pytest
import torch

from onnx_aot.torch_compat import aten
from tests.ops.rows import Row, T, check, parametrize

Tensor = torch.Tensor


def matrix(*batch: int, rows: int = 4, columns: int = 4) -> Tensor:
    torch.manual_seed(0)
    a = torch.randn(*batch, rows, columns, dtype=torch.complex64)
    return a + 3 * torch.eye(rows, columns)


def hermitian(*batch: int) -> Tensor:
    a = matrix(*batch)
    return a @ a.mH + torch.eye(4)


def matrices(*batch: int, rows: int = 4, columns: int = 4) -> T:
    return T(batch, torch.complex64, lambda *b: matrix(*b, rows=rows, columns=columns))


def positive(*batch: int, scale: float = 1.0) -> T:
    return T(batch, torch.complex64, lambda *b: hermitian(*b) * scale)


def lu_factor(a: Tensor) -> tuple[Tensor, Tensor]:
    return torch.linalg.lu_factor(a)


def _square(*batch: int) -> list[Row]:
    a = (matrices(*batch),)
    names = "x".join(map(str, batch))
    return [
        Row(aten.linalg_inv.default, a, name=names),
        Row(aten.inverse.default, a, name=names),
        Row(aten.linalg_inv_ex.default, a, name=names),
        Row(aten.linalg_det.default, a, name=names),
        Row(aten.det.default, a, name=names),
        Row(aten._linalg_det.default, a, call=lambda a: aten._linalg_det(a)[0], name=names),
        Row(aten.linalg_slogdet.default, a, name=names),
        Row(aten.slogdet.default, a, name=names),
        Row(
            aten._linalg_slogdet.default, a, call=lambda a: aten._linalg_slogdet(a)[:2], name=names
        ),
        Row(aten.logdet.default, a, name=names),
        Row(aten.linalg_lu_factor.default, a, name=names),
        Row(aten.linalg_lu_factor_ex.default, a, name=names),
        Row(aten._lu_with_info.default, a, name=names),
        Row(aten.linalg_lu.default, a, name=names),
        Row(aten.lu_unpack.default, a, call=lambda a: torch.lu_unpack(*lu_factor(a)), name=names),
        Row(aten.linalg_matrix_power.default, (*a, -2), name=names),
        Row(aten.linalg_pinv.atol_rtol_tensor, a, name=names),
    ]


def _pairs(*batch: int) -> list[Row]:
    a, b = matrices(*batch), matrices(*batch, columns=3)
    names = "x".join(map(str, batch))
    wide = matrices(*batch, rows=3)
    return [
        Row(aten.linalg_solve.default, (a, b), name=names),
        Row(aten.linalg_solve.default, (a, wide), {"left": False}, name=names + " right"),
        Row(
            aten.linalg_solve.default,
            (a, b),
            call=lambda a, b: torch.linalg.solve(a, b[..., 0]),
            name=names + " vector",
        ),
        Row(aten.linalg_solve_ex.default, (a, b), name=names),
        Row(
            aten._linalg_solve_ex.default,
            (a, b),
            call=lambda a, b: aten._linalg_solve_ex(a, b)[0],
            name=names,
        ),
        Row(aten.linalg_solve_triangular.default, (a, b), {"upper": True}, name=names),
        Row(
            aten.linalg_solve_triangular.default,
            (a, b),
            {"upper": False, "unitriangular": True},
            name=names + " unit",
        ),
        Row(
            aten.linalg_solve_triangular.default,
            (a, wide),
            {"upper": False, "left": False},
            name=names + " right",
        ),
        Row(aten.triangular_solve.default, (b, a), {"transpose": True}, name=names),
        Row(
            aten.linalg_lu_solve.default,
            (a, b),
            call=lambda a, b: torch.linalg.lu_solve(*lu_factor(a), b),
            name=names,
        ),
        Row(
            aten.linalg_lu_solve.default,
            (a, b),
            call=lambda a, b: torch.linalg.lu_solve(*lu_factor(a), b, adjoint=True),
            name=names + " adjoint",
        ),
        Row(
            aten.lu_solve.default,
            (a, b),
            call=lambda a, b: torch.lu_solve(b, *lu_factor(a)),
            name=names,
        ),
    ]


def _hermitian(*batch: int) -> list[Row]:
    a = (positive(*batch),)
    names = "x".join(map(str, batch))
    return [
        Row(aten.linalg_cholesky.default, a, name=names),
        Row(aten.cholesky.default, a, name=names),
        Row(aten.linalg_cholesky.default, a, {"upper": True}, name=names + " upper"),
        Row(aten.linalg_cholesky_ex.default, a, name=names),
        Row(
            aten.cholesky_inverse.default,
            a,
            call=lambda a: torch.cholesky_inverse(torch.linalg.cholesky(a)),
            name=names,
        ),
        Row(
            aten.cholesky_solve.default,
            a,
            call=lambda a: torch.cholesky_solve(a, torch.linalg.cholesky(a)),
            name=names,
        ),
        Row(
            aten.cholesky_solve.default,
            a,
            call=lambda a: torch.cholesky_solve(a, torch.linalg.cholesky(a, upper=True), True),
            name=names + " upper",
        ),
        Row(aten.linalg_matrix_sqrth.default, a, name=names),
        Row(aten.linalg_polar.default, a, name=names),
        Row(aten.linalg_pinv.atol_rtol_tensor, a, {"hermitian": True}, name=names + " hermitian"),
        Row(aten.linalg_matrix_exp.default, (positive(*batch, scale=0.05),), name=names),
        Row(aten.matrix_exp.default, (positive(*batch, scale=0.05),), name=names),
    ]


ROWS = [
    *_square(),
    *_square(2),
    *_square(0),
    *_pairs(),
    *_pairs(2),
    *_hermitian(),
    *_hermitian(2),
    Row(aten.linalg_lu.default, (matrices(rows=3, columns=5),), name="wide"),
    Row(aten.linalg_lu.default, (matrices(rows=5, columns=3),), name="tall"),
    Row(
        aten.linalg_det.default,
        (T((3, 3), torch.complex64, lambda *s: torch.ones(s) * (1 + 2j)),),
        name="singular",
    ),
]


@parametrize(ROWS)
@pytest.mark.filterwarnings("ignore:torch.(triangular_solve|lu_solve|cholesky) is deprecated")
def test_rows(row: Row) -> None:
    check(row)
