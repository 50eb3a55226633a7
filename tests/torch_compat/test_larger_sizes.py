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


def other(x: Tensor) -> Tensor:
    """Has sides that no model can have both of."""
    y = x[x > 0]
    if y.shape[0] == 0:
        return x.long()
    return y


def mean(x: Tensor) -> Tensor:
    y = x[x > 0]
    return y.mean() if y.numel() else x.mean()


def single(x: Tensor) -> Tensor:
    y = x[x > 0]
    if len(y) == 1:
        return y * 100
    return y.max()[None] if y.shape[0] > 0 else x.sum()[None]


def filled(x: Tensor) -> Tensor:
    """Asks a kernel about a size of which the branch says something."""
    y = x[x > 0]
    if y.shape[0] == 0:
        y = torch.zeros(1)
    return y.view(y.shape[0], 1).softmax(0).sum(0) + y[-1]


def differences(x: Tensor) -> Tensor:
    y = x[x > 0]
    return x[:1] if y.shape[0] < 2 else y[1:] - y[:-1]


def both(x: Tensor) -> Tensor:
    """Branches on data too, so that the first capture fails."""
    y = x[x > 0] if x.sum() > -5 else x[x < -2]
    return y.sum() if y.shape[0] else x.sum()


def more(x: Tensor) -> Tensor:
    """Has more branches than are worth a capture of each path."""
    total = x.sum()
    for number in range(6):
        y = x[x > number]
        if y.shape[0] > 0:
            total = total + y.max()
    return total


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
        program = onnx_aot.export(other, (X,), dynamic_shapes=({0: "n"},))
    (message,) = (str(w.message) for w in caught)
    assert line(other, "if y.shape[0] == 0:") in message
    assert "y.shape[0] != 0" in message
    for x in (X, torch.tensor([1.0, -1.0, -2.0]), torch.arange(9.0)):
        torch.testing.assert_close(program(x)[0], other(x))


def test_it_is_checked_when_the_model_runs() -> None:
    with pytest.warns(OnnxExporterWarning, match="how many elements"):
        program = onnx_aot.export(other, (X,), dynamic_shapes=({0: "n"},), runtime_checks=True)
    torch.testing.assert_close(program(X)[0], other(X))
    with pytest.raises(Exception, match="check: u0 != 0"):
        program(-torch.ones(3))


def test_it_is_in_the_report() -> None:
    with pytest.warns(OnnxExporterWarning, match="how many elements"):
        program = onnx_aot.export(other, (X,))
    assert any("how many elements" in note for note in program.report.notes)
    assert "OA107" in program.report.note_codes


@pytest.mark.parametrize("model", [largest, mean, single, filled, differences, both, many])
def test_both_sides(model: Any) -> None:
    program = onnx_aot.export(model, (X,), dynamic_shapes=({0: "n"},))
    single = torch.tensor([-1.0, 2.0, -9.0])
    for x in (X, -X, single, -torch.ones(3), torch.arange(9.0), torch.arange(9.0) - 8):
        torch.testing.assert_close(program(x)[0], model(x), equal_nan=True)


def test_many_branches_are_not_captured_both_ways() -> None:
    with pytest.warns(OnnxExporterWarning, match="how many elements"):
        program = onnx_aot.export(more, (X,), dynamic_shapes=({0: "n"},))
    assert not [node for node in program.model.graph if node.op_type == "If"]


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

    program = onnx_aot.export(
        asks, (X,), custom_translation_table={torch.ops.onnx_aot_tests.positive.default: relu}
    )
    assert "If" in [node.op_type for node in program.model.graph]


def relu(op: Any, x: Any) -> Any:
    return op.Relu(x)


def test_a_module_with_two_names(monkeypatch: pytest.MonkeyPatch) -> None:
    """Some libraries keep old names of their modules in this way."""
    monkeypatch.setitem(sys.modules, f"{__name__}_as_it_was", sys.modules[__name__])
    program = onnx_aot.export(counted, (X,), strategies=("non-strict",))
    torch.testing.assert_close(program(X)[0], counted(X))
    assert "len" not in globals()
