"""Fake quantization, integer products and float8 weights: ``onnx_aot/ops/quantized/affine.py``."""

from __future__ import annotations

import pytest
import torch

import onnx_aot
from onnx_aot.torch_compat import aten
from tests.ops.quantized.stored import HALF, WIDE, stored, zero_points
from tests.ops.rows import Row, check, floats, given, parametrize
from tests.tolerances import assert_close

RANGES = ((-128, 127), (0, 255), (0, 15), (-127, 127), (-32768, 32767), (0, 65535), (-300, 9))

# Only the public forms can be captured with dynamic sizes.
FAKE = [
    *(
        Row(target, (floats(size, 3, low=-9, high=9), 0.05, 2, low, high), name=f"{low} {high}")
        for size, target in (
            ("n", aten.fake_quantize_per_tensor_affine.default),
            (4, aten.fake_quantize_per_tensor_affine_cachemask.default),
        )
        for low, high in RANGES
    ),
    Row(
        aten.fake_quantize_per_tensor_affine.default,
        (floats("n", 3, dtype=WIDE), 0.25, 2, -128, 127),
        name="double",
    ),
    Row(
        aten.fake_quantize_per_tensor_affine.default,
        (floats("n", 3, dtype=HALF), 0.25, 2, -128, 127),
        name="half",
    ),
    Row(aten.fake_quantize_per_tensor_affine.default, (floats(), 0.05, 2, -128, 127), name="0-d"),
    *(
        Row(
            aten.fake_quantize_per_tensor_affine.tensor_qparams,
            (floats("n", 3), given(0.05), zero_points(2, dtype=torch.int32), low, high),
            name=f"{low} {high}",
        )
        for low, high in RANGES
    ),
    *(
        Row(
            aten._fake_quantize_per_tensor_affine_cachemask_tensor_qparams.default,
            (
                floats(4, 3, low=-9, high=9),
                given(0.05),
                zero_points(2, dtype=torch.int32),
                given(enabled, dtype=torch.int64),
                -128,
                127,
            ),
            name=f"{enabled}",
        )
        for enabled in (0, 1)
    ),
    *(
        Row(
            target,
            (floats(size, 3, 2, low=-9, high=9), given(0.05, 0.1, 0.25), zeros, 1, low, high),
            name=f"{low} {high} {zeros.dtype}",
        )
        for size, target in (
            ("n", aten.fake_quantize_per_channel_affine.default),
            (4, aten.fake_quantize_per_channel_affine_cachemask.default),
        )
        for low, high in RANGES
        for zeros in (zero_points(2, 0, 1, dtype=torch.int32), given(2.3, 0.0, 1.5))
    ),
    *(
        Row(
            aten._fake_quantize_learnable_per_tensor_affine.default,
            (floats(4, 3), given(0.05), given(zero), -128, 127),
            name=f"{zero}",
        )
        for zero in (2.4, -300.0)
    ),
    Row(
        aten._fake_quantize_learnable_per_channel_affine.default,
        (floats(3, 4), given(0.05, 0.1, 0.25), given(2.4, 0.0, -1.6), 0, -128, 127),
    ),
]

PRODUCTS = [
    Row(
        aten._int_mm.default,
        (stored(32, 16, dtype=torch.int8), stored(16, 8, dtype=torch.int8)),
    ),
    Row(
        aten._int_mm.default,
        (stored("h", 16, dtype=torch.int8), stored(16, 8, dtype=torch.int8)),
        name="of any height",
    ),
]


@parametrize([*FAKE, *PRODUCTS])
def test_row(row: Row) -> None:
    check(row)


# --- whole models --------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", [torch.float8_e4m3fn, torch.float8_e5m2])
def test_float8_weights(dtype: torch.dtype) -> None:
    class Linear(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.register_buffer("weight", torch.randn(5, 7).to(dtype))

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return x @ (self.weight.to(torch.float32) * 0.5).T

    torch.manual_seed(0)
    model, x = Linear(), torch.randn(2, 7)
    program = onnx_aot.export(model, (x,))
    assert_close(program(x)[0], model(x))
