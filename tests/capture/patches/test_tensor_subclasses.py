"""Subclasses of ``torch.Tensor``: ``onnx_aot/capture/patches/tensor_subclasses.py``."""

from __future__ import annotations

import gc
import weakref
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import onnx_aot
from tests.tolerances import assert_close

ADDING = (torch.add, Tensor.add, Tensor.__add__)


class Angle(Tensor):
    """Addition is modulo 1, and results of other functions are angles too."""

    unit: float

    @classmethod
    def __torch_function__(
        cls, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Any = None
    ) -> Any:
        assert all(t in (cls, Tensor, nn.Parameter) or not issubclass(t, cls) for t in types)
        result = super().__torch_function__(func, types, args, kwargs)  # type: ignore[no-untyped-call]
        return result.remainder(1) if func in ADDING else result

    def twice(self) -> Tensor:
        return self + self

    def new_empty(self, *args: Any, **kwargs: Any) -> Any:
        raise AssertionError("nothing calls it")


class Labelled(Tensor):
    """Has an attribute, which indexing keeps."""

    label: int

    @staticmethod
    def __new__(cls, tensor: Tensor, label: int) -> Any:
        return tensor.as_subclass(cls)

    def __init__(self, tensor: Tensor, label: int) -> None:
        self.label = label

    @classmethod
    def __torch_function__(
        cls, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Any = None
    ) -> Any:
        plain = [Tensor if issubclass(t, cls) else t for t in types]
        result = Tensor.__torch_function__(func, plain, args, kwargs)  # type: ignore[no-untyped-call]
        if func is Tensor.__getitem__:
            return cls(result, args[0].label)
        return result


def scaled(tensor: Any) -> Tensor:
    return tensor.as_subclass(Tensor) * tensor.label  # type: ignore[no-any-return]


def write(x: Tensor) -> Tensor:
    """Writes to the tensor itself, by way of the subclass."""
    y = x * 2
    y.as_subclass(Angle)[:, 0] = 0.5
    return y + 1


def loop(x: Tensor) -> Tensor:
    angle: Tensor = x.as_subclass(Angle)
    for t in range(x.shape[1]):
        angle = angle + x[:, t : t + 1]
    return angle.as_subclass(Tensor)


MODELS: dict[str, Callable[[Tensor], Any]] = {
    "method": lambda x: x.as_subclass(Angle).twice(),
    "function": lambda x: torch.add(x.as_subclass(Angle), 0.75) * 3,
    "on the right": lambda x: x + x.as_subclass(Angle),
    "back": lambda x: x.as_subclass(Angle).as_subclass(Tensor) + 1,
    "class of an instance": lambda x: x.sin().as_subclass(type(x.as_subclass(Angle))) + 1,
    "asked": lambda x: x + 1 if isinstance(x.as_subclass(Angle).relu(), Angle) else x,
    "attribute": lambda x: scaled(Labelled(x, 3)) + scaled(Labelled(x, 4)[:, 1:2]),
    "slice of a size": lambda x: scaled(Labelled(x, 3)[:, : x.shape[1] - 1]),
    "shape": lambda x: x.as_subclass(Angle).reshape(-1)[: x.shape[1]] + 0.5,
    "written": write,
    "loop": loop,
    "matrix": lambda x: x.as_subclass(Angle) @ x.T + 0.25,
}


class Model(nn.Module):
    def __init__(self, compute: Callable[[Tensor], Any]) -> None:
        super().__init__()
        self.compute = compute

    def forward(self, x: Tensor) -> Any:
        return self.compute(x)


def plain(result: Tensor) -> Tensor:
    return result.detach().as_subclass(Tensor)


@pytest.mark.parametrize("dynamic", [False, True])
@pytest.mark.parametrize("name", MODELS)
def test_made_in_forward(name: str, dynamic: bool) -> None:
    model = Model(MODELS[name])
    options: Any = {"dynamic_shapes": ({1: "n"},)} if dynamic else {}
    program = onnx_aot.export(model, (torch.randn(3, 5),), strategies=("non-strict",), **options)
    for size in (5, 2, 3, 8) if dynamic else (5,):
        x = torch.randn(3, size)
        assert_close(program(x)[0], plain(model(x)))


class WithState(nn.Module):
    """Adds a buffer, which is an angle, or has a label."""

    state: Tensor

    def __init__(self, state: Tensor) -> None:
        super().__init__()
        self.register_buffer("state", state)

    def forward(self, x: Tensor) -> Tensor:
        if isinstance(self.state, Labelled):
            return x + scaled(self.state)
        return x + self.state


@pytest.mark.parametrize("state", [torch.rand(4).as_subclass(Angle), Labelled(torch.rand(4), 3)])
def test_buffers(state: Tensor) -> None:
    """They were captured as plain tensors."""
    model = WithState(state)
    program = onnx_aot.export(
        model, (torch.rand(3, 4),), dynamic_shapes=({0: "n"},), strategies=("non-strict",)
    )
    for size in (3, 1, 7):
        x = torch.rand(size, 4)
        assert_close(program(x)[0], plain(model(x)))
    assert type(model.state) is type(state)
    assert vars(model.state) == vars(state)


def test_nothing_keeps_the_class() -> None:
    def export() -> weakref.ref[type]:
        class Local(Tensor):
            pass

        onnx_aot.export(
            Model(lambda x: x.as_subclass(Local) * 2), (torch.rand(3),), strategies=("non-strict",)
        )
        return weakref.ref(Local)

    kept = export()
    torch._dynamo.reset()
    gc.collect()
    assert kept() is None
