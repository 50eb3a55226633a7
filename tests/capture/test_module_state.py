"""Tests of what an export leaves of a module: ``onnx_aot/capture/module_state.py``."""

from __future__ import annotations

import warnings
from typing import Any

import pytest
import torch
from torch import nn

import onnx_aot
from onnx_aot.errors import DynamicShapeError

Tensor = torch.Tensor


class Lazy(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.conv, self.norm = nn.LazyConv2d(4, 1), nn.LazyBatchNorm2d()
        self.head = nn.LazyLinear(2)

    def forward(self, x: Tensor) -> Tensor:
        y: Tensor = self.head(self.norm(self.conv(x)).flatten(1))
        return y


X = torch.randn(3, 2, 4, 4)


@pytest.mark.parametrize("shapes", [None, ({0: "n"},)])
@pytest.mark.filterwarnings("ignore:Lazy modules are a new feature")
def test_lazy_modules_are_initialized(shapes: Any) -> None:
    model = Lazy().eval()
    program = onnx_aot.export(model, (X,), dynamic_shapes=shapes)
    assert type(model.conv) is nn.Conv2d
    torch.testing.assert_close(program(X)[0], model(X))


@pytest.mark.filterwarnings("ignore:Lazy modules are a new feature")
def test_lazy_modules_after_a_failed_export() -> None:
    model = Lazy().eval()
    with pytest.raises(DynamicShapeError, match="fixed at 2"):
        onnx_aot.export(model, (X,), dynamic_shapes=({1: "channels"},))
    assert model(X).shape == (3, 2)


def test_a_hook_that_replaces_an_argument() -> None:
    model = nn.Linear(3, 4)
    model.register_forward_pre_hook(lambda module, args: (args[0] * 2,))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        program = onnx_aot.export(model, (torch.ones(2, 3),))
    torch.testing.assert_close(program(torch.ones(2, 3))[0], model(torch.ones(2, 3)))


def test_a_parameter_that_forward_writes_is_restored() -> None:
    """The model runs at another size too, because it branches on it."""

    class Model(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.weight = nn.Parameter(torch.ones(2), requires_grad=False)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            self.weight += 2
            return x * self.weight if x.shape[0] > 1 else self.weight * x

    module = Model()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        program = onnx_aot.export(module, (torch.ones(4, 2),), dynamic_shapes=({0: "n"},))
    assert module.weight.tolist() == [1, 1]
    assert program(torch.ones(3, 2))[0].tolist() == [[3, 3]] * 3


class _Strict(type):
    def __getattr__(cls, name: str) -> Any:
        raise LookupError(name)


class _Injected(metaclass=_Strict):
    """A class that raises for attributes that it lacks, as dependency injection does."""


class _Settings:
    def __init__(self, **values: float) -> None:
        self.__dict__["values"] = values

    def __getattr__(self, name: str) -> float:
        values: dict[str, float] = self.__dict__["values"]
        return values[name]  # KeyError, and not AttributeError, for others


@pytest.mark.parametrize(
    "make",
    [lambda: _Settings(scale=2.0), _Injected, lambda: _Injected],
    ids=["dict", "object", "class"],
)
@pytest.mark.filterwarnings("error")
def test_an_attribute_that_cannot_be_asked(make: Any) -> None:
    class Model(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.held = make()

        def forward(self, x: Tensor) -> Tensor:
            return x * self.held.scale if isinstance(self.held, _Settings) else x * 2

    program = onnx_aot.export(Model(), (X,))
    torch.testing.assert_close(program(X)[0], X * 2)
