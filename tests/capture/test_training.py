"""Operators in training mode are named if they compute something else than for inference."""

from __future__ import annotations

import warnings

import pytest
import torch
from torch import Tensor, nn

import onnx_aot


class Recurrent(nn.Module):
    """Calls a new layer, as several models do, which is in training mode whatever the model is."""

    def __init__(self, dropout: float) -> None:
        super().__init__()
        self.layer = nn.GRU(3, 3)
        self.dropout = dropout

    def forward(self, x: Tensor) -> Tensor:
        dropped: Tensor = nn.Dropout(self.dropout)(self.layer(x)[0])
        return dropped


def test_layers_that_drop_nothing_are_not_named() -> None:
    model, x = Recurrent(0.0).train(), torch.ones(4, 3)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        program = onnx_aot.export(model, (x,))
    torch.testing.assert_close(program(x)[0], model(x))


def test_layers_that_drop_elements_are_named() -> None:
    with pytest.warns(onnx_aot.OnnxExporterWarning, match=r"training mode: aten\.dropout behave"):
        onnx_aot.export(Recurrent(0.5).eval(), (torch.ones(4, 3),))
