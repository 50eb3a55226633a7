"""torchao's operators; skipped if torchao is not installed."""

from __future__ import annotations

import importlib.util
import warnings
from typing import Any

import pytest
import torch

import onnx_aot
from tests.ops.rows import Row, check, floats, ints, parametrize, positive

INSTALLED = importlib.util.find_spec("torchao") is not None
if INSTALLED:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        importlib.import_module("torchao.quantization")

FLOAT8, HALF = torch.float8_e4m3fn, torch.float16


def operator(name: str) -> Any:
    packet = getattr(torch.ops.torchao, name, None)
    return None if packet is None else packet.default


def as_numbers(target: Any, *more: Any) -> Any:
    """Converts float8 results to float, because they cannot be compared directly."""
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

# Block, sizes of the scales, and sizes of the numbers.
BLOCKS: list[tuple[list[int], tuple[Any, ...], tuple[Any, ...]]] = [
    ([1, 8], ("n", 1), ("n", 8)),
    ([1, 8], ("n",), ("n", 8)),
    ([1, 4], ("n", 2), ("n", 8)),
    ([3, 8], (1, 1), (3, 8)),
    ([3, 8], (), (3, 8)),
    ([3, 4], (1, 2), (3, 8)),
    ([1, 1, 8], ("n", 3, 1), ("n", 3, 8)),
    ([1, 3, 4], ("n", 1, 2), ("n", 3, 8)),
    ([2, 1, 2], (2, 3, 4), (4, 3, 8)),
    ([1, 1], ("n", 8), ("n", 8)),
]
ALL += [
    Row(
        operator("dequantize_affine"),
        (ints(*sizes, dtype=dtype), block, positive(*scales, dtype=scale), zero, dtype, low, 7, to),
        name=f"{dtype} {block} of {len(sizes)} {len(scales)} {zero} {to}",
    )
    for block, scales, sizes in BLOCKS
    for dtype, low in ((torch.int8, -8), (torch.uint8, 0))
    for scale, to in ((torch.float32, torch.float32), (HALF, HALF))
    for zero in (None, ints(*scales, dtype=dtype))
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


class Weights(torch.nn.Module):
    """A weight in blocks, which ONNX may or may not support."""

    def __init__(self, block: list[int], scales: list[int], floating: bool = False) -> None:
        super().__init__()
        self.register_buffer("weight", torch.randint(-8, 8, (6, 4, 8), dtype=torch.int8))
        self.register_buffer("scale", torch.rand(scales) + 0.1)
        zeros = torch.randint(-8, 8, scales, dtype=torch.int8)
        self.register_buffer("zero", zeros + 0.5 if floating else zeros)
        self.block = block

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        ao, bounds = torch.ops.torchao, (torch.int8, -8, 7)
        numbers = ao.dequantize_affine(self.weight, self.block, self.scale, self.zero, *bounds)
        result: torch.Tensor = x * numbers
        return result


# Block, sizes of the scales, and storage of the weight in a model of opset 21.
HELD = [
    ([6, 4, 8], [1, 1, 1], False, "INT4"),
    ([1, 4, 8], [6, 1, 1], False, "INT4"),
    ([6, 1, 8], [1, 4, 1], False, "INT4"),
    ([1, 1, 4], [6, 4, 2], False, "INT4"),
    ([1, 2, 1], [6, 2, 8], False, "INT4"),
    ([3, 1, 1], [2, 4, 8], False, "INT4"),
    ([1, 1, 8], [6, 4, 1], False, "INT8"),
    ([3, 2, 8], [2, 2, 1], False, "INT8"),
    ([1, 1, 4], [6, 4, 2], True, "INT8"),
]


@pytest.mark.skipif(not INSTALLED, reason="torchao is not installed")
@pytest.mark.parametrize("optimize", [True, False])
@pytest.mark.parametrize("opset", [17, 21])
@pytest.mark.parametrize(("block", "scales", "floating", "dtype"), HELD, ids=str)
@pytest.mark.filterwarnings("ignore::onnx_aot.OnnxExporterWarning")
def test_weights_in_blocks(
    block: list[int], scales: list[int], floating: bool, dtype: str, opset: int, optimize: bool
) -> None:
    torch.manual_seed(0)
    model, x = Weights(block, scales, floating), torch.randn(6, 4, 8)
    program = onnx_aot.export(model, (x,), opset_version=opset, optimize=optimize)
    torch.testing.assert_close(program(x)[0], model(x))
    if optimize:
        held = [v.const_value for v in program.model.graph.initializers.values()]
        types = [t.dtype.name for t in held if t is not None and t.size == model.weight.numel()]
        assert types == [dtype if opset >= 21 else "INT8"]
