"""Buffers that ``forward`` assigns: their new values are state, and no other buffer changes."""

from __future__ import annotations

import copy
import re
import warnings
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import onnx_aot
from onnx_aot.errors import CaptureError, OnnxExporterWarning

X = torch.tensor([1.0, 2.0, 5.0])


class Assigns(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("count", torch.ones(3))
        self.register_buffer("last", torch.full((3,), 5.0))

    def forward(self, x: Tensor) -> Tensor:
        self.count = self.count + x
        return self.count * self.last


class BehindNone(Assigns):
    """Torch wrote to the buffer after the assigned one."""

    def __init__(self) -> None:
        super().__init__()
        buffers = dict(self._buffers)
        self._buffers.clear()
        self.register_buffer("cache", None)
        self._buffers.update(buffers)


class Swaps(Assigns):
    def forward(self, x: Tensor) -> Tensor:
        self.count, self.last = self.last, self.count + x
        return self.count * x


class ReturnsOld(Assigns):
    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:  # type: ignore[override]
        old = self.count
        self.count = old + x
        return old, old[:2]


class WritesToo(Assigns):
    def forward(self, x: Tensor) -> Tensor:
        self.count = self.count + x
        self.count.mul_(2)
        self.last.add_(self.count)
        return self.last * x


class AssignsTwice(Assigns):
    def forward(self, x: Tensor) -> Tensor:
        self.count = self.count + x
        y = self.count * 2
        self.count = y - x
        return y


class AssignsAndSetsToNone(BehindNone):
    def forward(self, x: Tensor) -> Tensor:
        self.cache = x * 2
        self.count = self.count + self.cache
        self.cache = None
        return self.count * x


class Around(nn.Module):
    def __init__(self, inner: nn.Module) -> None:
        super().__init__()
        self.before = Assigns()
        self.inner = inner

    def forward(self, x: Tensor) -> Any:
        return self.inner(self.before(x) + x)


MODELS = [Assigns, BehindNone, Swaps, ReturnsOld, WritesToo, AssignsTwice, AssignsAndSetsToNone]


def assert_like_calls(program: Any, model: nn.Module, inputs: list[Tensor]) -> None:
    for x in inputs:
        expected = model(x)
        expected = [t.clone() for t in (expected if isinstance(expected, tuple) else (expected,))]
        results = program(x)[: len(expected)]  # new values of the state follow
        for found, wanted in zip(results, expected, strict=True):
            torch.testing.assert_close(found, wanted)


@pytest.mark.parametrize("inside", [False, True], ids=["model", "submodule"])
@pytest.mark.parametrize("kind", MODELS)
def test_the_new_values_are_state(kind: type[nn.Module], inside: bool) -> None:
    model = Around(kind()) if inside else kind()
    before = copy.deepcopy(dict(model.named_buffers()))
    with warnings.catch_warnings():
        warnings.simplefilter("error", OnnxExporterWarning)
        program = onnx_aot.export(copy.deepcopy(model), (X,), state="io")
    torch.testing.assert_close(dict(model.named_buffers()), before)
    assert_like_calls(program, model, [X, X * 2, -X, X])


def test_dynamic_sizes() -> None:
    class Sums(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.inner = Assigns()

        def forward(self, x: Tensor) -> Tensor:
            self.inner.count = self.inner.count + x.sum(0)
            return x * self.inner.count

    model = Sums()
    x = torch.rand(4, 3)
    program = onnx_aot.export(
        copy.deepcopy(model), (x,), dynamic_shapes=({0: "n"},), state="io", verify=True
    )
    assert_like_calls(program, model, [torch.rand(n, 3) for n in (4, 1, 0, 7)])


def test_outputs_have_the_names_of_buffers_of_submodules() -> None:
    with pytest.warns(OnnxExporterWarning, match=r"before.count_out, inner.count_out"):
        onnx_aot.export(Around(Assigns()), (X,))


class Table(nn.Module):
    """Registers a table at the first call, as rotary embeddings do."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("table", None, persistent=False)
        self.register_buffer("other", torch.ones(3))

    def forward(self, x: Tensor) -> Tensor:
        if self.table is None:
            self.register_buffer("table", torch.arange(3.0), persistent=False)
        return x * self.table + self.other  # type: ignore[operator]


@pytest.mark.parametrize("state", ["outputs", "io"])
def test_a_table_that_the_first_call_makes_is_a_constant(state: Any) -> None:
    model = Table()
    with warnings.catch_warnings():
        warnings.simplefilter("error", OnnxExporterWarning)
        program = onnx_aot.export(model, (X,), state=state)
    assert len(program.outputs) == 1
    assert model.table is None
    assert_like_calls(program, model, [X, X * 2])


class Remembers(Table):
    """Keeps a value of its inputs in a buffer that is None before the first call."""

    def forward(self, x: Tensor) -> Tensor:
        self.table = x if self.table is None else self.table + x
        return self.table * self.other  # type: ignore[operator]


@pytest.mark.parametrize("model", [Remembers(), Around(Remembers())], ids=["model", "submodule"])
def test_state_that_the_first_call_makes(model: nn.Module) -> None:
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        program = onnx_aot.export(copy.deepcopy(model), (X,))
    said = "\n".join(str(each.message) for each in caught)
    assert re.search("table is None before the call, and a tensor after it. Call the model", said)
    torch.testing.assert_close(program(X)[0], copy.deepcopy(model)(X))
    with pytest.raises(CaptureError, match=r"table is None before the call(.|\n)*call the model"):
        onnx_aot.export(copy.deepcopy(model), (X,), state="io")
    model(X)  # the fix
    program = onnx_aot.export(copy.deepcopy(model), (X,), state="io")
    assert_like_calls(program, model, [X, X * 2, -X])


def test_state_of_another_shape_is_refused() -> None:
    class Grows(Assigns):
        def forward(self, x: Tensor) -> Tensor:
            self.count = torch.cat([self.count, x])
            return self.count * 2

    for model in (Grows(), Around(Grows())):
        with pytest.raises(CaptureError, match=r"of shape \(6,\) to (inner.)?count"):
            onnx_aot.export(model, (X,), state="io")


@pytest.mark.parametrize("shape", [(0,), (2,), (2, 1), ()], ids=str)
@pytest.mark.parametrize("shapes", [None, ({0: "n"},)], ids=["static", "dynamic"])
def test_state_of_another_shape_is_an_output(shape: tuple[int, ...], shapes: Any) -> None:
    """It has the shape that the model gives it, also where the buffer's could be broadcast."""

    class Keeps(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.register_buffer("kept", torch.ones(shape))

        def forward(self, x: Tensor) -> Tensor:
            self.kept = x + self.kept.sum()
            return x * 2

    with pytest.warns(OnnxExporterWarning, match="kept_out"):
        program = onnx_aot.export(Keeps(), (X,), dynamic_shapes=shapes)
    model = Keeps()
    for x in (X, torch.ones(5)) if shapes else (X,):
        expected = x + torch.ones(shape).sum()
        torch.testing.assert_close(program(x), (model(x), expected))
