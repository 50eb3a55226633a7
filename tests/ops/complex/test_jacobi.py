"""Eigenvectors and singular vectors of complex matrices: ``onnx_aot/ops/complex/jacobi.py``."""

from __future__ import annotations

from typing import Any

import torch

from onnx_aot.torch_compat import aten
from tests.ops.complex.complex_numbers import numbers
from tests.ops.rows import Row, T, check, parametrize

DOUBLE = torch.complex128
EMPTY = ({"n": 0},)


def spread(*sizes: int | str, dtype: torch.dtype = torch.complex64) -> T:
    """Hermitian matrices with eigenvalues that may be equal in pairs or zero."""

    def make(*s: int) -> torch.Tensor:
        basis = torch.linalg.qr(torch.randn(s, dtype=DOUBLE))[0]
        values = torch.randint(-3, 4, (s[-1],)).double()
        return (basis * values) @ basis.mH

    return T(sizes, dtype, make)


def of_rank(rank: int, *sizes: int | str) -> T:
    """Matrices of a given rank."""

    def make(*s: int) -> torch.Tensor:
        left = torch.randn(*s[:-1], rank, dtype=DOUBLE)
        return left @ torch.randn(*s[:-2], rank, s[-1], dtype=DOUBLE)

    return T(sizes, torch.complex64, make)


def unitary(*sizes: int | str) -> T:
    """Unitary matrices, whose singular values are all 1."""
    return T(sizes, torch.complex64, lambda *s: torch.linalg.qr(torch.randn(s, dtype=DOUBLE))[0])


def adjoint(matrix: torch.Tensor) -> torch.Tensor:
    """Returns a copy, because eager's products with a view are less exact for empty matrices."""
    return matrix.mH + 0


def eigen(matrix: torch.Tensor, *args: Any) -> tuple[torch.Tensor, ...]:
    """Returns the results that do not depend on the choice of eigenvectors."""
    values, vectors = aten._linalg_eigh.default(matrix, *args)
    if args[1:] == (False,):  # without vectors
        return values, vectors
    return values, (vectors * values.unsqueeze(-2)) @ adjoint(vectors), adjoint(vectors) @ vectors


def singular(*args: Any) -> tuple[torch.Tensor, ...]:
    """Returns the results that do not depend on the choice of singular vectors."""
    left, values, right = aten._linalg_svd.default(*args)
    size = values.shape[-1]
    product = (left[..., :size] * values.unsqueeze(-2)) @ right[..., :size, :]
    return values, product, adjoint(left) @ left, right @ adjoint(right)


HERMITIAN = [
    Row(
        aten._linalg_eigh.default,
        (make(*sizes, dtype=dtype), *rest),
        call=eigen,
        name=name,
        sizes=more,
    )
    for name, make, sizes, dtype, rest, more in (
        ("", numbers, ("n", "n"), torch.complex64, (), ()),
        ("upper", numbers, ("n", "n"), DOUBLE, ("U",), ()),
        ("equal values", spread, ("n", "n"), torch.complex64, (), ()),
        ("equal values, batch", spread, ("m", 6, 6), DOUBLE, (), ({"m": 0},)),
        ("batch", numbers, (2, 1, 5, 5), torch.complex64, (), ()),
        ("one", numbers, (3, 1, 1), torch.complex64, (), ()),
        ("two", numbers, (2, 2), DOUBLE, (), ()),
        ("values", numbers, (3, 3), DOUBLE, ("L", False), ()),
        ("larger", numbers, (40, 40), torch.complex64, (), ()),
    )
] + [
    Row(aten._linalg_eigh.default, (numbers(0, 0),), name="empty"),
    Row(aten._linalg_eigh.default, (numbers(3, 3, size=0.0),), call=eigen, name="zeros"),
    Row(aten.linalg_eigvalsh.default, (numbers("n", "n"),), sizes=EMPTY),
    Row(aten.linalg_eigvalsh.default, (numbers("n", 5, 5), "U"), name="upper", sizes=EMPTY),
    Row(aten.linalg_eigvalsh.default, (numbers(3, 3, size=1e20),), name="large"),
    Row(aten.linalg_eigvalsh.default, (numbers(3, 3, size=1e-22),), name="small"),
]

SINGULAR = (
    [
        Row(aten._linalg_svd.default, (make(*sizes), *rest), call=singular, name=f"{name} {rest}")
        for rest in ((False,), (True,))
        for name, make, sizes in (
            ("", numbers, ("n", "n")),
            ("oblong", numbers, ("n", "m")),
            ("tall", numbers, (5, 3)),
            ("wide", numbers, (2, 3, 5)),
            ("rank 2", lambda *s: of_rank(2, *s), ("n", 6)),
            ("rank 2, batch", lambda *s: of_rank(2, *s), (3, 6, 4)),
            ("rank 0", lambda *s: numbers(*s, size=0.0), (4, 3)),
            ("larger", numbers, (40, 30)),
            ("equal values", unitary, (20, 20)),
        )
    ]
    + [
        Row(aten._linalg_svd.default, (numbers(*sizes), True), name=f"empty {sizes}")
        for sizes in ((0, 0), (0, 3), (3, 0), (0, 2, 2))
    ]
    + [
        Row(aten._linalg_svd.default, (numbers(2, 4, 3), False, False), name="values"),
        Row(aten.linalg_svdvals.default, (numbers("n", "m"),), sizes=EMPTY),
        Row(aten.linalg_svdvals.default, (numbers(3, 5),), name="wide"),
        Row(aten.linalg_svdvals.default, (numbers(0, 5),), name="empty"),
    ]
)


@parametrize([*HERMITIAN, *SINGULAR])
def test_row(row: Row) -> None:
    check(row)
