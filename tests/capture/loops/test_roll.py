"""Python loops over a dynamic size: one loop of the ONNX model, or an error."""

from __future__ import annotations

import warnings
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.export import Dim

import onnx_aot
from onnx_aot.errors import OnnxExporterWarning
from tests.capture.loops.models import MODELS, Crf, X

SIZES = [(2, 7), (1, 3), (3, 1), (2, 2), (1, 19)]
AT_LEAST_TWO = {"Viterbi"}  # the loop begins at 1


def compare(program: Any, model: nn.Module, *inputs: Tensor) -> None:
    expected = torch.utils._pytree.tree_leaves(model(*inputs))
    for got, wanted in zip(program(*inputs), expected, strict=True):
        assert got.shape == wanted.shape
        torch.testing.assert_close(got, wanted, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("name", MODELS)
def test_model_with_dynamic_batch(name: str) -> None:
    model = MODELS[name].eval()
    program = onnx_aot.export(model, (X,), dynamic_shapes=({0: "batch", 1: "steps"},))
    for batch, steps in SIZES:
        if steps >= 2 or name not in AT_LEAST_TWO:
            compare(program, model, torch.randn(batch, steps, 4))


@pytest.mark.parametrize("batch", [1, 2])
@pytest.mark.parametrize("name", ["StackedRnn", "WrittenGru", "SmoothedLater", "Viterbi"])
def test_model_with_static_batch(name: str, batch: int) -> None:
    model = MODELS[name].eval()
    program = onnx_aot.export(model, (X[:batch],), dynamic_shapes=({1: "steps"},))
    for _, steps in SIZES:
        if steps >= 2 or name not in AT_LEAST_TWO:
            compare(program, model, torch.randn(batch, steps, 4))


def test_loop_from_one_with_a_mask() -> None:
    model = Crf().eval()
    shapes = {0: "batch", 1: "steps"}
    inputs = (X, torch.rand(2, 7) > 0.3)
    program = onnx_aot.export(model, inputs, dynamic_shapes=(shapes, shapes))
    for batch, steps in SIZES[:2] + SIZES[3:]:
        compare(program, model, torch.randn(batch, steps, 4), torch.rand(batch, steps) > 0.3)


def test_example_with_one_step() -> None:
    model = MODELS["StackedRnn"].eval()
    program = onnx_aot.export(model, (X[:1, :1],), dynamic_shapes=({0: "batch", 1: "steps"},))
    for batch, steps in SIZES:
        compare(program, model, torch.randn(batch, steps, 4))


class Chunks(nn.Module):
    """The size limits the number of steps, and is not fixed by it."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(4, 3)

    def forward(self, x: Tensor) -> Tensor:
        total = torch.zeros(3)
        for number in range((x.shape[0] + 7) // 8):
            total = total * 0.5 + self.linear(x[number * 8 : number * 8 + 8]).sum(0)
        return total


@pytest.mark.parametrize("size", [5, 20])
@pytest.mark.parametrize("request_", [{0: "n"}, {0: Dim("n")}, {0: Dim.AUTO}, {0: Dim.DYNAMIC}])
def test_loop_over_chunks_of_a_dimension(request_: dict[int, Any], size: int) -> None:
    model = Chunks().eval()
    with warnings.catch_warnings():
        warnings.simplefilter("error", OnnxExporterWarning)
        program = onnx_aot.export(model, (torch.randn(size, 4),), dynamic_shapes=(request_,))
    for rows in (1, 8, 9, 20, 70):
        compare(program, model, torch.randn(rows, 4))


class _Refused(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(4, 4)
        self.calls = 0


class DifferentStep(_Refused):
    """One of the later steps does something else."""

    def forward(self, x: Tensor) -> Tensor:
        y = torch.zeros_like(x[:, 0])
        for t in range(x.shape[1]):
            y = y + x[:, t]
            if t == 2:
                y = y * 2
        return y


class LastStep(_Refused):
    """The last step does something else."""

    def forward(self, x: Tensor) -> Tensor:
        y = torch.zeros_like(x[:, 0])
        for t in range(x.shape[1]):
            y = y + x[:, t] if t < x.shape[1] - 1 else y * x[:, t]
        return y


class Counter(_Refused):
    """A Python number counts the steps, and is used in a way that three steps do not show."""

    def forward(self, x: Tensor) -> Tensor:
        y, k = torch.zeros_like(x[:, 0]), 0
        for t in range(x.shape[1]):
            k += 1  # noqa: SIM113
            y = y + x[:, t]
            if k == 4:
                y = y * 2
        return y


class Powers(_Refused):
    """A Python number grows by more in each step."""

    def forward(self, x: Tensor) -> Tensor:
        y, factor = torch.zeros_like(x[:, 0]), 1.0
        for t in range(x.shape[1]):
            y = y + x[:, t] * factor
            factor = factor * 2
        return y


class CountsCalls(_Refused):
    """A number of the model counts the steps."""

    def forward(self, x: Tensor) -> Tensor:
        y = torch.zeros_like(x[:, 0])
        for t in range(x.shape[1]):
            self.calls += 1
            y = y + x[:, t] * self.calls
        return y


class MiddleElement(_Refused):
    """Uses the second element of a list."""

    def forward(self, x: Tensor) -> Tensor:
        outs = []
        for t in range(x.shape[1]):
            outs.append(self.linear(x[:, t]))  # noqa: PERF401
        return outs[1]


class GoesThroughList(_Refused):
    """Goes through the list after the loop."""

    def forward(self, x: Tensor) -> Tensor:
        outs = [self.linear(x[:, t]) for t in range(x.shape[1])]
        return sum(out.relu() for out in outs)


class ReturnsList(_Refused):
    """Returns the list."""

    def forward(self, x: Tensor) -> list[Tensor]:
        return [self.linear(x[:, t]) for t in range(x.shape[1])]


class Growing(_Refused):
    """Joins a tensor that grows in each step."""

    def forward(self, x: Tensor) -> Tensor:
        out = x[:, :1]
        for t in range(x.shape[1]):
            out = torch.cat([out, self.linear(x[:, t : t + 1])], 1)
        return out


class Leaves(_Refused):
    """Leaves the loop after the third step."""

    def forward(self, x: Tensor) -> Tensor:
        y = torch.zeros_like(x[:, 0])
        for i, row in enumerate(x.unbind(1)):
            y = y + row
            if i == 0:
                continue
            break
        return y


class Window(_Refused):
    """Keeps the last three states in a list, which is not a list of all."""

    def forward(self, x: Tensor) -> Tensor:
        last = [torch.zeros_like(x[:, 0])] * 3
        for t in range(x.shape[1]):
            last = [*last[1:], self.linear(x[:, t])]
        return torch.stack(last, 1)


class SameTensor(_Refused):
    """Each element of the list is the same tensor, which the steps change."""

    def forward(self, x: Tensor) -> Tensor:
        state, outs = torch.zeros_like(x[:, 0]), []
        for t in range(x.shape[1]):
            state += x[:, t]
            outs.append(state)
        return torch.stack(outs, 1)


class WritesToEarlier(_Refused):
    """A step writes to the element that the step before put into the list."""

    def forward(self, x: Tensor) -> Tensor:
        before, outs = x[:, 0] * 1, []
        for t in range(x.shape[1]):
            made = before + x[:, t]
            made[:, 1] = before[:, 0]
            outs.append(made)
            before.mul_(0.5)
            before = made
        return torch.stack(outs, 1)


class NumberAfterwards(_Refused):
    """Uses the number of the last step."""

    def forward(self, x: Tensor) -> Tensor:
        y = torch.zeros_like(x[:, 0])
        for t in range(x.shape[1]):
            y = y + x[:, t]
        return y * t


class HiddenCounter(_Refused):
    """An object counts the steps. Only the comparison with the model shows it."""

    def forward(self, x: Tensor) -> Tensor:
        y, counts = torch.zeros_like(x[:, 0]), iter(range(1000))
        for t in range(x.shape[1]):
            y = y + x[:, t]
            if next(counts) == 5:
                y = y * 2
        return y


class TableOfNumbers(_Refused):
    """Takes Python numbers from a list by the number of the step."""

    def forward(self, x: Tensor) -> Tensor:
        y, factors = torch.zeros_like(x[:, 0]), [0.5] * 100
        for t in range(x.shape[1]):
            y = y * factors[t] + x[:, t]
        return y


class FixedElement(_Refused):
    """Takes tensors from a list that the loop does not fill."""

    def forward(self, x: Tensor) -> Tensor:
        y, rows = torch.zeros_like(x[:, 0]), [x[:, 0] * k for k in (1, 2, 2, 2, 2, 2, 2)]
        for t in range(x.shape[1]):
            y = y + rows[t]
        return y


class LastRows(_Refused):
    """Goes over the last rows only, by a slice of a list."""

    def forward(self, x: Tensor) -> Tensor:
        y = torch.zeros_like(x[:, 0])
        for row in x.unbind(1)[-2:]:
            y = 0.5 * y + row
        return y


class TwoSizesInOne(_Refused):
    """Each step appends two tensors, whose sizes differ from step to step."""

    def forward(self, x: Tensor) -> Tensor:
        outs = []
        for t in range(x.shape[1]):
            outs += [x[:, : t + 1], self.linear(x[:, : t + 1])]
        return torch.cat(outs, 1)


class BranchOnData(_Refused):
    """Branches on the data beside the loop."""

    def forward(self, x: Tensor) -> Tensor:
        y = torch.zeros_like(x[:, 0])
        for t in range(x.shape[1]):
            y = 0.5 * y + x[:, t]
        return y * 2 if y.sum() > 0 else y


class LengthOfList(_Refused):
    """Asks for the length of the list in each step."""

    def forward(self, x: Tensor) -> Tensor:
        outs = []
        for t in range(x.shape[1]):
            outs.append(x[:, t] * (2 if len(outs) > 4 else 1))
        return torch.stack(outs, 1)


REFUSED = [
    (DifferentStep, "a step asks whether t == 2", "if t == 2:"),
    (LastStep, "a step asks whether t <", "if t < x.shape[1] - 1"),
    (Counter, "the Python value k changes", "for t in range(x.shape[1]):"),
    (Powers, "the Python value factor changes", "for t in range(x.shape[1]):"),
    (CountsCalls, "the Python value self.calls changes", "for t in range(x.shape[1]):"),
    (MiddleElement, "a value of one of the steps in the middle", ""),
    (GoesThroughList, "a value of one of the steps in the middle", "out.relu()"),
    (ReturnsList, "a value of one of the steps in the middle", ""),
    (Growing, "a variable changes its shape", "torch.cat([out, self.linear"),
    (Leaves, "it is left before its end", "enumerate(x.unbind(1))"),
    (Window, "one loop differs from the model", "for t in range(x.shape[1]):"),
    (SameTensor, "one loop differs from the model", "for t in range(x.shape[1]):"),
    (WritesToEarlier, "also used under another name", "for t in range(x.shape[1]):"),
    (NumberAfterwards, "the number of a step", "for t in range(x.shape[1]):"),
    (HiddenCounter, "one loop differs from the model", "for t in range(x.shape[1]):"),
    (TableOfNumbers, "a step needs t as a Python number", "factors[t]"),
    (FixedElement, "a step needs t as a Python number", "rows[t]"),
    (LastRows, "only some of its values are taken", "x.unbind(1)[-2:]"),
    (TwoSizesInOne, "each step adds several", ""),
    (BranchOnData, "the model also branches on its data", "if y.sum() > 0"),
    (LengthOfList, "one loop differs from the model", "for t in range(x.shape[1]):"),
]


@pytest.mark.parametrize(
    ("model", "reason", "line"), REFUSED, ids=lambda p: getattr(p, "__name__", "")
)
def test_what_cannot_be_one_loop_is_refused(model: Any, reason: str, line: str) -> None:
    with pytest.raises(onnx_aot.errors.DynamicShapeError) as caught:
        onnx_aot.export(model().eval(), (X,), dynamic_shapes=({1: "steps"},))
    message = str(caught.value)
    assert "It cannot become one loop of the ONNX model" in message
    assert reason in message
    assert line in message
    assert reason in caught.value.fix
