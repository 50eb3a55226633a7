"""Models that test how many elements data selects: ``onnx_aot/torch_compat/larger_sizes.py``."""

from __future__ import annotations

import inspect
import sys
from typing import Any

import pytest
import torch

import onnx_aot
from onnx_aot.errors import OnnxExporterWarning

Tensor = torch.Tensor
X = torch.tensor([3.0, -1.0, 2.0, 5.0])


def largest(x: Tensor) -> Tensor:
    y = x[x > 0]
    if y.shape[0] == 0:
        return x.sum()
    return y.max() + y.sum()


def many(x: Tensor) -> Tensor:
    y = x[x > 0]
    return y * 2 if y.shape[0] > 3 else y


def counted(x: Tensor) -> Tensor:
    y = x[x > 0]
    return torch.cat([y, y]) / len(y)


def line(function: Any, text: str) -> str:
    lines, first = inspect.getsourcelines(function)
    number = next(i for i, each in enumerate(lines) if text in each)
    return f"{__file__}:{first + number} in {function.__name__}: {text}"


def test_the_answer_for_two_and_more_is_said() -> None:
    with pytest.warns(OnnxExporterWarning, match="how many elements") as caught:
        program = onnx_aot.export(largest, (X,), dynamic_shapes=({0: "n"},))
    (message,) = (str(w.message) for w in caught)
    assert line(largest, "if y.shape[0] == 0:") in message
    assert "y.shape[0] != 0" in message
    for x in (X, torch.tensor([1.0, -1.0, -2.0]), torch.arange(9.0)):
        torch.testing.assert_close(program(x)[0], largest(x))


def test_it_is_checked_when_the_model_runs() -> None:
    with pytest.warns(OnnxExporterWarning, match="how many elements"):
        program = onnx_aot.export(largest, (X,), dynamic_shapes=({0: "n"},), runtime_checks=True)
    torch.testing.assert_close(program(X)[0], largest(X))
    with pytest.raises(Exception, match="check: u0 != 0"):
        program(-torch.ones(3))


def test_it_is_in_the_report() -> None:
    with pytest.warns(OnnxExporterWarning, match="how many elements"):
        program = onnx_aot.export(largest, (X,), report=True)
    assert any("how many elements" in note for note in program.report.notes)


def test_both_sides_without_such_an_answer() -> None:
    program = onnx_aot.export(many, (X,), dynamic_shapes=({0: "n"},))
    for x in (X, -X, torch.arange(9.0), torch.ones(0)):
        torch.testing.assert_close(program(x)[0], many(x))


@pytest.mark.parametrize("x", [X, -X, torch.tensor([2.0]), torch.arange(9.0)])
def test_a_length_is_no_question(x: Tensor) -> None:
    program = onnx_aot.export(counted, (X,), dynamic_shapes=({0: "n"},))
    torch.testing.assert_close(program(x)[0], counted(x))


def test_nothing_that_an_operator_keeps() -> None:
    """The fake kernel makes a size with the deprecated method, which assumes at least 2."""

    @torch.library.custom_op("onnx_aot_tests::positive", mutates_args=())
    def positive(x: Tensor) -> Tensor:
        return x[x > 0]

    @positive.register_fake
    def _(x: Tensor) -> Tensor:
        return x.new_empty(torch.library.get_ctx().create_unbacked_symint())

    def asks(x: Tensor) -> Tensor:
        y = positive(x)
        return y + 1 if y.shape[0] > 0 else x

    with pytest.warns(OnnxExporterWarning, match="how many elements") as caught:
        onnx_aot.export(
            asks, (X,), custom_translation_table={torch.ops.onnx_aot_tests.positive.default: relu}
        )
    assert line(asks, "return y + 1 if y.shape[0] > 0 else x") in str(caught[0].message)


def relu(op: Any, x: Any) -> Any:
    return op.Relu(x)


def test_a_module_with_two_names(monkeypatch: pytest.MonkeyPatch) -> None:
    """Some libraries keep old names of their modules in this way."""
    monkeypatch.setitem(sys.modules, f"{__name__}_as_it_was", sys.modules[__name__])
    program = onnx_aot.export(counted, (X,), strategies=("non-strict",))
    torch.testing.assert_close(program(X)[0], counted(X))
    assert "len" not in globals()
