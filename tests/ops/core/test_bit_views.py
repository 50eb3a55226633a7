"""Bits of numbers as other numbers, and hashes: ``onnx_aot/ops/core/bit_views.py``."""

from __future__ import annotations

import math

import pytest
import torch

import onnx_aot
from onnx_aot.errors import OpsetError, TranslationError
from onnx_aot.torch_compat import aten
from tests.ops.rows import Row, T, bools, check, floats, ints, parametrize

Tensor = torch.Tensor

FLOATS = (torch.float16, torch.bfloat16, torch.float32, torch.float64)
WIDTHS = {
    1: (torch.uint8, torch.int8),
    2: (torch.float16, torch.bfloat16, torch.int16, torch.uint16),
    4: (torch.float32, torch.int32, torch.uint32),
    8: (torch.float64, torch.int64, torch.uint64),
}
TYPES = [dtype for dtypes in WIDTHS.values() for dtype in dtypes]


def extremes(dtype: torch.dtype) -> list[float]:
    """Returns numbers at the ends of the ranges of a floating-point type."""
    limits = torch.finfo(dtype)
    small = [limits.tiny, limits.smallest_normal, limits.smallest_normal / 4, limits.eps]
    least = limits.smallest_normal * limits.eps
    found = [0.0, 1.0, 2.0, 0.1, math.pi, limits.max, math.inf, *small, least, 3 * least, 1.75]
    return [*found, *(-number for number in found), 1 + limits.eps, 1 - limits.eps / 2]


def every_bit(dtype: torch.dtype) -> T:
    """Numbers of every size, or random bits of integers, in 16 columns."""

    def make(*_: int) -> Tensor:
        if dtype.is_floating_point:
            numbers = [*extremes(dtype), *(torch.randn(64) * 100).tolist()]
            return torch.tensor(numbers[:80], dtype=dtype).reshape(5, 16)
        made = torch.randint(0, 256, (5, 16 * dtype.itemsize), dtype=torch.uint8)
        return made.view(dtype)

    return T((5, 16), dtype, make)


def to_bits(x: Tensor, dtype: torch.dtype) -> Tensor:
    """Returns the bits as integers, so that zeros with signs are compared too."""
    whole = {1: torch.uint8, 2: torch.int16, 4: torch.int32, 8: torch.int64}[dtype.itemsize]
    viewed = x.view(dtype)
    return torch.where(viewed.isnan(), 0, viewed.view(whole)) if dtype in FLOATS else viewed


ROWS = [
    *(
        Row(aten.view.dtype, (every_bit(source), dtype), call=to_bits, name=f"{source} {dtype}")
        for source in TYPES
        for dtype in TYPES
        if source != dtype
    ),
    *(
        Row(aten.view.dtype, (x, dtype), name=f"{x.dtype} {dtype} {x.sizes}", sizes=({"n": 0},))
        for x, dtype in (
            (floats("n", "m"), torch.int32),
            (floats("n", "m"), torch.int16),
            (floats("n", 4), torch.float64),
            (ints("n", "m"), torch.uint8),
            (ints("n", 8, dtype=torch.uint8, low=0), torch.int64),
            (bools("n", 4), torch.int32),
            (bools("n"), torch.uint8),
            (floats(), torch.int32),
            (floats(0, 3), torch.uint8),
        )
    ),
    Row(
        aten.view.dtype,
        (floats("n", 3, low=0.1),),
        call=lambda x: (0x5F3759DF - (x.view(torch.int32) >> 1)).view(torch.float32),
        name="inverse root",
    ),
    *(
        Row(aten.hash_tensor.default, (x, *rest), name=f"{x.dtype} {x.sizes} {rest}", since=18)
        for x, rest in (
            (floats(3, 5), ()),
            (floats(3, 5, dtype=torch.float64), ([1],)),
            (floats(3, 5, 2, dtype=torch.float16), ([0, -1],)),
            (floats(1, 7, dtype=torch.bfloat16), ([0],)),
            (ints(4, 9), ([1],)),
            (ints(4, 9, dtype=torch.int8), ()),
            (bools(9), ()),
            (floats(), ()),
            (floats(0, 3), ([1],)),
        )
    ),
    Row(aten.hash_tensor.default, (ints(4, 3), [0]), {"keepdim": True}, since=18),
]


@parametrize(ROWS)
def test_row(row: Row) -> None:
    check(row)


def test_nan_is_read_as_the_one_of_torch() -> None:
    x = torch.tensor([math.nan, 1.0])
    program = onnx_aot.export(lambda x: x.view(torch.int32), (x,))
    assert torch.equal(program(x)[0], x.view(torch.int32))


def test_writes_through_the_other_type_are_seen() -> None:
    def double(x: Tensor) -> Tensor:
        y = x * 1
        y.view(torch.int32)[:, 0] += 1 << 23
        return y

    x = torch.rand(2, 3) + 1
    program = onnx_aot.export(double, (x,), verify=True)
    assert any("view made by aten.view.dtype" in note for note in program.report.notes)
    assert torch.equal(program(x)[0], double(x))


def test_types_without_a_form() -> None:
    with pytest.raises(TranslationError, match=r"(?s)bits of torch.float8_e4m3fn.*Convert with"):
        onnx_aot.export(lambda x: x.view(torch.float8_e4m3fn), (torch.zeros(3, dtype=torch.uint8),))
    with pytest.raises(OpsetError, match=r"BitwiseXor .* since opset 18"):
        onnx_aot.export(torch.hash_tensor, (torch.ones(3),), opset_version=17)
