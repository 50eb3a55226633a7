"""Functions of matrices: ``onnx_aot/ops/linalg/matrix_functions.py``."""

from __future__ import annotations

import torch

from onnx_aot.torch_compat import aten
from tests.ops.rows import Row, T, check, floats, parametrize

DOUBLE = torch.float64

EMPTY = ({"n": 0},)


def sizes_apart(*sizes: int | str) -> T:
    """Matrices with very different norms."""
    return T(
        sizes,
        torch.float32,
        lambda *s: torch.randn(s) * torch.logspace(-4, 0.5, s[0])[:, None, None],
    )


ROWS = [
    Row(aten.linalg_matrix_exp.default, (values,), name=name, sizes=more)
    for name, values, more in (
        ("", floats("n", "n", low=-1, high=1), EMPTY),
        ("double", floats("n", 3, 3, dtype=DOUBLE), EMPTY),
        ("small", floats(4, 4, low=-1e-3, high=1e-3), ()),
        ("batch", sizes_apart(5, 4, 4), ()),
        ("zeros", floats(2, 3, 3, low=0, high=0), ()),
        ("one", floats(1, 1), ()),
        ("large", floats(2, 2, low=-30, high=-20, dtype=DOUBLE), ()),
        ("empty", floats(0, 0), ()),
    )
] + [
    Row(aten.matrix_exp.default, (floats("n", 2, 2),)),
    Row(
        aten.linalg_matrix_exp.default,
        (T((2, 2), torch.float32, lambda *_: torch.tensor([[torch.inf, 0], [0, 1]])),),
        name="infinite",
    ),
]


@parametrize(ROWS)
def test_row(row: Row) -> None:
    check(row)
