"""Errors of models that neither capture supports."""

from __future__ import annotations

import warnings
from contextlib import nullcontext

import numpy as np
import pytest
import torch
from torch import nn

import onnx_aot
from onnx_aot.errors import CaptureError
from tests.releases import TORCH

Tensor = torch.Tensor
X = torch.randn(3)


def test_what_torch_export_refuses() -> None:
    def branches_on_data(x: Tensor) -> Tensor:
        return x.long() if x.sum() > 0 else x

    with pytest.raises(CaptureError) as caught:
        onnx_aot.export(branches_on_data, (X,))
    message = str(caught.value)
    assert "the model could not be captured" in message
    assert "return x.long() if x.sum() > 0 else x" in message
    assert f"at {__file__}:" in message
    assert "fix: compute the same on both sides" in message
    assert caught.value.__cause__ is not None


def test_what_torch_export_refuses_for_other_reasons() -> None:
    def raises(x: Tensor) -> Tensor:
        raise ValueError("this model is not ready")

    with pytest.raises(CaptureError) as caught:
        onnx_aot.export(raises, (X,))
    message = str(caught.value)
    assert "this model is not ready" in message
    assert "it fails on the example inputs by itself" in message
    assert "torch.export.export(strict" not in message  # they say the same


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


class Remainder(nn.Module):
    def __init__(self, exact: bool) -> None:
        super().__init__()
        self.exact = exact

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        n = x.shape[0]
        return x[: (2 * n % 5) // 2 if self.exact else int(n % 2.5)]


class ChangesShape(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = x.t()
        y.unsqueeze_(0)
        return y * y.shape[0]


def test_a_shape_changed_in_place_is_refused_in_strict_captures() -> None:
    """The other capture fails for such a transpose of every second row."""
    x = torch.rand(6, 4)[::2]
    with pytest.raises(CaptureError, match=r"reads the old shape of a tensor after unsqueeze_"):
        onnx_aot.export(ChangesShape(), (x,))
    program = onnx_aot.export(ChangesShape(), (x.contiguous(),))
    torch.testing.assert_close(program(x.contiguous())[0], ChangesShape()(x))


@pytest.mark.parametrize("exact", [True, False])
def test_a_float_that_torch_takes_for_an_integer_is_refused(exact: bool) -> None:
    """Torch 2.15 drops ``int``; the fix that the error names is right on every release."""
    model, shapes = Remainder(exact), ({0: "n"},)
    if not exact and TORCH >= (2, 15):
        with pytest.raises(CaptureError, match=r"is a float .*test_strategies[\s\S]*// 2"):
            onnx_aot.export(model, (torch.rand(9),), dynamic_shapes=shapes)
        return
    program = onnx_aot.export(model, (torch.rand(9),), dynamic_shapes=shapes)
    for size in (9, 7, 10, 0, 1):
        x = torch.rand(size)
        torch.testing.assert_close(program(x)[0], model(x))


class Remembers(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.last = x * 2
        return self.last + 1


def test_warnings_of_torch_do_not_end_a_capture() -> None:
    x = torch.rand(3)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        warnings.filterwarnings("default", category=onnx_aot.OnnxExporterWarning)
        program = onnx_aot.export(Remembers(), (x,), strategies=("non-strict",))
    torch.testing.assert_close(program(x)[0], x * 2 + 1)


class Counts(nn.Module):
    """Multiplies by the number of calls so far."""

    def __init__(self, kept: bool) -> None:
        super().__init__()
        self.epsilon, self.missing = 1e-5, float("nan")
        if kept:
            self.register_buffer("calls", torch.tensor(0))
        else:
            self.calls = 0

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.calls += 1
        return x * self.calls


def test_numbers_that_forward_changes_are_warned_of() -> None:
    model = nn.Sequential(Counts(kept=False))
    with pytest.warns(onnx_aot.OnnxExporterWarning, match="changes numbers of the model") as caught:
        onnx_aot.export(model, (X,))
    assert len(caught) == 1
    assert "model, self.0.calls (0, then 1), and" in str(caught[0].message)
    assert model[0].calls == 0


def test_a_counter_that_is_a_buffer_needs_no_warning() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        program = onnx_aot.export(Counts(kept=True), (X,), state="io")
    for call in (1, 2, 3):
        torch.testing.assert_close(program(X)[0], X * call)


class Loops(torch.nn.Module):
    """A loop whose body uses a buffer."""

    def __init__(self, operator: bool) -> None:
        super().__init__()
        self.operator = operator
        self.register_buffer("step", torch.tensor([1.0, 2.0, 3.0]))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        def goes_on(i: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
            return i < 3

        def body(i: torch.Tensor, y: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
            return i + 1, y + self.step

        operands = (torch.tensor(0), x)
        if self.operator:
            looped = torch.ops.higher_order.while_loop(goes_on, body, operands, ())
        else:
            looped = torch._higher_order_ops.while_loop(goes_on, body, operands)
        result: torch.Tensor = looped[1]
        return result


def test_a_body_that_uses_a_buffer() -> None:
    x = torch.ones(3)
    with pytest.raises(CaptureError, match="uses a tensor from outside") as caught:
        onnx_aot.export(Loops(True), (x,))
    assert "in body: return i + 1, y + self.step" in str(caught.value)
    assert "loop with torch._higher_order_ops.while_loop(" in str(caught.value)
    program = onnx_aot.export(Loops(False), (x,))  # the fix
    for example in (x, -x * 3):
        torch.testing.assert_close(program(example)[0], Loops(False)(example))


def test_strict_captures_call_functions_that_are_replaced() -> None:
    class Called(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layer = nn.Linear(3, 2)
            self.weights = nn.Parameter(torch.randn(4, 2, 3))

        def forward(self, x: Tensor) -> Tensor:
            given = {"weight": self.weights[1]}
            result: Tensor = torch.func.functional_call(self.layer, given, (x,))
            return result

    model, x = Called().eval(), torch.randn(5, 3)
    program = onnx_aot.export(model, (x,), strategies=("strict",))
    torch.testing.assert_close(program(x)[0], model(x))


@pytest.mark.parametrize("fails", [True, False])
def test_the_example_keeps_its_attributes(fails: bool) -> None:
    """Torch marks tensors whose dimensions are dynamic, and a failed capture leaves the marks."""

    def forward(x: torch.Tensor) -> torch.Tensor:
        return x + torch.ones(5) if fails else x + 1

    x = torch.rand(2, 5)
    x.note = "mine"  # type: ignore[attr-defined]
    context = pytest.raises(onnx_aot.errors.DynamicShapeError) if fails else nullcontext()
    with context:
        onnx_aot.export(forward, (x,), dynamic_shapes=({1: "n"},))
    assert vars(x) == {"note": "mine"}
    onnx_aot.export(forward, (x,))
