"""Shifts, divisors and powers of integers: ``onnx_aot/ops/core/integers.py``."""

from __future__ import annotations

import pytest
import torch

import onnx_aot
from onnx_aot.torch_compat import aten
from tests.ops.rows import Row, T, check, ints, parametrize
from tests.tolerances import assert_close

TYPES = (torch.int64, torch.int32, torch.int16, torch.int8, torch.uint8)
COUNTS = (-1, 0, 1, 3, 7, 8, 31, 32, 63)


def extremes(dtype: torch.dtype) -> T:
    """A column with the limits of a type and numbers between them."""
    limits = torch.iinfo(dtype)
    numbers = (limits.min, limits.max, 0, 1, 5, limits.max // 3, limits.min // 3)
    return T((len(numbers), 1), dtype, lambda *_: torch.tensor(numbers).unsqueeze(1))


def counts(dtype: torch.dtype) -> T:
    least = 0 if dtype == torch.uint8 else -1
    numbers = [count for count in COUNTS if count >= least]
    return T((len(numbers),), dtype, lambda *_: torch.tensor(numbers))


SHIFTS = [
    Row(target, (extremes(dtype), counts(dtype)), name=str(dtype)[6:])
    for target in (aten.bitwise_left_shift.Tensor, aten.bitwise_right_shift.Tensor)
    for dtype in TYPES
]
OVERLOADS = [
    row
    for packet in (aten.bitwise_left_shift, aten.bitwise_right_shift)
    for row in (
        Row(packet.Tensor, (ints("n", 3), ints(3, low=0, high=9)), sizes=({"n": 0},)),
        Row(packet.Tensor_Scalar, (ints("n"), 3)),
        Row(packet.Scalar_Tensor, (-77, ints("n", low=0, high=9))),
    )
]
OPERATORS = [
    row
    for packet in (aten.__lshift__, aten.__rshift__)
    for row in (
        Row(packet.Tensor, (ints("n"), ints("n", low=0, high=9))),
        Row(packet.Scalar, (ints("n"), 2)),
    )
]
DIVISORS = [
    row
    for target in (aten.gcd.default, aten.lcm.default)
    for row in (
        Row(target, (ints("n", 3, low=-50, high=50), ints(3, low=-50)), sizes=({"n": 0},)),
        Row(target, (ints(4, low=0, high=200, dtype=torch.uint8), ints(dtype=torch.uint8, low=2))),
        Row(target, (ints(6, low=-99, high=99, dtype=torch.int8), ints(dtype=torch.int64))),
        Row(target, (ints(9, low=-(2**62), high=2**62), ints(9, low=-9, high=9)), name="large"),
    )
]
POWERS = [
    Row(aten.pow.Tensor_Tensor, (ints("n", 3), ints(3, low=-2, high=40)), sizes=({"n": 0},)),
    Row(
        aten.pow.Tensor_Tensor,
        (ints(9, dtype=torch.uint8, low=0), ints(9, dtype=torch.uint8, low=0)),
        name="uint8",
    ),
    Row(aten.pow.Scalar, (3, ints("n", low=-2, high=39)), name="base"),
    Row(aten.pow.Tensor_Scalar, (ints("n"), 0), name="none"),
    Row(aten.pow.Tensor_Scalar, (ints("n"), 70), name="large"),
]


@parametrize([*SHIFTS, *OVERLOADS, *OPERATORS, *DIVISORS, *POWERS])
def test_integers(row: Row) -> None:
    check(row)


@pytest.mark.parametrize("dtype", [torch.int8, torch.int16, torch.uint8, torch.int32])
def test_common_multiples_that_the_type_cannot_hold(dtype: torch.dtype) -> None:
    limit = torch.iinfo(dtype).max
    x = torch.tensor([51, limit, limit - 2, -(limit // 2)], dtype=torch.int64).to(dtype)
    y = torch.tensor([5, 4, limit - 3, 3], dtype=torch.int64).to(dtype)
    program = onnx_aot.export(torch.lcm, (x, y))
    assert_close(program(x, y)[0], torch.lcm(x, y))
