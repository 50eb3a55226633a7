"""State that begins empty: ``onnx_aot/fx_passes/state_shapes.py``."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.export import Dim

import onnx_aot
from onnx_aot.errors import CaptureError, OnnxExporterWarning
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


@pytest.mark.parametrize("buffer", [True, False])
def test_state_as_an_input_of_a_model_that_has_not_been_called_is_refused(buffer: bool) -> None:
    with pytest.raises(CaptureError, match=r"memory, which has shape \(0,\)(.|\n)*call the model"):
        onnx_aot.export(Cell(buffer).eval(), (torch.randn(3, 4),), state="io")


class Reset(nn.Module):
    """Assigns a new tensor to a buffer at each call, as spiking layers do."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("potential", torch.zeros(0), persistent=False)

    def forward(self, x: Tensor) -> Tensor:
        self.potential = torch.zeros_like(x)
        spikes = []
        for _ in range(3):
            self.potential = 0.9 * self.potential + x
            spikes.append(self.potential > 1)
        return torch.stack(spikes)


class Growing(nn.Module):
    """Appends its input to a buffer, writes to that, and reads it."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("seen", torch.zeros(2, 4))

    def forward(self, x: Tensor) -> Tensor:
        self.seen.add_(1)
        self.seen = torch.cat([self.seen, x])
        self.seen.mul_(3)
        return self.seen.mean(0)


class First(nn.Module):
    """Assigns the first row, which could be broadcast to the buffer's shape."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("row", torch.zeros(2, 4))

    def forward(self, x: Tensor) -> Tensor:
        self.row = x[:1]
        return self.row + 1


@pytest.mark.parametrize(
    ("make", "name", "dimension"),
    [
        (lambda: Cell(True), "memory", Dim("n", min=1)),  # ONNX Runtime refuses an empty LSTM
        (Reset, "potential", "n"),
        (Growing, "seen", "n"),
        (First, "row", "n"),
    ],
    ids=["cell", "reset", "growing", "first"],
)
def test_a_new_value_that_is_only_an_output_may_have_another_shape(
    make: Callable[[], nn.Module], name: str, dimension: Any
) -> None:
    model = make().eval()
    with pytest.warns(OnnxExporterWarning, match=f"extra outputs of the ONNX model: {name}_out"):
        program = onnx_aot.export(
            model, (torch.randn(3, 4),), dynamic_shapes=({0: dimension},), verify=True
        )
    for count in (2, 5):
        x = torch.randn(count, 4)
        called = copy.deepcopy(model)
        with torch.no_grad():
            expected = called(x)
        result, new = program(x)
        assert_close(result, expected)
        assert_close(new, getattr(called, name))


@pytest.mark.parametrize("make", [Reset, Growing, First])
def test_an_input_whose_new_value_has_another_shape_is_refused(
    make: Callable[[], nn.Module],
) -> None:
    with pytest.raises(CaptureError, match="keeps its shape"):
        onnx_aot.export(make(), (torch.randn(3, 4),), dynamic_shapes=({0: "n"},), state="io")


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
