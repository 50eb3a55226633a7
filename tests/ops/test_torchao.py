"""torchao's operators: ``onnx_aot/ops/torchao.py``; left out where torchao is not installed."""

from __future__ import annotations

import importlib.util
import warnings
from typing import Any

import pytest
import torch

import onnx_aot
from tests.ops.rows import Row, check, floats, parametrize, positive

INSTALLED = importlib.util.find_spec("torchao") is not None
if INSTALLED:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        importlib.import_module("torchao.quantization")

FLOAT8 = torch.float8_e4m3fn


def operator(name: str) -> Any:
    packet = getattr(torch.ops.torchao, name, None)
    return None if packet is None else packet.default


def as_numbers(target: Any, *more: Any) -> Any:
    """Float8 results cannot be compared with each other."""
    return lambda *args: target(*args, *more).float()


ALL = [
    Row(target, (tensor, scale), call=call, since=19, name=name)
    for target, tensor, call in (
        (
            operator("quantize_affine_float8_non_decomposed"),
            floats("n", 8, low=-900, high=900),
            as_numbers(operator("quantize_affine_float8_non_decomposed"), FLOAT8),
        ),
        (
            operator("dequantize_affine_float8_non_decomposed"),
            floats("n", 8, dtype=FLOAT8),
            None,
        ),
    )
    for name, scale in (
        ("one", positive(1, 1)),
        ("0-d", positive()),
        ("rows", positive("n", 1)),
        ("blocks", positive("n", 2)),
    )
]
ROWS = ALL if INSTALLED else []


@parametrize(ROWS)
def test_row(row: Row) -> None:
    check(row)


@pytest.mark.skipif(not INSTALLED, reason="torchao is not installed")
def test_affine_operators_are_expanded() -> None:
    class Quantize(torch.nn.Module):
        def forward(self, x: torch.Tensor) -> Any:
            ao, block = torch.ops.torchao, [1, 8]
            more = (None, None, 1e-5, torch.float32, torch.int32)
            scale, zero = ao.choose_qparams_affine(x, "ASYMMETRIC", block, torch.int8, *more)
            integers = ao.quantize_affine(x, block, scale, zero, torch.int8)
            return integers, ao.dequantize_affine(integers, block, scale, zero, torch.int8)

    program = onnx_aot.export(Quantize(), (torch.randn(4, 8),), dynamic_shapes=({0: "n"},))
    x = torch.randn(7, 8)
    for actual, expected in zip(program(x), Quantize()(x), strict=True):
        torch.testing.assert_close(actual, expected)
