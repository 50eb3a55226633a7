"""Operators of PT2E: ``onnx_aot/ops/quantized/pt2e.py``."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
import torch.ao.quantization.fx._decomposed  # registers torch.ops.quantized_decomposed

import onnx_aot
from tests.ops.quantized.stored import HALF, WIDE, stored, zero_points
from tests.ops.rows import Row, T, check, floats, given, ints, parametrize, positive
from tests.tolerances import assert_close

decomposed = torch.ops.quantized_decomposed
EMPTY = ({"n": 0},)
GRIDS: tuple[tuple[str, torch.dtype, int, int, int], ...] = (
    # storage, zero point, minimum and maximum of the integers
    ("int8", torch.int8, 3, -128, 127),
    ("uint8", torch.uint8, 128, 0, 255),
    ("int8, narrow", torch.int8, 0, -127, 127),
    ("int8, 4 bits", torch.int8, -1, -8, 7),
    ("uint8, 7 bits", torch.uint8, 64, 0, 127),
    ("int16", torch.int16, 5, -32768, 32767),
    ("uint16", torch.uint16, 500, 0, 65535),
    ("int32", torch.int32, -7, -(2**31), 2**31 - 1),
)

INT8_FIRST = (0, -128, 127, torch.int8)


def one(value: float, dtype: torch.dtype) -> T:
    return T((), dtype, lambda: torch.tensor(value))


PER_TENSOR = [
    *(
        Row(
            decomposed.quantize_per_tensor.default,
            (floats("n", 3), 0.03, zero, low, high, dtype),
            sizes=EMPTY,
            name=name,
        )
        for name, dtype, zero, low, high in GRIDS
    ),
    *(
        Row(
            decomposed.dequantize_per_tensor.default,
            (stored("n", 3, dtype=dtype), 0.03, zero, low, high, dtype),
            sizes=EMPTY,
            name=name,
        )
        for name, dtype, zero, low, high in GRIDS
    ),
    *(
        Row(
            decomposed.dequantize_per_tensor.default,
            (stored("n", dtype=torch.int8), 0.03, 4, -128, 127, torch.int8),
            {"out_dtype": dtype},
            name=str(dtype),
        )
        for dtype in (HALF, torch.bfloat16)
    ),
    *(
        Row(
            decomposed.dequantize_per_tensor.default,
            (floats("n", low=-20, high=20, dtype=dtype), 0.5, zero, -57344, 57344, dtype),
            since=19,
            name=f"{dtype} {zero}",
        )
        for dtype in (torch.float8_e4m3fn, torch.float8_e5m2)
        for zero in (0, 2)
    ),
    *(
        Row(
            decomposed.quantize_per_tensor.default,
            (floats("n", dtype=dtype), 0.25, 4, -128, 127, torch.int8),
            name=str(dtype),
        )
        for dtype in (HALF, torch.bfloat16)
    ),
    Row(
        decomposed.quantize_per_tensor.default,
        (given(0.125, 0.375, -0.125, 0.625, 1e9, -1e9), 0.25, 1, -128, 127, torch.int8),
        name="ties and bounds",
    ),
    *(
        Row(
            target,
            (value, one(0.25, WIDE), one(3, torch.int64), *bounds, torch.int8),
            name=f"{value.dtype}",
        )
        for target, value, bounds in (
            (decomposed.quantize_per_tensor.tensor, floats("n", 3), (-128, 127)),
            (decomposed.dequantize_per_tensor.tensor, stored("n", dtype=torch.int8), (-128, 127)),
        )
    ),
    Row(
        decomposed.quantize_per_tensor.tensor,
        (floats("n", 3), given(0.25), zero_points(3, dtype=torch.int32), -128, 127, torch.int8),
        name="one element",
    ),
    *(
        Row(
            target,
            (
                value,
                one(0.25, torch.float32),
                one(3, torch.int32),
                one(-100, torch.int64),
                one(100, torch.int64),
                torch.int8,
            ),
        )
        for target, value in (
            (decomposed.quantize_per_tensor.tensor2, floats("n", low=-50, high=50)),
            (decomposed.dequantize_per_tensor.tensor2, stored("n", dtype=torch.int8)),
        )
    ),
]

PER_CHANNEL = [
    *(
        Row(
            decomposed.quantize_per_channel.default,
            (x, given(0.03, 0.1, 0.25), zero_points(zero, 0, 1), axis, low, high, dtype),
            name=f"{name} {axis}",
        )
        for name, dtype, zero, low, high in GRIDS
        for axis, x in ((0, floats(3, "n")), (1, floats("n", 3, "m")))
        if low < 0 or zero > 1
    ),
    *(
        Row(
            decomposed.dequantize_per_channel.default,
            (
                stored("n", 3, "m", dtype=dtype),
                given(0.03, 0.1, 0.25),
                zero_points(zero, 0, 1),
                1,
                low,
                high,
                dtype,
            ),
            name=name,
        )
        for name, dtype, zero, low, high in GRIDS
        if name != "uint16"  # eager PyTorch does not subtract its zero points
    ),
    Row(
        decomposed.dequantize_per_channel.default,
        (stored("n", 3, dtype=torch.int8), positive(3), None, 1, -128, 127, torch.int8),
        name="no zero points",
    ),
    Row(
        decomposed.dequantize_per_channel.default,
        (stored(3, "n", dtype=torch.int8), positive(3), zero_points(1, 2, 3), *INT8_FIRST),
        {"out_dtype": HALF},
        name="half",
    ),
    *(
        Row(
            decomposed.fake_quant_per_channel.default,
            (floats("n", 3), given(0.03, 0.1, 0.25), zero_points(1, 0, 2), 1, low, high),
            name=f"{low} {high}",
        )
        for low, high in ((-128, 127), (0, 255), (0, 15), (-32768, 32767))
    ),
]

PER_TOKEN = [
    *(
        Row(
            decomposed.quantize_per_token.default,
            (floats("n", 5), positive("n", 1, dtype=dtype), ints("n", 1), -128, 127, torch.int8),
            name=str(dtype),
        )
        for dtype in (torch.float32, WIDE)
    ),
    *(
        Row(
            decomposed.dequantize_per_token.default,
            (
                stored("n", 2, 5, dtype=torch.int8),
                positive("n", 2, 1, dtype=dtype),
                ints("n", 2, 1),
                -128,
                127,
                torch.int8,
                to,
            ),
            name=f"{dtype} {to}",
        )
        for dtype in (torch.float32, WIDE)
        for to in (torch.float32, HALF)
    ),
]

PER_GROUP = [
    *(
        Row(
            decomposed.quantize_per_channel_group.default,
            (floats("n", 8), positive("n", groups), ints("n", groups), -8, 7, torch.int8, size),
            name=f"groups of {size}",
        )
        for groups, size in ((2, 4), (1, 8), (1, 32))
    ),
    *(
        Row(
            decomposed.dequantize_per_channel_group.default,
            (
                stored("n", 8, dtype=torch.int8),
                positive("n", groups),
                zeros,
                -128,
                127,
                torch.int8,
                size,
                dtype,
            ),
            name=f"groups of {size} {dtype} {zeros}",
        )
        for groups, size in ((2, 4), (1, 8), (1, 32))
        for dtype in (torch.float32, HALF)
        for zeros in (None, ints("n", groups), floats("n", groups))
    ),
]


def as_recorded(target: Any) -> Any:
    """Converts scale and zero point to the types of the fake tensors; eager returns others."""

    def call(*args: Any) -> Any:
        scale, zero_point = target(*args)
        return scale.double(), zero_point.long()

    return call


CHOSEN = [
    *(
        Row(target, (x, low, high, 1e-5, dtype), name=f"{dtype} {name}")
        for target in (
            decomposed.choose_qparams.tensor,
            decomposed.choose_qparams_symmetric.tensor,
        )
        for dtype, low, high in ((torch.int8, -128, 127), (torch.uint8, 0, 255))
        for name, x in (
            ("", floats("n", 3)),
            ("positive", positive("n", 3)),
            ("negative", floats("n", 3, low=-3, high=-1)),
            ("zeros", floats("n", low=0, high=0)),
        )
    ),
    *(
        Row(target, (x, torch.int8), call=as_recorded(target), name=name)
        for target in (
            decomposed.choose_qparams_per_token.default,
            decomposed.choose_qparams_per_token_asymmetric.default,
            decomposed._choose_qparams_per_token_asymmetric_impl.default,
        )
        for name, x in (
            ("", floats("n", 2, 7)),
            ("positive", positive("n", 7)),
            ("negative", floats("n", 7, low=-3, high=-1)),
            ("zeros", floats("n", 7, low=0, high=0)),
            ("half", floats("n", 7, dtype=HALF)),
        )
        if name != "half" or target == decomposed.choose_qparams_per_token.default
    ),
]

CONVERTED = [Row(decomposed.convert_element_type.no_fuse, (floats("n", 3), torch.float16))]


@parametrize([*CONVERTED, *PER_TENSOR, *PER_CHANNEL, *PER_TOKEN, *PER_GROUP, *CHOSEN])
def test_row(row: Row) -> None:
    check(row)


# --- whole models --------------------------------------------------------------------------------


class Quantized(torch.nn.Module):
    """A convolution and a linear layer in PT2E's form, with integer weights."""

    def __init__(self) -> None:
        super().__init__()
        convolution, linear = torch.nn.Conv2d(3, 8, 3), torch.nn.Linear(8, 5)
        for name, layer in (("convolution", convolution), ("linear", linear)):
            weight = layer.weight.detach()
            scales = weight.flatten(1).abs().amax(1) / 127
            shape = [-1, *[1] * (weight.dim() - 1)]
            integers = (weight / scales.reshape(shape)).round().to(torch.int8)
            self.register_buffer(f"{name}_weight", integers)
            self.register_buffer(f"{name}_scales", scales)
            self.register_buffer(f"{name}_zeros", torch.zeros_like(scales, dtype=torch.int64))
            self.register_buffer(f"{name}_bias", layer.bias.detach())

    def weight(self, name: str) -> torch.Tensor:
        held = (getattr(self, f"{name}_{part}") for part in ("weight", "scales", "zeros"))
        result: torch.Tensor = decomposed.dequantize_per_channel(*held, 0, -127, 127, torch.int8)
        return result

    def around(self, x: torch.Tensor, scale: float, zero_point: int) -> torch.Tensor:
        grid = (scale, zero_point, 0, 255, torch.uint8)
        result: torch.Tensor = decomposed.dequantize_per_tensor(
            decomposed.quantize_per_tensor(x, *grid), *grid
        )
        return result

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.around(x, 0.03125, 128)
        x = torch.nn.functional.conv2d(x, self.weight("convolution"), self.convolution_bias)
        x = self.around(x.relu(), 0.0625, 0).mean((2, 3))
        x = torch.nn.functional.linear(x, self.weight("linear"), self.linear_bias)
        return self.around(x, 0.0625, 128)


@pytest.mark.parametrize("opset", [17, 20, 23])
def test_quantized_model(opset: int) -> None:
    torch.manual_seed(0)
    model, x = Quantized().eval(), torch.randn(2, 3, 8, 8)
    program = onnx_aot.export(model, (x,), dynamic_shapes=({0: "batch"},), opset_version=opset)
    types = [node.op_type for node in program.model.graph]
    assert types.count("QuantizeLinear") == 3
    assert types.count("DequantizeLinear") == 5
    for node in program.model.graph:  # a cast in between would hide the pattern from a runtime
        made_from = node.inputs[0].producer() if node.inputs[0] is not None else None
        dequantized = made_from is not None and made_from.op_type == "DequantizeLinear"
        assert not (dequantized and node.op_type == "Cast")
    for batch in (1, 5):
        x = torch.randn(batch, 3, 8, 8)
        # integer kernels may round a sum to the adjacent step
        difference = (program(x)[0] - model(x)).abs().max()
        assert float(difference) <= 0.0625 + 1e-6


def test_dynamic_quantization() -> None:
    """The parameters are computed at run time."""

    class Dynamic(torch.nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            scale, zero_point = decomposed.choose_qparams(x, -128, 127, 1e-6, torch.int8)
            grid = (scale, zero_point, -128, 127, torch.int8)
            result: torch.Tensor = decomposed.dequantize_per_tensor(
                decomposed.quantize_per_tensor(x, *grid), *grid
            )
            return result

    torch.manual_seed(0)
    x = torch.randn(4, 9)
    program = onnx_aot.export(Dynamic(), (x,), dynamic_shapes=({0: "n"},))
    x = torch.randn(7, 9) * 3 + 1
    assert_close(program(x)[0], Dynamic()(x))


def test_not_numbers_do_not_reach_the_result() -> None:
    x = torch.tensor([math.inf, -math.inf, 1.0])
    quantized = decomposed.quantize_per_tensor(x, 0.25, 3, -128, 127, torch.int8)

    class Quantize(torch.nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            result: torch.Tensor = decomposed.quantize_per_tensor(x, 0.25, 3, -128, 127, torch.int8)
            return result

    assert torch.equal(onnx_aot.export(Quantize(), (x,))(x)[0], quantized)
