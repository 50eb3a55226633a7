"""Errors of models that neither capture supports."""

from __future__ import annotations

import numpy as np
import pytest
import torch

import onnx_aot
from onnx_aot.errors import CaptureError

Tensor = torch.Tensor
X = torch.randn(3)


def test_what_torch_export_refuses() -> None:
    def branches_on_data(x: Tensor) -> Tensor:
        return x + 1 if x.sum() > 0 else x - 1

    with pytest.raises(CaptureError) as caught:
        onnx_aot.export(branches_on_data, (X,))
    message = str(caught.value)
    assert "the model could not be captured" in message
    assert "return x + 1 if x.sum() > 0 else x - 1" in message
    assert f"at {__file__}:" in message
    assert "torch.where" in message
    assert caught.value.__cause__ is not None


def test_what_torch_export_refuses_for_other_reasons() -> None:
    def raises(x: Tensor) -> Tensor:
        raise ValueError("this model is not ready")

    with pytest.raises(CaptureError) as caught:
        onnx_aot.export(raises, (X,))
    message = str(caught.value)
    assert "this model is not ready" in message
    assert "torch.export.export(strict=False)" in message
    assert "torch.export.export(strict=True)" not in message  # it says the same


class HoldsArray(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.scale = np.linspace(0.0, 1.0, 3)

    def forward(self, x: Tensor) -> Tensor:
        return x * torch.from_numpy(self.scale)


def test_an_array_of_numpy() -> None:
    model = HoldsArray()
    torch.testing.assert_close(onnx_aot.export(model, (X,))(X)[0], model(X))
    with pytest.raises(CaptureError, match=r"no values of a NumPy array[\s\S]*register_buffer"):
        onnx_aot.export(model, (X,), strategies=("strict",))
