"""The only table between torch and ONNX data types, and the tolerances per data type."""

from __future__ import annotations

import dataclasses
import functools
from typing import Any

import onnx_ir as ir
import torch
from onnx_ir import tensor_adapters

__all__ = ["TOLERANCES", "Tolerance", "is_floating", "of_number", "to_onnx", "to_torch"]


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
"""By the output's data type; a type that is not listed must be equal."""


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


def is_floating(dtype: ir.DataType | None) -> bool:
    """Whether a value of this type can hold fractions (complex types cannot occur in ONNX)."""
    return dtype is not None and dtype.is_floating_point()


def of_number(recorded: Any) -> ir.DataType | None:
    """The ONNX type that a recorded Python or symbolic number is held in.

    Symbolic floats are DOUBLE, which holds every size that occurs exactly.
    """
    if isinstance(recorded, (bool, torch.SymBool)):
        return ir.DataType.BOOL
    if isinstance(recorded, (int, torch.SymInt)):
        return ir.DataType.INT64
    if isinstance(recorded, (float, torch.SymFloat)):
        return ir.DataType.DOUBLE
    return None
