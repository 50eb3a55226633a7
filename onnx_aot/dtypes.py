"""The only mapping between torch and ONNX data types, and the tolerances per data type."""

from __future__ import annotations

import dataclasses
import functools
import math
from collections.abc import Sequence
from typing import Any

import onnx_ir as ir
import torch
from onnx_ir import tensor_adapters

__all__ = [
    "EXACT",
    "FOUR_BITS",
    "FOUR_BITS_SINCE",
    "HALVES",
    "INT64_MAX",
    "TOLERANCES",
    "Tolerance",
    "is_floating",
    "of_number",
    "pack_int4",
    "storage_dtype",
    "to_onnx",
    "to_torch",
    "unpack_int4",
]

HALVES = frozenset({ir.DataType.FLOAT16, ir.DataType.BFLOAT16})
"""Floating-point types of 16 bits, whose sums torch computes in float32."""

INT64_MAX = 2**63 - 1
"""End of a Slice that extends to the end of the axis."""


@dataclasses.dataclass(frozen=True)
class Tolerance:
    """Largest accepted difference: ``|a - b| <= absolute + relative * |b|``."""

    relative: float
    absolute: float

    def __str__(self) -> str:
        return f"({self.absolute:g} + {self.relative:g} * abs(PyTorch))"


TOLERANCES: dict[torch.dtype, Tolerance] = {
    torch.float64: Tolerance(1e-6, 1e-8),
    torch.float32: Tolerance(1e-3, 1e-4),
    torch.float16: Tolerance(1e-2, 1e-3),
    torch.bfloat16: Tolerance(2e-2, 1e-2),
    torch.complex128: Tolerance(1e-6, 1e-8),
    torch.complex64: Tolerance(1e-3, 1e-4),
}
"""Tolerances by the output's data type; outputs of other types must be equal."""

EXACT = Tolerance(0.0, 0.0)
"""Tolerance of the other types."""


@functools.cache
def to_onnx(dtype: torch.dtype) -> ir.DataType:
    """The ONNX element type of a torch dtype.

    Raises:
        TypeError: The dtype has no ONNX counterpart.
    """
    return tensor_adapters.from_torch_dtype(dtype)


@functools.cache
def to_torch(dtype: ir.DataType) -> torch.dtype:
    """The torch dtype of an ONNX element type.

    Raises:
        TypeError: The element type has no torch counterpart.
    """
    return tensor_adapters.to_torch_dtype(dtype)


FOUR_BITS = {ir.DataType.INT4: torch.int8, ir.DataType.UINT4: torch.uint8}
"""Integers of four bits, and the torch types that hold them, one to a byte."""

FOUR_BITS_SINCE = 21
"""First opset in which QuantizeLinear and DequantizeLinear take these, and scales of blocks."""


def storage_dtype(dtype: ir.DataType) -> torch.dtype:
    """The torch dtype of tensors that hold numbers of an ONNX element type, one per element.

    Raises:
        TypeError: The element type has no torch counterpart.
    """
    return FOUR_BITS.get(dtype) or to_torch(dtype)


def pack_int4(tensor: torch.Tensor) -> torch.Tensor:
    """Packs integers of four bits as ONNX holds them: two to a byte, the first in the low half.

    Args:
        tensor: int8 from -8 to 7, or uint8 from 0 to 15, of any shape.

    Returns:
        uint8, 1-D. For an odd number of integers, the high half of the last byte is 0.
    """
    flat = tensor.detach().cpu().reshape(-1).contiguous().view(torch.uint8) & 0xF
    if flat.numel() % 2:
        flat = torch.cat([flat, flat.new_zeros(1)])
    return flat[::2] | (flat[1::2] << 4)


def unpack_int4(data: torch.Tensor, dtype: ir.DataType, shape: Sequence[int]) -> torch.Tensor:
    """The inverse of ``pack_int4``: int8 for INT4, uint8 for UINT4, of the given shape."""
    flat = torch.stack([data & 0xF, data >> 4], 1).reshape(-1)[: math.prod(shape)]
    if dtype == ir.DataType.INT4:
        flat = ((flat ^ 8).to(torch.int16) - 8).to(torch.int8)
    return flat.reshape(tuple(shape))


def is_floating(dtype: ir.DataType | None) -> bool:
    """True if values of this type can hold fractions (complex types cannot occur in ONNX)."""
    return dtype is not None and dtype.is_floating_point()


def of_number(recorded: Any) -> ir.DataType | None:
    """The ONNX type that holds a recorded Python or symbolic number; None for other values.

    Floats are DOUBLE, which represents every size that occurs exactly.
    """
    if isinstance(recorded, (bool, torch.SymBool)):
        return ir.DataType.BOOL
    if isinstance(recorded, (int, torch.SymInt)):
        return ir.DataType.INT64
    if isinstance(recorded, (float, torch.SymFloat)):
        return ir.DataType.DOUBLE
    return None
