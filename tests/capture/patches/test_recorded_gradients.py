"""Calls of torch.autograd.grad inside of models: ``capture/patches/recorded_gradients.py``."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F  # noqa: N812
from torch import Tensor, nn

import onnx_aot
from onnx_aot.errors import CaptureError
from onnx_aot.torch_compat import pytree
from tests.tolerances import assert_close
from tests.torch_compat.without import absent, shows

X = torch.randn(3, 4, generator=torch.Generator().manual_seed(0))


class Model(nn.Module):
    """Layers, and a function of this module and an input ``[n, 4]`` that requires a gradient."""

    def __init__(self, function: Callable[[Any, Tensor], Any]) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.net = nn.Sequential(nn.Linear(4, 8), nn.SiLU(), nn.Linear(8, 1))
        self.norm = nn.LayerNorm(4)
        self.drop = nn.Dropout(0.5)
        self.register_buffer("steps", torch.linspace(0, 3, 4))
        self.function = function

    def forward(self, x: Tensor) -> Any:
        with torch.enable_grad():
            return self.function(self, x.detach().requires_grad_())


def grad(outputs: Any, inputs: Any, **options: Any) -> Any:
    return torch.autograd.grad(outputs, inputs, **options)


def forces(m: Any, x: Tensor) -> Any:
    apart = ((x[:, None] - x[None]).pow(2).sum(-1) + 1e-6).sqrt()
    bases = torch.exp(-((apart[..., None] - m.steps) ** 2)) * (apart < 4)[..., None]
    energy = m.net(bases.sum(1)).sum()
    return energy.detach(), -grad(energy, x)[0]


def twice(m: Any, x: Tensor) -> Any:
    y = m.net(x).tanh()
    (first,) = grad(y.sum(), x, create_graph=True)
    (second,) = grad(first.pow(2).sum(), x, create_graph=True)
    return first + y, second


def scattered(m: Any, x: Tensor) -> Tensor:
    sums = torch.zeros(2, 4)
    sums.index_add_(0, torch.arange(x.shape[0]) % 2, x.exp())
    result: Tensor = grad((sums**2).sum() + sums.sigmoid().sum(), x)[0]
    return result


def with_constants(m: Any, x: Tensor) -> Tensor:
    with torch.no_grad():
        scale = x.exp()
    result: Tensor = grad((x.exp() * scale * x.exp().detach()).sum(), x)[0]
    return result


def weighted(m: Any, x: Tensor) -> Any:
    y, z = m.net(x), x.softmax(-1)
    return grad([y, z], [x], grad_outputs=[y.detach() * 2, z.detach()])[0]


def adapted(m: Any, x: Tensor) -> Tensor:
    loss = m.net(x).pow(2).mean()
    first, *_ = grad(loss, [m.net[0].weight, m.net[2].bias])
    return F.linear(x, m.net[0].weight - 0.1 * first)


def of_value(m: Any, x: Tensor) -> Tensor:
    hidden = m.norm(x)
    result: Tensor = grad(m.net(hidden).exp().sum(), hidden)[0]
    return result


def unused(m: Any, x: Tensor) -> Any:
    other = torch.ones(4, requires_grad=True)
    first, second = grad(x.exp().sum(), (x, other * 1), allow_unused=True)
    (zeros,) = grad(x.sin().sum(), other * 1, materialize_grads=True)
    assert second is None
    return first, zeros


class RoundedWithSetup(torch.autograd.Function):
    @staticmethod
    def forward(x: Tensor, _: float) -> Tensor:
        return (x * 4).round() / 4

    @staticmethod
    def setup_context(ctx: Any, inputs: Any, _: Any) -> None:
        ctx.factor = inputs[1]

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> Any:
        return gradients[0] * ctx.factor, None


class Rounded(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, factor: float) -> Tensor:
        ctx.factor = factor
        return (x * 4).round() / 4

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> Any:
        return gradients[0] * ctx.factor, None


def through_a_function(m: Any, x: Tensor) -> Any:
    y: Any = Rounded.apply(x.exp(), 3.0)
    return grad((y * m.steps).sum() + x.exp().sum(), x)[0]


CASES: dict[str, Callable[[Any, Tensor], Any]] = {
    "forces": forces,
    "twice": twice,
    "scattered": scattered,
    "constants": with_constants,
    "weighted": weighted,
    "weights": adapted,
    "inner value": of_value,
    "unused": unused,
    "dropout in eval": lambda m, x: grad(m.drop(x.exp()).sum(), x)[0],
    "max": lambda m, x: grad((x.softmax(-1) * m.steps).max(-1).values.sum(), x)[0],
    "the output": lambda m, x: grad(x, x, grad_outputs=x.exp())[0],
}


@pytest.mark.parametrize("name", CASES)
def test_gradients(name: str) -> None:
    model = Model(CASES[name]).eval()
    program = onnx_aot.export(model, (X,), dynamic_shapes=({0: "n"},))
    for x in (X, torch.randn(5, 4), torch.randn(1, 4)):
        wanted = [leaf for leaf in pytree.tree_leaves(model(x)) if isinstance(leaf, Tensor)]
        found = [leaf for leaf in program(x) if isinstance(leaf, Tensor)]
        for one, other in zip(found, wanted, strict=True):
            assert_close(one, other.detach())


def test_the_operators_are_not_repeated() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        program = onnx_aot.export(Model(forces).eval(), (X,), dynamic_shapes=({0: "n"},))
    assert [node.op_type for node in program.model.graph].count("Exp") == 1


def written(m: Any, x: Tensor) -> Any:
    sums = torch.zeros(3, 4)
    sums[:, 0] = x[:3, 0].exp()
    return grad(sums.exp().sum(), x)[0]


def written_later(m: Any, x: Tensor) -> Any:
    factor = torch.ones(4)
    y = (x + factor).exp()
    factor.add_(1)
    return grad(y.sum(), x)[0]


def hooked(m: Any, x: Tensor) -> Any:
    y = x.exp()
    y.register_hook(lambda gradient: gradient * 3)
    return grad((y * y).sum(), x)[0]


def hooked_node(m: Any, x: Tensor) -> Any:
    y = x.exp()
    y.grad_fn.register_prehook(lambda gradients: (gradients[0] * 3,))  # type: ignore[union-attr]
    return grad((y * y).sum(), x)[0]


REFUSED: dict[str, Callable[[Any, Tensor], Any]] = {
    "own function": through_a_function,
    "a view is written": written,
    "an input is written": written_later,
    "hook of a tensor": hooked,
    "hook of a node": hooked_node,
    "random": lambda m, x: grad(m.drop(x).exp().sum(), x)[0],
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_cannot_be_repeated_is_not_wrong(name: str) -> None:
    model = Model(REFUSED[name])
    model.train(name == "random")
    with pytest.raises(
        CaptureError, match=r"(?s)it calls torch\.autograd\.grad.*_gradients\.py:\d+"
    ):
        onnx_aot.export(model, (X,))


def test_the_fix_of_the_message() -> None:
    def total(m: Any, x: Tensor) -> Tensor:
        y: Any = RoundedWithSetup.apply(x.exp(), 3.0)
        sums = torch.cat([y * m.steps, x.exp()])
        return sums.sum()

    model = Model(lambda m, x: torch.func.grad(lambda y: total(m, y))(x))
    program = onnx_aot.export(model, (X,), dynamic_shapes=({0: "n"},))
    x = torch.randn(5, 4)
    assert_close(program(x)[0], model(x).detach())


def test_a_function_of_its_own_is_differentiated_by_its_backward() -> None:
    """The derivative is not that of ``round``; the graph knows all values that it needs."""
    model = Model(lambda m, x: grad((Rounded.apply(x, 3.0) * m.steps).sum(), x)[0])
    assert_close(onnx_aot.export(model, (X,))(X)[0], model(X))


@shows("torch.autograd:grad")
def test_without_the_row() -> None:
    with absent("torch.autograd:grad"), pytest.raises(CaptureError):
        onnx_aot.export(Model(forces).eval(), (X,), dynamic_shapes=({0: "n"},))
