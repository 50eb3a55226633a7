"""Half-precision products with float32 results: ``aten.mm.dtype`` etc., ``products_and_norms.py``.

PyTorch has kernels for them only on CUDA; the kernels here are their equivalents for the CPU.
"""

from __future__ import annotations

from typing import Any

import torch

from onnx_aot.torch_compat import aten
from tests.ops.rows import Row, check, floats, parametrize

HALF, SINGLE = torch.float16, torch.float32


def _product(a: torch.Tensor, b: torch.Tensor, out_dtype: torch.dtype) -> torch.Tensor:
    return a.to(out_dtype) @ b.to(out_dtype)


def _plus(added: Any, a: Any, b: Any, out_dtype: Any, *, beta: Any = 1, alpha: Any = 1) -> Any:
    return beta * added.to(out_dtype) + alpha * _product(a, b, out_dtype)


KERNELS = torch.library.Library("aten", "IMPL")
for name, kernel in {"mm": _product, "bmm": _product, "addmm": _plus}.items():
    KERNELS.impl(f"{name}.dtype", kernel, "CPU")


def half(*sizes: Any) -> Any:
    return floats(*sizes, dtype=HALF)


ROWS = [
    Row(aten.mm.dtype, (half("n", 3), half(3, "m"), SINGLE), sizes=({"n": 0},)),
    Row(aten.bmm.dtype, (half("n", 2, 3), half("n", 3, "m"), SINGLE)),
    Row(aten.addmm.dtype, (half("m"), half("n", 3), half(3, "m"), SINGLE)),
    Row(
        aten.addmm.dtype,
        (floats("n", 1), half("n", 3), half(3, 4), SINGLE),
        {"beta": 0.5, "alpha": 2},
        name="scaled",
    ),
]


@parametrize(ROWS)
def test_row(row: Row) -> None:
    check(row)
