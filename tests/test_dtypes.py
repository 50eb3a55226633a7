"""Data types of torch in ONNX, and 4-bit integers."""

from __future__ import annotations

import onnx_ir as ir
import pytest
import torch

from onnx_aot import dtypes


@pytest.mark.parametrize("dtype", [*dtypes.TOLERANCES, torch.bool, torch.int8, torch.uint64])
def test_types_there_and_back(dtype: torch.dtype) -> None:
    onnx_type = dtypes.to_onnx(dtype)
    assert dtypes.to_torch(onnx_type) == dtype
    assert dtypes.storage_dtype(onnx_type) == dtype
    assert dtypes.is_floating(onnx_type) == dtype.is_floating_point


def test_types_without_a_counterpart() -> None:
    with pytest.raises(TypeError):
        dtypes.to_onnx(torch.bits8)
    with pytest.raises(TypeError):
        dtypes.to_torch(ir.DataType.STRING)
    assert not dtypes.is_floating(None)


@pytest.mark.parametrize(
    ("dtype", "low", "high"), [(ir.DataType.INT4, -8, 7), (ir.DataType.UINT4, 0, 15)]
)
@pytest.mark.parametrize("shape", [(), (3,), (4, 4), (3, 5), (0, 2)])
def test_integers_of_four_bits(
    dtype: ir.DataType, low: int, high: int, shape: tuple[int, ...]
) -> None:
    integers = torch.randint(low, high + 1, shape).to(dtypes.storage_dtype(dtype))
    packed = dtypes.pack_int4(integers)
    assert (packed.dtype, packed.numel()) == (torch.uint8, (integers.numel() + 1) // 2)
    assert torch.equal(dtypes.unpack_int4(packed, dtype, shape), integers)


def test_the_first_of_two_integers_is_in_the_low_half() -> None:
    assert dtypes.pack_int4(torch.tensor([1, -2, 3], dtype=torch.int8)).tolist() == [0xE1, 0x03]


def test_numbers_of_a_capture() -> None:
    kinds = [dtypes.of_number(number) for number in (True, 3, 2.5, "3", None)]
    assert kinds == [ir.DataType.BOOL, ir.DataType.INT64, ir.DataType.DOUBLE, None, None]
