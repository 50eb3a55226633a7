"""LDL decompositions of complex matrices: ``onnx_aot/ops/complex/ldl.py``."""

from __future__ import annotations

import torch

from onnx_aot.torch_compat import aten
from tests.ops.complex.complex_numbers import numbers
from tests.ops.rows import Row, T, check, parametrize

DOUBLE = torch.complex128


def hollow(*sizes: int | str) -> T:
    """Matrices with zeros on the diagonal, which only steps of two rows eliminate."""

    def make(*s: int) -> torch.Tensor:
        return torch.randn(s, dtype=DOUBLE) * (1 - torch.eye(s[-1]))

    return T(sizes, DOUBLE, make)


def factors(
    *sizes: int | str, hermitian: bool, dtype: torch.dtype = torch.complex64
) -> tuple[T, T]:
    """Returns LD and pivots of the same matrix."""

    def decompose(size: tuple[int, ...]) -> tuple[torch.Tensor, torch.Tensor]:
        made = torch.Generator().manual_seed(sum(size))
        matrix = torch.randn(size, generator=made, dtype=DOUBLE)
        return torch.linalg.ldl_factor(matrix, hermitian=hermitian)

    return (
        T(sizes, dtype, lambda *s: decompose(s)[0]),
        T(sizes[:-1], torch.int32, lambda *s: decompose((*s, s[-1]))[1]),
    )


ROWS = [
    Row(target, (x,), {"hermitian": hermitian}, name=f"{x.sizes} {name} {hermitian}", sizes=more)
    for target in (aten.linalg_ldl_factor.default, aten.linalg_ldl_factor_ex.default)
    for hermitian in (False, True)
    for x, name, more in (
        (numbers("n", "n"), "", ()),
        (numbers("m", 5, 5, dtype=DOUBLE), "", ({"m": 0},)),
        (numbers(3, 2, 6, 6, dtype=DOUBLE), "", ()),
        (numbers(20, 20, dtype=DOUBLE), "", ()),
        (numbers(0, 0), "", ()),
        (numbers(1, 1), "", ()),
        (hollow(6, 6), "steps of two rows", ()),
    )
] + [
    Row(aten.linalg_ldl_factor_ex.default, (numbers(3, 3, size=0.0),), name="zeros"),
    *(
        Row(
            aten.linalg_ldl_solve.default,
            (*factors(*sizes, hermitian=hermitian, dtype=dtype), b),
            {"hermitian": hermitian},
            name=f"{sizes} {len(b.sizes)} {hermitian}",
        )
        for hermitian in (False, True)
        for sizes, dtype, b in (
            (("n", "n"), torch.complex64, numbers("n", 2)),
            ((4, 6, 6), DOUBLE, numbers(4, 6, 3, dtype=DOUBLE)),
            ((4, 6, 6), DOUBLE, numbers(6, 3, dtype=DOUBLE)),
            ((20, 20), DOUBLE, numbers(20, 3, dtype=DOUBLE)),
            ((0, 0), torch.complex64, numbers(0, 2)),
        )
    ),
]


@parametrize(ROWS)
def test_row(row: Row) -> None:
    check(row)
