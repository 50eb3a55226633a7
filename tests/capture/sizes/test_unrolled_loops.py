"""Errors about Python loops that stay unrolled."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor
from torch.export import Dim

import onnx_aot
from onnx_aot.errors import DynamicShapeError, OnnxExporterWarning

X = torch.randn(2, 7, 4)


def last_differs(x: Tensor) -> Tensor:
    y = torch.zeros_like(x[:, 0])
    for t in range(x.shape[1]):
        y = y + x[:, t] if t < x.shape[1] - 1 else y * 2
    return y


@pytest.mark.parametrize("request_", [{1: "n"}, {1: Dim("n")}, {1: Dim.DYNAMIC}])
def test_error_has_reason_line_and_fix(request_: dict[int, object]) -> None:
    with pytest.raises(DynamicShapeError, match="fixed at 7") as caught:
        onnx_aot.export(last_differs, (X,), dynamic_shapes=(request_,))
    message = str(caught.value)
    assert "for t in range(x.shape[1]):" in message
    assert "a step asks whether t < (-1) + x.shape[1], and the answers differ" in message
    assert "choose with torch.where" in message
    assert "torch.ops.higher_order" not in message


def test_accepted_size_stays_static() -> None:
    program = onnx_aot.export(
        last_differs, (X,), dynamic_shapes=({1: "n"},), on_specialized="allow"
    )
    assert [str(value.shape) for value in program.model.graph.inputs] == ["[2,7,4]"]
    torch.testing.assert_close(program(X)[0], last_differs(X))


def test_a_loop_over_a_size_that_is_left_to_the_model_becomes_one_loop() -> None:
    def add(x: Tensor) -> Tensor:
        return sum(x[:, t] for t in range(x.shape[1]))  # type: ignore[return-value]

    program = onnx_aot.export(add, (X,), dynamic_shapes=({1: Dim.AUTO},))
    assert [str(value.shape) for value in program.model.graph.inputs] == ["[2,x_dim_1,4]"]
    for steps in (1, 3, 9):
        x = torch.randn(2, steps, 4)
        torch.testing.assert_close(program(x)[0], add(x))


def test_warning_has_the_reason_for_a_range() -> None:
    """``Dim.AUTO`` takes the range that a loop gives a dimension."""

    def every_second(x: Tensor) -> Tensor:
        total = torch.zeros(4)
        for number in range((x.shape[0] + 7) // 8):
            if number % 2:
                total = total * 0.5 + x[number * 8 : number * 8 + 8].sum(0)
        return total

    x = torch.randn(20, 4)
    with pytest.warns(OnnxExporterWarning, match="17 to 24") as caught:
        program = onnx_aot.export(every_second, (x,), dynamic_shapes=({0: Dim.AUTO},))
    message = str(caught[0].message)
    assert "a step asks whether (number % 2) != 0, and the answers differ" in message
    assert f"at {__file__}:" in message
    torch.testing.assert_close(program(x[:18])[0], every_second(x[:18]))
