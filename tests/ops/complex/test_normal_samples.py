from __future__ import annotations

import torch

import onnx_aot
from onnx_aot.torch_compat import aten
from tests.ops.complex.complex_numbers import numbers
from tests.ops.rows import SIZES, Call, Row, parametrize

NORMAL = [
    Row(aten.randn.default, (), call=lambda: torch.randn(200, 300, dtype=torch.complex64)),
    Row(aten.randn_like.default, (numbers(200, 300),)),
    Row(
        aten.normal_functional.default,
        (numbers(200, 300),),
        call=lambda x: aten.normal_functional(x, 0.0, 1.0),
    ),
]


@parametrize(NORMAL)
def test_normal_numbers(row: Row) -> None:
    """Variance 1, half per part; for 60,000 draws, 0.02 is at least four standard deviations."""
    module = Call(row)
    inputs = row.examples(SIZES[0])
    (drawn,) = onnx_aot.export(module, inputs, seed=1)(*inputs)
    assert drawn.dtype == torch.complex64
    assert drawn.mean().abs() < 0.02
    for part in (drawn.real, drawn.imag):
        assert abs(part.var() - 0.5) < 0.02
    assert (drawn.real * drawn.imag).mean().abs() < 0.02
