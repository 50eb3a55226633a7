"""``tensor.data``: ``onnx_aot/capture/patches/tensor_data.py``."""

from __future__ import annotations

import copy
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import onnx_aot
from onnx_aot.errors import CaptureError
from onnx_aot.torch_compat import pytree

pytestmark = pytest.mark.filterwarnings("ignore::onnx_aot.OnnxExporterWarning")


class Layer(nn.Module):
    """A module with a weight, a linear layer and two buffers of different values."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(3, 3)
        self.weight = nn.Parameter(torch.tensor([0.5, -1.0, 2.0]))
        self.register_buffer("mask", torch.tensor([1.0, 0.0, 2.0]))
        self.register_buffer("held", torch.tensor([3.0, 4.0, 5.0]))
        self.loose = torch.ones(3)


class ReadsInput(Layer):
    def forward(self, x: Tensor) -> Tensor:
        return x.data * 2


class ReadsResult(Layer):
    def forward(self, x: Tensor) -> Tensor:
        return (x + 1).data


class ReadsWeight(Layer):
    def forward(self, x: Tensor) -> Tensor:
        return x + self.weight.data + self.loose.data


class WritesThrough(Layer):
    def forward(self, x: Tensor) -> Tensor:
        y = x.clone()
        y.data[:, 0] = 7
        y.data.mul_(2)
        return y


class WritesBuffer(Layer):
    def forward(self, x: Tensor) -> Tensor:
        self.held.data.copy_(x.sum(0))
        return x + self.held


class Assigns(Layer):
    def forward(self, x: Tensor) -> Tensor:
        y = x * 2
        y.data = x + 1
        return y * 3


class AssignsAnotherShape(Layer):
    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        y = x * 2
        first = y[:, :2]
        value = torch.cat([x, x])
        y.data = value
        y.add_(1)
        return y, first + value[: x.shape[0], :2]


class AssignsKnownValue(Layer):
    def forward(self, x: Tensor) -> Tensor:
        count = torch.tensor(3)
        count.data = torch.tensor(2)
        return x[:, : int(count)]


class AssignsInput(Layer):
    def forward(self, x: Tensor) -> Tensor:
        x.data = x * 2
        return x + 1


class MasksWeight(Layer):
    """A masked convolution in the usual form."""

    def forward(self, x: Tensor) -> Tensor:
        self.linear.weight.data *= self.mask
        result: Tensor = self.linear(x)
        return result


class ReplacesForOneCall(Layer):
    def forward(self, x: Tensor) -> Tensor:
        kept = self.linear.weight.data
        self.linear.weight.data = kept * x.sum()
        first = self.linear(x)
        self.linear.weight.data = kept
        result: Tensor = first + self.linear(x)
        return result


class Swaps(Layer):
    def forward(self, x: Tensor) -> Tensor:
        self.mask.data, self.held.data = self.held.data, self.mask.data
        return x + self.mask - 3 * self.held


class ReturnsOldValue(Layer):
    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        old = self.held.data
        self.held.data = x.sum(0)
        return old, self.held * x


class InBranch(Layer):
    def forward(self, x: Tensor) -> Tensor:
        chosen: Tensor = torch.cond(x.sum() > 0, lambda x: x.data * 2, lambda x: (x - 1).data, (x,))
        return chosen


READS = (ReadsInput, ReadsResult, ReadsWeight, WritesThrough, WritesBuffer)
ASSIGNS = (
    Assigns,
    AssignsAnotherShape,
    AssignsKnownValue,
    AssignsInput,
    MasksWeight,
    ReplacesForOneCall,
    Swaps,
    ReturnsOldValue,
    InBranch,
)


def rows(n: int) -> Tensor:
    return torch.linspace(-1, 2, 3 * n).reshape(n, 3) * 0.9137


def check(kind: type[nn.Module], **options: Any) -> None:
    torch.manual_seed(0)
    model = kind().eval()
    before = copy.deepcopy(model.state_dict())
    program = onnx_aot.export(model, (rows(4),), dynamic_shapes=({0: "n"},), **options)
    for name, value in model.state_dict().items():
        assert torch.equal(value, before[name]), name
    for size in (4, 7, 1, 0):
        with torch.no_grad():
            expected = pytree.tree_leaves(copy.deepcopy(model)(rows(size)))
        results = list(program(rows(size)))[: len(expected)]  # new values of the state follow
        torch.testing.assert_close(results, expected)


@pytest.mark.parametrize("kind", [*READS, *ASSIGNS])
def test_data_is_an_alias(kind: type[nn.Module]) -> None:
    check(kind, strategies=("non-strict",))


@pytest.mark.parametrize("kind", READS)
def test_strict_captures_read_it(kind: type[nn.Module]) -> None:
    check(kind, strategies=("strict",))


@pytest.mark.parametrize("kind", [Swaps, ReturnsOldValue, WritesBuffer])
def test_state_has_the_assigned_value(kind: type[nn.Module]) -> None:
    model = kind().eval()
    program = onnx_aot.export(model, (rows(4),), dynamic_shapes=({0: "n"},), state="io")
    for _ in range(3):
        with torch.no_grad():
            expected = pytree.tree_leaves(model(rows(7)))
        results = list(program(rows(7)))[: len(expected)]
        torch.testing.assert_close(results, expected)


def test_other_tensors_are_untouched() -> None:
    class Doubles(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            bias = torch.nn.Parameter(torch.ones(3))
            bias.data = bias.data * 2
            return x + bias

    check(Doubles)
    assert "data" not in vars(torch.Tensor)


class AssignsAnotherShapeToBuffer(Layer):
    def forward(self, x: Tensor) -> Tensor:
        self.held.data = x
        return x + self.held


class AssignsToUnregistered(Layer):
    def forward(self, x: Tensor) -> Tensor:
        self.loose.data = x.sum(0)
        return x + self.loose


class AssignsUnregistered(Layer):
    def forward(self, x: Tensor) -> Tensor:
        y = x.sum(0)
        y.data = self.loose
        return x + y


@pytest.mark.parametrize(
    ("kind", "reason", "line"),
    [
        (AssignsAnotherShapeToBuffer, "another shape or dtype", "self.held.data = x"),
        (AssignsToUnregistered, "assigns a computed value", "self.loose.data = x.sum"),
        (AssignsUnregistered, "assigns to .data a tensor", "y.data = self.loose"),
    ],
)
def test_refused_with_line(kind: type[nn.Module], reason: str, line: str) -> None:
    with pytest.raises(CaptureError, match=reason) as caught:
        onnx_aot.export(kind().eval(), (rows(4),), dynamic_shapes=({0: "n"},))
    assert line in caught.value.places[0].code
    assert caught.value.code == "OA115"


def test_the_fix_works() -> None:
    class Registered(AssignsToUnregistered):
        def __init__(self) -> None:
            super().__init__()
            loose = self.loose
            del self.loose
            self.register_buffer("loose", loose)

    check(Registered)
