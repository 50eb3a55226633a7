"""Eigenvalues, singular values, pseudoinverses: ``onnx_aot/ops/linalg/jacobi.py``."""

from __future__ import annotations

from typing import Any

import torch

from onnx_aot.torch_compat import aten
from tests.ops.rows import Row, T, check, floats, parametrize

DOUBLE = torch.float64

EMPTY = ({"n": 0},)


def spread(*sizes: int | str, dtype: torch.dtype = torch.float32) -> T:
    """Symmetric matrices with eigenvalues that may be equal in pairs or zero."""

    def make(*s: int) -> torch.Tensor:
        basis = torch.linalg.qr(torch.randn(s, dtype=DOUBLE))[0]
        values = torch.randint(-3, 4, (s[-1],)).double()
        return (basis * values) @ basis.mT

    return T(sizes, dtype, make)


def of_rank(rank: int, *sizes: int | str, dtype: torch.dtype = torch.float32) -> T:
    """Matrices of a given rank."""

    def make(*s: int) -> torch.Tensor:
        left = torch.randn(*s[:-1], rank, dtype=DOUBLE)
        return left @ torch.randn(*s[:-2], rank, s[-1], dtype=DOUBLE)

    return T(sizes, dtype, make)


def definite(*sizes: int | str, dtype: torch.dtype = torch.float32) -> T:
    """Symmetric matrices with eigenvalues of at least 1."""

    def make(*concrete: int) -> torch.Tensor:
        half = torch.randn(concrete, dtype=DOUBLE)
        return half @ half.mT + torch.eye(concrete[-1], dtype=DOUBLE)

    return T(sizes, dtype, make)


def orthogonal(*sizes: int | str, dtype: torch.dtype = torch.float32) -> T:
    """Orthogonal matrices, whose singular values are all 1."""
    return T(sizes, dtype, lambda *s: torch.linalg.qr(torch.randn(s, dtype=DOUBLE))[0])


def eigen(matrix: torch.Tensor, *args: Any) -> tuple[torch.Tensor, ...]:
    """Returns the results that do not depend on the choice of eigenvectors."""
    values, vectors = aten._linalg_eigh.default(matrix, *args)
    if args[1:] == (False,):  # without vectors
        return values, vectors
    return values, (vectors * values.unsqueeze(-2)) @ (vectors.mT + 0), vectors.mT @ (vectors + 0)


def singular(*args: Any) -> tuple[torch.Tensor, ...]:
    """Returns the results that do not depend on the choice of singular vectors."""
    left, values, right = aten._linalg_svd.default(*args)
    size = values.shape[-1]
    product = (left[..., :size] * values.unsqueeze(-2)) @ right[..., :size, :]
    one = torch.ones((), dtype=left.dtype)
    return values, product, (left.mT * one) @ left, right @ (right.mT * one)


SYMMETRIC = (
    [
        Row(
            aten._linalg_eigh.default,
            (make(*sizes, dtype=dtype), *rest),
            call=eigen,
            name=name,
            sizes=more,
        )
        for name, make, sizes, dtype, rest, more in (
            ("", floats, ("n", "n"), torch.float32, (), ()),
            ("upper", floats, ("n", "n"), DOUBLE, ("U",), ()),
            ("equal values", spread, ("n", "n"), torch.float32, (), ()),
            ("equal values", spread, ("m", 6, 6), DOUBLE, (), ()),
            ("batch", floats, (2, 1, 5, 5), torch.float32, (), ()),
            ("one", floats, (3, 1, 1), torch.float32, (), ()),
            ("two", floats, (2, 2), DOUBLE, (), ()),
            ("values", floats, (3, 3), DOUBLE, ("L", False), ()),
            ("larger", floats, (40, 40), torch.float32, (), ()),
        )
    ]
    + [Row(aten._linalg_eigh.default, (floats(n, n),), name=f"empty {n}") for n in (0,)]
    + [
        Row(
            aten.linalg_eigvalsh.default,
            (floats(*sizes, dtype=dtype),),
            name=f"{sizes}",
            sizes=more,
        )
        for sizes, dtype, more in (
            (("n", "n"), torch.float32, EMPTY),
            (("n", 5, 5), DOUBLE, EMPTY),
            ((0, 0), torch.float32, ()),
        )
    ]
    + [
        Row(
            aten.linalg_matrix_sqrth.default,
            (definite(*sizes, dtype=dtype),),
            name=name,
            sizes=more,
        )
        for name, sizes, dtype, more in (
            ("", ("n", "n"), torch.float32, EMPTY),
            ("batch", (2, 4, 4), DOUBLE, ()),
            ("one", (3, 1, 1), torch.float32, ()),
        )
    ]
    + [
        Row(aten.linalg_eigvalsh.default, (floats(3, 3, low=0, high=0),), name="zeros"),
        Row(aten.linalg_eigvalsh.default, (floats(3, 3, low=-1e20, high=1e20),), name="large"),
    ]
)

SINGULAR = (
    [
        Row(aten._linalg_svd.default, (make(*sizes), *rest), call=singular, name=f"{name} {rest}")
        for rest in ((False,), (True,))
        for name, make, sizes in (
            ("", floats, ("n", "n")),
            ("oblong", floats, ("n", "m")),
            ("tall", floats, (5, 3)),
            ("wide", floats, (2, 3, 5)),
            ("rank 2", lambda *s: of_rank(2, *s), ("n", 6)),
            ("rank 2, batch", lambda *s: of_rank(2, *s), (3, 6, 4)),
            ("rank 0", lambda *s: floats(*s, low=0, high=0), (4, 3)),
            ("larger", floats, (40, 30)),
            ("equal values", orthogonal, (20, 20)),
        )
    ]
    + [
        Row(aten._linalg_svd.default, (floats(*sizes), True), name=f"empty {sizes}")
        for sizes in ((0, 0), (0, 3), (3, 0), (0, 2, 2))
    ]
    + [
        Row(aten.linalg_polar.default, (floats(*sizes, dtype=dtype),), name=f"{sizes}")
        for sizes, dtype in (
            (("m", 3), torch.float32),
            ((2, 5, 5), DOUBLE),
            ((4, 1), torch.float32),
            ((0, 3, 2), torch.float32),
        )
    ]
    + [
        Row(aten._linalg_svd.default, (floats(2, 4, 3), False, False), name="values"),
        *(
            Row(
                aten.linalg_svdvals.default,
                (floats(*sizes, dtype=dtype),),
                name=f"{sizes}",
                sizes=more,
            )
            for sizes, dtype, more in (
                (("n", "m"), torch.float32, EMPTY),
                (("n", 5, 3), DOUBLE, EMPTY),
                ((3, 5), torch.float32, ()),
                ((0, 5), torch.float32, ()),
            )
        ),
    ]
)

COMPOSITE = [
    Row(target, args, kwargs, call=call, name=name, sizes=more)
    for target, call, name, args, kwargs, more in (
        (aten.linalg_pinv.atol_rtol_tensor, torch.linalg.pinv, "", (floats("n", "m"),), {}, EMPTY),
        (
            aten.linalg_pinv.atol_rtol_tensor,
            torch.linalg.pinv,
            "rank 2",
            (of_rank(2, "n", 5, 4, dtype=DOUBLE),),
            {},
            EMPTY,
        ),
        (
            aten.linalg_pinv.atol_rtol_tensor,
            torch.linalg.pinv,
            "hermitian",
            (spread(2, 4, 4, dtype=DOUBLE),),
            {"hermitian": True},
            (),
        ),
        (
            aten.linalg_pinv.atol_rtol_tensor,
            aten.linalg_pinv.atol_rtol_tensor,
            "tolerances",
            (floats("n", 4, 3),),
            {"atol": floats(low=0.5, high=2), "rtol": floats("n", low=0.1, high=0.2)},
            (),
        ),
        (
            aten.linalg_pinv.atol_rtol_tensor,
            aten.linalg_pinv.atol_rtol_tensor,
            "atol",
            (floats("n", 4, 3),),
            {"atol": floats("n", low=-0.2, high=0.2)},
            (),
        ),
        (aten.linalg_pinv.atol_rtol_float, None, "", (of_rank(2, 4, 4),), {"rtol": 1e-3}, ()),
        (aten.pinverse.default, None, "", (floats("n", 3),), {}, ()),
        (
            aten.linalg_matrix_rank.atol_rtol_tensor,
            torch.linalg.matrix_rank,
            "",
            (of_rank(2, "n", 5, 6),),
            {},
            (),
        ),
        (aten.linalg_cond.default, None, "", (floats(3, 3),), {}, ()),
        (aten.nuclear_norm.default, None, "", (floats("n", 3),), {}, ()),
    )
]

ROWS = [*SYMMETRIC, *SINGULAR, *COMPOSITE]


@parametrize(ROWS)
def test_row(row: Row) -> None:
    check(row)
