"""Attributes that a model with branches on data changes."""

from __future__ import annotations

import copy
import warnings
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import onnx_aot
from onnx_aot.errors import CaptureError

X = torch.arange(12.0).reshape(3, 4) - 5.0


class Sets(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.factor = 1

    def change(self) -> None:
        self.factor = 2

    def forward(self, x: Tensor) -> Tensor:
        last = getattr(self, "factor", 1), getattr(self, "extra", 1)
        if x.sum() < 0:
            self.change()
        return x * (2 if last else 1)


class Adds(Sets):
    def change(self) -> None:
        self.extra = 2


class Deletes(Sets):
    def change(self) -> None:
        del self.factor


class Appends(Sets):
    def __init__(self) -> None:
        super().__init__()
        self.factor: Any = {"seen": [1]}

    def change(self) -> None:
        self.factor["seen"].append(2)


class AddsToSet(Appends):
    def __init__(self) -> None:
        super().__init__()
        self.factor = {1}

    def change(self) -> None:
        self.factor.add(2)

    def forward(self, x: Tensor) -> Tensor:
        self.factor.add(3)
        return super().forward(x)


class Reads(Sets):
    """Reads what the last call left as code that copies a module does."""

    def forward(self, x: Tensor) -> Tensor:
        last = dict(vars(self))
        self.factor = 3
        if x.sum() < 0:
            self.change()
        return x * (2 if last["factor"] else 1)


class ReadsOnOneSide(Sets):
    def forward(self, x: Tensor) -> Tensor:
        if x.sum() < 0:
            self.factor = 2
            return x
        return x * self.factor


class Hides(Sets):
    """Reads attributes in a way of its own."""

    def __getattribute__(self, name: str) -> Any:
        return object.__getattribute__(self, name)

    def forward(self, x: Tensor) -> Tensor:
        self.factor = 1
        if x.sum() < 0:
            self.change()
        return x * self.factor


class AssignsBuffer(Sets):
    def __init__(self) -> None:
        super().__init__()
        del self.factor
        self.register_buffer("factor", torch.ones(1))

    def change(self) -> None:
        self.factor = self.factor * 2


class InChild(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.child = Sets()

    def forward(self, x: Tensor) -> Tensor:
        result: Tensor = self.child(x)
        return result


class Scale:
    """An object that a model makes; it holds itself."""

    def __init__(self, x: Tensor, *given: Any) -> None:
        self.mean, self.given, self.own = x.mean(), {"values": given}, [self]


class LeavesOtherObject(nn.Module):
    """Makes an object at each call, which differs by side."""

    def __init__(self) -> None:
        super().__init__()
        self.made: Any = None
        self.values = (1, 2)

    def forward(self, x: Tensor) -> Tensor:
        found = 2 if self.made else 1
        if x.sum() < 0:
            self.made = Scale(x, *self.values)
            x = x * 2
        else:
            self.made = Scale(x + 1, 1, 2.0)
        return x * self.made.mean * found / found


class LeavesEqualObject(LeavesOtherObject):
    """The objects are made of the same, but for what they compute."""

    def __init__(self) -> None:
        super().__init__()
        self.values = (1, 2.0)


@pytest.mark.parametrize(
    ("model", "said"),
    [
        (Sets, "the sides leave self.factor with different values"),
        (Reads, "the sides leave self.factor with different values"),
        (ReadsOnOneSide, "the sides leave self.factor with different values"),
        (Hides, "the sides leave self.factor with different values"),
        (LeavesOtherObject, "the sides leave self.made with different values"),
        (Adds, "the sides leave self.extra with different values"),
        (Deletes, "the sides leave self.factor with different values"),
        (Appends, "the sides leave self.factor with different values"),
        (AddsToSet, "the sides leave self.factor with different values"),
        (AssignsBuffer, "forward assigns self.factor instead of writing to it"),
        (InChild, "the sides leave self.child.factor with different values"),
    ],
)
def test_changes_of_attributes_are_refused(model: type[nn.Module], said: str) -> None:
    made = model()
    before = copy.deepcopy(made.__dict__)
    with pytest.raises(CaptureError, match=said):
        onnx_aot.export(made, (X,))
    assert str(made.__dict__) == str(before)


class SetsTheSame(Sets):
    def change(self) -> None:
        self.factor = int("1")


class Layers(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.lstm, self.norm = nn.LSTM(4, 4), nn.BatchNorm1d(4)
        self.register_buffer("count", torch.zeros(1))

    def forward(self, x: Tensor) -> Tensor:
        if x.sum() < 0:
            x = self.lstm(x)[0]
            self.count += 1
        result: Tensor = self.norm(x)
        return result


class Caches(nn.Module):
    """Fills caches at each call, before the branch."""

    def __init__(self) -> None:
        super().__init__()
        self.length: Any = None
        self.positions: Any = None
        self.after: Any = None
        self.by_length: dict[str, Any] = {}
        self.calls = 0

    def forward(self, x: Tensor) -> Tensor:
        if self.length != x.shape[0]:
            self.length = x.shape[0]
            self.positions = torch.arange(x.shape[0]).to(x.dtype)
        self.by_length |= {"last": x * 2, "first": 7}
        self.calls += 1
        if x.sum() > 0:
            x = x * 2
        self.after = x
        return x + self.positions[:, None] + self.by_length["last"]


@pytest.mark.filterwarnings("ignore:The tensor attributes")
def test_caches_that_each_way_fills() -> None:
    model = Caches()
    program = onnx_aot.export(model, (X,), dynamic_shapes=({0: "n"},))
    assert (model.length, model.positions, model.by_length, model.calls) == (None, None, {}, 0)
    for x in (X, -X, X[:1], -X[:2], torch.ones(5, 4), torch.ones(0, 4)):
        torch.testing.assert_close(program(x)[0], Caches()(x))


@pytest.mark.filterwarnings("ignore:The tensor attributes")
def test_torch_warns_of_caches() -> None:
    with pytest.warns(UserWarning, match=r"The tensor attributes .*self\.after"):
        onnx_aot.export(Caches(), (X,))


class FillsBuffers(nn.Module):
    """Fills a buffer before the branch, as rotary embeddings do, and another one after it."""

    def __init__(self, *, of_data: bool = False, on_both_sides: bool = True) -> None:
        super().__init__()
        self.register_buffer("angles", None, persistent=False)
        self.register_buffer("last", None, persistent=False)
        self.of_data, self.on_both_sides = of_data, on_both_sides

    def forward(self, x: Tensor) -> Tensor:
        if self.angles is None:
            self.register_buffer("angles", torch.arange(4.0) / 3, persistent=False)
        if x.sum() > 0:
            x = x * self.angles
            self.last = (x if self.of_data else self.angles) * 2
        elif self.on_both_sides:
            self.last = self.angles * 3
        return x if self.last is None else x + self.last


@pytest.mark.parametrize("shapes", [None, ({0: "n"},)])
def test_buffers_that_each_way_fills(shapes: Any) -> None:
    model = FillsBuffers()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        program = onnx_aot.export(model, (X,), dynamic_shapes=shapes)
    assert model.angles is None
    assert model.last is None
    for x in (X, -X, *([X[:1], -X[:2], torch.ones(5, 4)] if shapes else [])):
        torch.testing.assert_close(program(x)[0], FillsBuffers()(x))


def test_buffers_filled_by_data_are_warned_of() -> None:
    with pytest.warns(onnx_aot.OnnxExporterWarning, match="last is None before the call"):
        program = onnx_aot.export(FillsBuffers(of_data=True), (X,))
    for x in (X, -X):
        torch.testing.assert_close(program(x)[0], FillsBuffers(of_data=True)(x))
    with pytest.raises(CaptureError, match="last is None before the call"):
        onnx_aot.export(FillsBuffers(of_data=True), (X,), state="io")


def test_a_buffer_that_one_way_fills_is_refused() -> None:
    with pytest.raises(CaptureError, match=r"forward assigns self\.last instead of writing"):
        onnx_aot.export(FillsBuffers(on_both_sides=False), (X,))


class SetsFirst(Sets):
    """Leaves what it sets, and reads none of it in the next call."""

    def forward(self, x: Tensor) -> Tensor:
        self.factor = 3
        if x.sum() < 0:
            self.change()
        return x * self.factor


class SetsSeveral(nn.Module):
    """Decides by its data, and keeps the decision as an attribute of a submodule."""

    def __init__(self) -> None:
        super().__init__()
        self.child = Sets()
        self.child.last = None

    def forward(self, x: Tensor) -> Tensor:
        self.child.last = bool(x.sum() < 0)
        if self.child.last and x.max() > 4:
            self.child.name = "large"
            return x * 2
        self.child.name = "small"
        return x + 1


@pytest.mark.parametrize("model", [SetsTheSame, Layers, SetsFirst, SetsSeveral, LeavesEqualObject])
@pytest.mark.filterwarnings("ignore::onnx_aot.OnnxExporterWarning")
def test_other_attributes(model: type[nn.Module]) -> None:
    torch.manual_seed(0)
    made = model().eval()
    program = onnx_aot.export(made, (X,))
    for x in (X, -X, X * 10):
        with torch.no_grad():
            torch.testing.assert_close(program(x)[0], made(x))


class CountsOnOneSide(nn.Module):
    """Writes its state on one side of a branch."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("steps", torch.zeros(1))

    def forward(self, x: Tensor) -> Tensor:
        if x.sum() > 0:
            self.steps += 1
        return x + self.steps


def test_state_that_one_side_writes() -> None:
    model, program = CountsOnOneSide(), onnx_aot.export(CountsOnOneSide(), (X,), state="io")
    for x in (X, -X, X, X):
        returned = model(x)
        torch.testing.assert_close(program(x), (returned, model.steps))
