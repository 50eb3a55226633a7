"""Dimensions that ``Dim.AUTO`` leaves to the model, and that it fixes."""

from __future__ import annotations

import warnings

import pytest
import torch
from torch import Tensor
from torch.export import Dim

import onnx_aot
from onnx_aot.errors import OnnxExporterWarning

X = torch.randn(2, 5, 3)
AUTO = ({0: Dim.AUTO, 1: Dim.AUTO},)


def last(x: Tensor) -> Tensor:
    y = x[:, 0]
    for t in range(x.shape[1]):
        y = x[:, t] if t % 2 == 0 else y + x[:, t]
    return y


def test_a_loop_that_cannot_be_one_loop_is_warned_of_with_the_reason() -> None:
    with pytest.warns(OnnxExporterWarning, match=r"fixes x, axis 1 at 5, by `for t in") as caught:
        program = onnx_aot.export(last, (X,), dynamic_shapes=AUTO)
    message = str(caught[0].message)
    assert f"at {__file__}:" in message
    assert "a step asks whether (t % 2) == 0, and the answers differ" in message
    assert [str(value.shape) for value in program.model.graph.inputs] == ["[x_dim_0,5,3]"]
    x = torch.randn(4, 5, 3)
    torch.testing.assert_close(program(x)[0], last(x))


def test_other_lines_are_in_the_report_only() -> None:
    def add(x: Tensor) -> Tensor:
        return x + torch.arange(5.0)[:, None]

    with warnings.catch_warnings():
        warnings.simplefilter("error")
        program = onnx_aot.export(add, (X,), dynamic_shapes=AUTO)
    (note,) = program.report.notes
    assert note.startswith(
        "Dim.AUTO leaves dimensions to the model, which fixes x, axis 1 at 5, by"
    )
    assert "`return x + torch.arange(5.0)[:, None]`" in note
    assert [str(value.shape) for value in program.model.graph.inputs] == ["[x_dim_0,5,3]"]


def test_dimensions_that_vary_need_no_word() -> None:
    program = onnx_aot.export(torch.relu, (X,), dynamic_shapes=({0: Dim.AUTO, 2: "n"},))
    assert program.report.notes == ()


@pytest.mark.parametrize("stacked", [True, False])
def test_a_loop_over_layers_is_no_loop_over_a_dimension(stacked: bool) -> None:
    class Layers(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layers = torch.nn.ModuleList(torch.nn.Linear(3, 3) for _ in range(2))

        def forward(self, x: Tensor) -> Tensor:
            if stacked:
                return torch.stack([layer(x) for layer in self.layers])
            for layer in self.layers: x = layer(x)  # noqa: E701  # fmt: skip
            return x

    shapes = ({0: Dim.AUTO, 1: Dim.AUTO, 2: Dim.AUTO},)
    with warnings.catch_warnings():
        warnings.simplefilter("error", OnnxExporterWarning)
        program = onnx_aot.export(Layers(), (X,), dynamic_shapes=shapes)
    (note,) = program.report.notes
    assert "fixes x, axis 2 at 3" in note
