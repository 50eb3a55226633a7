"""Quotients of sizes: ``onnx_aot/torch_compat/size_division.py``."""

from __future__ import annotations

from typing import Any

import pytest
import sympy
import torch
from torch import Tensor
from torch.utils._sympy.functions import FloorDiv

import onnx_aot
from onnx_aot.torch_compat import Settings
from onnx_aot.torch_compat.size_division import _divide_terms

N, M = sympy.symbols("n m", integer=True, positive=True)
HALF = FloorDiv(N, 2)
ROUNDED = HALF + FloorDiv(N - 1, 2)


@pytest.mark.parametrize(
    ("base", "divisor", "quotient"),
    [
        (M * ROUNDED, ROUNDED, M),
        (3 * M * ROUNDED - 3 * ROUNDED, ROUNDED, 3 * M - 3),
        (6 * M * (HALF + 1), 6 * HALF + 6, M),
        (M * (7 * HALF - 7), 14 * HALF - 14, FloorDiv(M, 2)),
        (6 * HALF + 3 * N, sympy.Integer(9), FloorDiv(2 * HALF + N, 3)),
    ],
)
def test_quotients_have_no_fractions(base: Any, divisor: Any, quotient: Any) -> None:
    divide = _divide_terms(FloorDiv.eval, Settings())
    found = divide(base, divisor)
    assert found == quotient
    assert not any(power.exp.is_negative for power in found.atoms(sympy.Pow))


def along_first(x: Tensor) -> Tensor:
    """Has a sum of two halves as the size that a view divides by."""
    x = x.reshape(-1, x.shape[-1])
    parts = torch.cat([x[:, ::2], x[:, 1::2]], 1)
    return torch.view_as_real(torch.fft.fft(parts, dim=1))[:, :, 0]


def transformed(x: Tensor) -> Tensor:
    along_last = along_first(x).reshape(x.shape)
    return along_first(along_last.transpose(-1, -2))


def test_sizes_of_transforms_along_two_dimensions() -> None:
    x = torch.rand(1, 3, 6, 8)
    shapes = ({0: "batch", 2: "height", 3: "width"},)
    program = onnx_aot.export(transformed, (x,), dynamic_shapes=shapes)
    for sizes in ((1, 3, 6, 8), (2, 3, 5, 9), (3, 3, 4, 4)):
        torch.testing.assert_close(program(x := torch.rand(sizes))[0], transformed(x))
