"""Inputs and dimensions that are passed along with a program that the user captured."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.export import Dim

import onnx_aot
from onnx_aot.errors import DynamicShapeError, InvalidOptionError

X = torch.randn(4, 3)


class Nested(nn.Module):
    def forward(self, x: Tensor, more: dict[str, Tensor], *, scale: float = 1.0) -> Tensor:
        return x + more["a"] * scale


STATIC = torch.export.export(nn.Linear(3, 2), (X,))
DYNAMIC = torch.export.export(nn.Linear(3, 2), (X,), dynamic_shapes=({0: Dim.DYNAMIC},))
NESTED = torch.export.export(Nested(), (X, {"a": X}), {"scale": 2.0})


@pytest.mark.parametrize(
    ("program", "args", "kwargs"),
    [
        (STATIC, (), {}),
        (STATIC, X + 1, {}),
        (DYNAMIC, (torch.randn(9, 3),), {}),
        (NESTED, (X, {"a": X}), {"scale": 2.0}),
    ],
)
def test_inputs_such_as_those_of_the_capture(program: Any, args: Any, kwargs: Any) -> None:
    assert onnx_aot.export(program, args, kwargs=kwargs, verify=True).report.succeeded


@pytest.mark.parametrize(
    ("program", "args", "kwargs", "problem"),
    [
        (STATIC, (torch.randn(7, 3),), {}, r"input is float32[7,3], not float32[4,3]"),
        (STATIC, X.double(), {}, r"input is float64[4,3], not float32[4,3]"),
        (STATIC, (X, 3), {}, "float32[4,3], 3 were given"),
        (STATIC, (), {"x": X}, "x=float32[4,3] were given"),
        (DYNAMIC, (torch.randn(4, 5),), {}, r"input is float32[4,5], not float32["),
        (NESTED, (X, X), {"scale": 2.0}, "more is float32[4,3], nested in another way"),
        (NESTED, (X, {"a": 1.0}), {"scale": 2.0}, "more has 1.0 in place of float32[4,3]"),
    ],
)
def test_other_inputs_are_refused(program: Any, args: Any, kwargs: Any, problem: str) -> None:
    with pytest.raises(InvalidOptionError) as raised:
        onnx_aot.export(program, args, kwargs=kwargs)
    message = str(raised.value)
    assert problem in message
    assert "Leave args and kwargs out" in message
    assert "It takes what it was captured with, " in message


def test_static_dimensions_cannot_be_made_dynamic() -> None:
    with pytest.raises(DynamicShapeError, match=r"input, axis 0 \('n'\): fixed at 4") as raised:
        onnx_aot.export(STATIC, dynamic_shapes={"input": {0: "n"}})
    assert "an ExportedProgram keeps the dimensions of its capture" in str(raised.value)
    program = onnx_aot.export(DYNAMIC, dynamic_shapes={"input": {0: "n"}})
    assert [str(value.shape) for value in program.model.graph.inputs] == ["[n,3]"]
