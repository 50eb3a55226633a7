"""Pools the constants that translations make, so that equal ones share one value."""

from __future__ import annotations

from typing import Any

import onnx_ir as ir
import torch
from onnx_ir import tensor_adapters

from onnx_aot import dtypes
from onnx_aot.graph.constants import constant_value

__all__ = ["ConstantPool"]

_SHORT = 8  # integer lists up to this length are looked up without making a tensor


class ConstantPool:
    """Constants, looked up by content."""

    def __init__(self) -> None:
        self._known: dict[Any, ir.Value] = {}
        self._contents: dict[ir.Value, torch.Tensor] = {}

    def constant(self, value: Any, dtype: ir.DataType | None) -> ir.Value:
        """Returns the value that holds a number, a nested list of numbers, or a tensor."""
        key: Any = None
        if isinstance(value, (int, float)):
            key = (type(value), repr(value), dtype)
        elif type(value) is list and len(value) <= _SHORT and all(type(v) is int for v in value):
            key = (*value, dtype)
        known = self._known.get(key)
        if known is None:
            known = self._of_tensor(_as_tensor(value, dtype))
            if key is not None:
                self._known[key] = known
        return known

    def contents(self, value: ir.Value) -> torch.Tensor | None:
        """Returns the tensor that a constant holds, or None for any other value."""
        return self._contents.get(value)

    def values(self) -> list[ir.Value]:
        """Returns every constant, used or not, in the order of creation."""
        return list(self._contents)

    def _of_tensor(self, tensor: torch.Tensor) -> ir.Value:
        tensor = tensor.contiguous()
        data = tensor_adapters.TorchTensor(tensor)
        key = (data.dtype, tuple(tensor.shape), data.tobytes())
        value = self._known.get(key)
        if value is None:
            value = self._known[key] = constant_value(tensor)
            self._contents[value] = tensor
        return value


def _as_tensor(value: Any, dtype: ir.DataType | None) -> torch.Tensor:
    if isinstance(value, torch.Tensor):
        tensor = value.detach()
        return tensor if dtype is None else tensor.to(dtypes.to_torch(dtype))
    if dtype is not None:
        if isinstance(value, int) and abs(value) < 2**63:
            # beyond the type it wraps around, as a number beside a tensor does in torch
            return torch.tensor(value, device="cpu").to(dtypes.to_torch(dtype))
        return torch.tensor(value, dtype=dtypes.to_torch(dtype), device="cpu")
    if isinstance(value, (list, tuple)) and not value:
        return torch.tensor(value, dtype=torch.int64, device="cpu")
    tensor = torch.tensor(value, device="cpu")
    return tensor.to(torch.float32) if tensor.is_floating_point() else tensor
