"""Linear systems and their decompositions: ``onnx_aot/ops/linalg/solvers.py``."""

from __future__ import annotations

from typing import Any

import torch

from onnx_aot.torch_compat import aten
from tests.ops.rows import Row, T, check, floats, parametrize

DOUBLE = torch.float64

EMPTY = ({"n": 0},)
NO_BATCH = ({"m": 0},)


def regular(*sizes: int | str, dtype: torch.dtype = torch.float32) -> T:
    """Matrices far from singular, whose elimination swaps rows."""

    def make(*s: int) -> torch.Tensor:
        scaled = torch.eye(s[-1], dtype=DOUBLE).mul(3) + torch.rand(s, dtype=DOUBLE)
        return scaled[..., torch.randperm(s[-2]), :]

    return T(sizes, dtype, make)


def definite(*sizes: int | str, upper: bool, dtype: torch.dtype = torch.float32) -> T:
    """Positive definite matrices in one triangle, with other numbers in the unread one."""

    def make(*s: int) -> torch.Tensor:
        half = torch.rand(s, dtype=DOUBLE)
        matrix = half @ half.mT + torch.eye(s[-1], dtype=DOUBLE)
        unread = torch.rand(s, dtype=DOUBLE)
        return matrix.triu() + unread.tril(-1) if upper else matrix.tril() + unread.triu(1)

    return T(sizes, dtype, make)


def triangular(*sizes: int | str, dtype: torch.dtype = torch.float32) -> T:
    """Matrices with both triangles filled and diagonal elements of at least 2."""

    def make(*s: int) -> torch.Tensor:
        return torch.rand(s, dtype=DOUBLE) + torch.eye(s[-1], dtype=DOUBLE).mul(2)

    return T(sizes, dtype, make)


def pivots(*sizes: int | str, dtype: torch.dtype = torch.int32) -> T:
    """Rows to swap, counted from 1, none above its own position."""

    def make(*s: int) -> torch.Tensor:
        places = torch.arange(s[-1])
        return places + 1 + (torch.rand(s) * (s[-1] - places)).long()

    return T(sizes, dtype, make)


def factors(call: Any, *chosen: int) -> Any:
    """Returns only the elements that the operator's callers may read."""
    return lambda *args: tuple(call(*args)[index] for index in chosen)


SQUARE = [
    Row(target, (regular(*sizes, dtype=dtype),), call=call, name=f"{sizes} {dtype}", sizes=more)
    for target, call in (
        (aten.linalg_det.default, None),
        (aten.det.default, torch.det),
        (aten._linalg_det.default, factors(aten._linalg_det.default, 0)),
        (aten.linalg_slogdet.default, None),
        (aten.slogdet.default, None),
        (aten._linalg_slogdet.default, factors(aten._linalg_slogdet.default, 0, 1)),
        (aten.logdet.default, None),
        (aten.linalg_inv.default, None),
        (aten.inverse.default, None),
        (aten.linalg_inv_ex.default, None),
        (aten.linalg_lu_factor.default, None),
        (aten.linalg_lu_factor_ex.default, None),
        (aten._lu_with_info.default, None),
        (aten.linalg_lu.default, None),
    )
    for sizes, dtype, more in (
        (("n", "n"), torch.float32, EMPTY),
        (("m", 4, 4), torch.float32, NO_BATCH),
        ((2, 1, "n", "n"), DOUBLE, EMPTY),
        ((5, 5), DOUBLE, ()),
        ((0, 0), torch.float32, ()),
        ((2, 1, 1), torch.float32, ()),
    )
]

ZEROS = [
    Row(target, (floats(*sizes, low=0, high=0, dtype=dtype),), call=call, name=f"zeros {dtype}")
    for dtype in (torch.float32, DOUBLE)
    for sizes in ((3, 3),)
    for target, call in (
        (aten.linalg_det.default, None),
        (aten.linalg_slogdet.default, None),
        (aten.logdet.default, None),
        (aten.linalg_lu_factor_ex.default, None),
        (aten.linalg_inv_ex.default, lambda x: aten.linalg_inv_ex.default(x)[1]),
    )
]

OBLONG = [
    Row(target, (floats(*sizes),), name=f"{sizes}", sizes=more)
    for target in (
        aten.linalg_lu_factor.default,
        aten.linalg_lu_factor_ex.default,
        aten.linalg_lu.default,
    )
    for sizes, more in (
        (("m", 2), ()),
        ((2, "m"), ()),
        ((2, 5, 3), ()),
        ((3, 5), ()),
        ((0, 5), ()),
        ((5, 0), ()),
    )
]

SYSTEMS = [
    Row(target, (matrix, right), kwargs, name=name, call=call, sizes=sizes)
    for target, call in (
        (aten.linalg_solve.default, None),
        (aten.linalg_solve_ex.default, None),
        (
            aten._linalg_solve_ex.default,
            lambda *a, **k: (
                aten._linalg_solve_ex.default(*a, **k)[0],
                aten._linalg_solve_ex.default(*a, **k)[3],
            ),
        ),
    )
    for name, matrix, right, kwargs, sizes in (
        ("", regular("n", "n"), floats("n", "m"), {}, EMPTY),
        ("right", regular("n", "n"), floats("m", "n"), {"left": False}, EMPTY),
        ("vector", regular("n", "n"), floats("n"), {}, EMPTY),
        ("vectors", regular(2, 3, 3), floats(2, 3), {}, ()),
        ("vector for all", regular("m", 3, 3), floats(3), {}, ()),
        ("batch", regular("m", 2, 3, 3), floats(2, 3, 4), {}, NO_BATCH),
        ("batch of systems", regular(3, 3), floats("m", 3, 4), {}, NO_BATCH),
        ("double", regular("n", "n", dtype=DOUBLE), floats("n", 2, dtype=DOUBLE), {}, EMPTY),
        ("batch, right", regular(2, 3, 3), floats(5, 1, 4, 3), {"left": False}, ()),
    )
]

FACTORIZED = [
    Row(aten.linalg_lu_solve.default, (regular(*a), pivots(*p), floats(*b)), kwargs, name=name)
    for name, a, p, b, kwargs in (
        ("", ("n", "n"), ("n",), ("n", "m"), {}),
        ("adjoint", ("n", "n"), ("n",), ("n", 2), {"adjoint": True}),
        ("right", ("n", "n"), ("n",), (2, "n"), {"left": False}),
        ("right, adjoint", (3, 3), (3,), (2, 3), {"left": False, "adjoint": True}),
        ("batch", ("m", 3, 3), ("m", 3), (2, 1, 3, 4), {}),
        ("empty", (0, 0), (0,), (0, 2), {}),
        ("empty batch", (0, 1, 1), (0, 1), (0, 0, 1), {"left": False, "adjoint": True}),
        ("empty batch, right", (0, 1, 1), (0, 1), (0, 0, 1), {"left": False}),
    )
] + [
    Row(aten.lu_solve.default, (floats("n", 2), regular("n", "n"), pivots("n"))),
    Row(aten.lu_unpack.default, (regular("n", "n"), pivots("n")), sizes=EMPTY),
    Row(aten.lu_unpack.default, (floats("m", 5, 3), pivots("m", 3)), name="tall", sizes=NO_BATCH),
    Row(aten.lu_unpack.default, (floats(2, 3, 5), pivots(2, 3)), name="wide"),
    Row(aten.lu_unpack.default, (floats(3, 3), pivots(3), False, True), name="pivots"),
    Row(aten.lu_unpack.default, (floats(3, 3), pivots(3), True, False), name="data"),
]

TRIANGULAR = [
    Row(
        aten.linalg_solve_triangular.default,
        (triangular(*a, dtype=dtype), floats(*b, dtype=dtype)),
        {"upper": upper, "left": left, "unitriangular": unit},
        name=f"{name} {upper} {left} {unit}",
        sizes=more,
    )
    for upper in (False, True)
    for name, a, b, left, unit, dtype, more in (
        ("", ("n", "n"), ("n", "m"), True, False, torch.float32, EMPTY),
        ("", ("n", "n"), ("n", 2), True, True, torch.float32, EMPTY),
        ("", ("n", "n"), (2, "n"), False, False, DOUBLE, EMPTY),
        ("batch", (2, 1, 3, 3), ("m", 3, 2), True, False, DOUBLE, NO_BATCH),
        ("batch", (2, 1, 3, 3), ("m", 3, 2), True, True, torch.float32, NO_BATCH),
        ("one", (1, 1), (1, 2), True, False, torch.float32, ()),
    )
] + [
    Row(aten.triangular_solve.default, (floats(*b), triangular(*a), *flags), name=name)
    for name, b, a, flags in (
        ("", ("n", "m"), ("n", "n"), ()),
        ("lower", ("n", "m"), ("n", "n"), (False,)),
        ("transposed", ("n", 2), ("n", "n"), (True, True)),
        ("lower, transposed, unit", (3, 2), (3, 3), (False, True, True)),
        ("batch", (2, 1, 3, 2), ("m", 3, 3), ()),
    )
]

CHOLESKY = [
    Row(
        target,
        (definite(*sizes, upper=kwargs.get("upper", False), dtype=dtype),),
        kwargs,
        name=f"{sizes} {kwargs}",
        sizes=more,
    )
    for target in (
        aten.linalg_cholesky_ex.default,
        aten.linalg_cholesky.default,
        aten.cholesky.default,
    )
    for sizes, dtype, kwargs, more in (
        (("n", "n"), torch.float32, {}, EMPTY),
        (("n", "n"), torch.float32, {"upper": True}, EMPTY),
        (("m", 3, 3), DOUBLE, {}, NO_BATCH),
        ((2, 1, 1), torch.float32, {"upper": True}, ()),
    )
] + [
    Row(
        aten.linalg_cholesky_ex.default,
        (T((4, 4), DOUBLE, lambda *_: torch.diag(torch.tensor([1.0, 4.0, -1.0, 2.0]))),),
        call=lambda x: aten.linalg_cholesky_ex.default(x)[1],
        name="info",
    ),
    Row(aten.cholesky_solve.default, (floats("n", "m"), triangular("n", "n")), sizes=EMPTY),
    Row(aten.cholesky_solve.default, (floats("n", 2), triangular("n", "n"), True), name="upper"),
    Row(aten.cholesky_solve.default, (floats(2, 3, 2), triangular("m", 1, 3, 3)), name="batch"),
    Row(aten.cholesky_inverse.default, (triangular("n", "n"),), sizes=EMPTY),
    Row(aten.cholesky_inverse.default, (triangular("m", 3, 3), True), name="upper"),
]

COMPOSITE = [
    Row(
        aten._linalg_check_errors.default,
        (regular(6, 6),),
        call=lambda x: torch.linalg.tensorinv(x.reshape(2, 3, 6)),
        captured=aten.linalg_tensorinv.default,
    ),
    Row(aten.linalg_matrix_power.default, (regular("n", "n"), -2), name="inverse", sizes=EMPTY),
    Row(aten.linalg_tensorsolve.default, (floats(2, 3, 6), floats(2, 3))),
]

ROWS = [*SQUARE, *ZEROS, *OBLONG, *SYSTEMS, *FACTORIZED, *TRIANGULAR, *CHOLESKY, *COMPOSITE]


@parametrize(ROWS)
def test_row(row: Row) -> None:
    check(row)
