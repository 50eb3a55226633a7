"""Fake quantization with an observer: ``onnx_aot/ops/quantized/observers.py``."""

from __future__ import annotations

import math
import warnings

import torch
import torch.ao.quantization.fx._decomposed  # registers torch.ops.quantized_decomposed

import onnx_aot
from onnx_aot.torch_compat import aten
from tests.ops.rows import Row, check, floats, given, parametrize

# Inputs, observer and fake quantization on or off, per row, symmetric. The observer has no
# kernel for fake tensors with dynamic sizes.
OBSERVED = [
    Row(
        aten._fused_moving_avg_obs_fq_helper_functional.default,
        (
            floats(3, 5, low=low, high=high),
            given(observes, dtype=torch.int64),
            given(quantizes, dtype=torch.int64),
            given(*[start] * rows),
            given(*[-start] * rows),
            given(*[0.02] * rows),
            given(*[3] * rows, dtype=torch.int32),
            *(0.1, -128, 127, 0, rows > 1, symmetric),
        ),
        name=f"{low} {high} {observes}{quantizes} {start} {rows} {symmetric}",
    )
    for low, high in ((-3, 2), (1, 5), (-5, -1), (0, 0), (-1e-4, 1e-4))
    for observes, quantizes in ((1, 1), (0, 1), (1, 0))
    for start, rows, symmetric in (
        (-math.inf, 1, False),
        (math.inf, 3, False),
        (math.inf, 3, True),
        (-1.0, 1, True),
        (-1.0, 3, False),
    )
    if (observes, quantizes) == (1, 1) or (low == -3 and (observes or start == -1.0))
]


@parametrize(OBSERVED)
def test_row(row: Row) -> None:
    check(row)


# --- whole models --------------------------------------------------------------------------------


def test_observer_in_training() -> None:
    quantizer = torch.ao.quantization.FusedMovingAvgObsFakeQuantize(
        observer=torch.ao.quantization.MovingAverageMinMaxObserver, quant_min=0, quant_max=255
    )
    quantizer(torch.randn(4, 5, generator=torch.Generator().manual_seed(1)))
    quantizer.disable_observer()
    x = torch.randn(4, 5, generator=torch.Generator().manual_seed(2))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        program = onnx_aot.export(quantizer, (x,))
    torch.testing.assert_close(program(x)[0], quantizer(x))
