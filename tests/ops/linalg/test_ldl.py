"""LDL decompositions: ``onnx_aot/ops/linalg/ldl.py``."""

from __future__ import annotations

import torch

from onnx_aot.torch_compat import aten
from tests.ops.rows import Row, T, check, floats, parametrize

DOUBLE = torch.float64


def factors(*sizes: int | str, dtype: torch.dtype = torch.float32) -> tuple[T, T]:
    """Returns LD and pivots of the same matrix."""

    def decomposed(size: tuple[int, ...]) -> tuple[torch.Tensor, torch.Tensor]:
        made = torch.Generator().manual_seed(sum(size))
        return torch.linalg.ldl_factor(torch.randn(size, generator=made, dtype=DOUBLE))

    return (
        T(sizes, dtype, lambda *s: decomposed(s)[0]),
        T(sizes[:-1], torch.int32, lambda *s: decomposed((*s, s[-1]))[1]),
    )


ROWS = [
    Row(target, (floats(*sizes, dtype=dtype),), name=f"{sizes} {dtype}", sizes=more)
    for target in (aten.linalg_ldl_factor.default, aten.linalg_ldl_factor_ex.default)
    for sizes, dtype, more in (
        (("n", "n"), torch.float32, ()),
        (("m", 5, 5), DOUBLE, ({"m": 0},)),
        ((3, 2, 6, 6), DOUBLE, ()),
        ((20, 20), DOUBLE, ()),
        ((0, 0), torch.float32, ()),
        ((1, 1), torch.float32, ()),
    )
] + [
    Row(aten.linalg_ldl_factor_ex.default, (floats(3, 3, low=0, high=0),), name="zeros"),
    Row(
        aten.linalg_ldl_factor_ex.default,
        (T((6, 6), DOUBLE, lambda *s: torch.rand(s).fill_diagonal_(0.0)),),
        name="steps of two rows",
    ),
    *(
        Row(aten.linalg_ldl_solve.default, (*factors(*sizes, dtype=dtype), b), name=f"{sizes}")
        for sizes, dtype, b in (
            (("n", "n"), torch.float32, floats("n", 2)),
            ((4, 6, 6), DOUBLE, floats(4, 6, 3, dtype=DOUBLE)),
            ((4, 6, 6), DOUBLE, floats(6, 3, dtype=DOUBLE)),
            ((20, 20), DOUBLE, floats(20, 3, dtype=DOUBLE)),
            ((0, 0), torch.float32, floats(0, 2)),
        )
    ),
]


@parametrize(ROWS)
def test_row(row: Row) -> None:
    check(row)
