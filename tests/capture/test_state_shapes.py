"""State that begins empty: ``onnx_aot/capture/state_shapes.py``."""

from __future__ import annotations

import copy
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import onnx_aot
from onnx_aot.errors import CaptureError
from tests.tolerances import assert_close


class Cell(nn.Module):
    """Makes its state at the first call."""

    def __init__(self, buffer: bool) -> None:
        super().__init__()
        self.cell = nn.LSTMCell(4, 8)
        if buffer:
            self.register_buffer("memory", torch.zeros(0))
        else:
            self.memory = torch.zeros(0)

    def forward(self, x: Tensor) -> Tensor:
        if not len(self.memory):
            self.memory = torch.zeros(2, x.shape[0], 8)
        h, c = self.cell(x, (self.memory[0], self.memory[1]))
        self.memory = torch.stack([h, c])
        return h


@pytest.mark.parametrize("buffer", [True, False])
def test_a_model_that_has_been_called_keeps_its_state(buffer: bool) -> None:
    model = Cell(buffer).eval()
    with torch.no_grad():
        model(torch.randn(3, 4))
    before = model.memory.clone()
    program = onnx_aot.export(model, (torch.randn(3, 4),), state="io")
    assert [value.name for value in program.inputs] == ["x", "memory"]
    assert ("memory" in dict(model.named_buffers())) is buffer
    assert torch.equal(model.memory, before)
    called = copy.deepcopy(model)
    for _ in range(3):
        x = torch.randn(3, 4)
        with torch.no_grad():
            assert_close(program(x)[0], called(x))


@pytest.mark.parametrize(("buffer", "state"), [(True, "outputs"), (True, "io"), (False, "io")])
def test_a_model_that_has_not_been_called_is_refused(buffer: bool, state: Any) -> None:
    with pytest.raises(CaptureError, match=r"memory, which has shape \(0,\)(.|\n)*call the model"):
        onnx_aot.export(Cell(buffer).eval(), (torch.randn(3, 4),), state=state)


class Filled(nn.Module):
    """Assigns tensors that fit."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("row", torch.zeros(2, 3))

    def forward(self, x: Tensor) -> Tensor:
        y = x + self.row
        self.row.copy_(x[:1])
        return y


def test_a_row_that_is_broadcast_fits() -> None:
    model = Filled()
    program = onnx_aot.export(model, (torch.ones(2, 3),), state="io")
    for _ in range(2):
        assert_close(program(torch.ones(2, 3))[0], model(torch.ones(2, 3)))
