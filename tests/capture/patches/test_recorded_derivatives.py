"""``torch.autograd.grad`` inside of models: ``capture/patches/recorded_derivatives.py``."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.autograd import grad as bound_early
from torch.func import functional_call

import onnx_aot
from onnx_aot.errors import CaptureError
from onnx_aot.torch_compat import pytree
from tests.tolerances import assert_close
from tests.torch_compat.without import absent, shows

X = torch.randn(3, 4, generator=torch.Generator().manual_seed(0))
grad = torch.autograd.grad


class Model(nn.Module):
    """A small network, and a function of this module and an input ``[n, 4]``."""

    def __init__(self, function: Callable[[Any, Tensor], Any]) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.net = nn.Sequential(
            nn.Linear(4, 8), nn.LayerNorm(8), nn.Tanh(), nn.Dropout(0.5), nn.Linear(8, 1)
        )
        self.norm = nn.BatchNorm1d(4)
        self.function = function

    def forward(self, x: Tensor) -> Any:
        return self.function(self, x)


def energy_and_forces(m: Any, positions: Tensor) -> Any:
    positions.requires_grad_(True)
    energy = m.net(positions).sum()
    (slope,) = torch.autograd.grad([energy], [positions], create_graph=m.training)
    return energy, -slope


def of_displacement(m: Any, x: Tensor) -> Any:
    """Two inputs, one of which the model makes, as in models of molecules with stress."""
    strain = torch.zeros(4, 4)
    strain.requires_grad_(True)
    x.requires_grad_(True)
    moved = x + x @ (strain + strain.T) / 2
    return torch.autograd.grad(m.net(moved).pow(2).sum(), [x, strain])


def adapted(m: Any, x: Tensor) -> Tensor:
    """A step of gradient descent on the weights."""
    weights = dict(m.net.named_parameters())
    slopes = torch.autograd.grad(m.net(x).pow(2).sum(), list(weights.values()), create_graph=True)
    moved = {n: w - 0.1 * s for (n, w), s in zip(weights.items(), slopes, strict=True)}
    result: Tensor = functional_call(m.net, moved, (x,))
    return result


def second(m: Any, x: Tensor) -> Tensor:
    x.requires_grad_(True)
    (slope,) = torch.autograd.grad(m.net(x).sum(), x, create_graph=True)
    return torch.autograd.grad(slope.pow(2).sum(), x)[0]


def with_values_of_the_model(m: Any, x: Tensor) -> Tensor:
    """Reads values from before the input, which nothing else holds."""
    x = x * 2
    scaled = x.sum(1, keepdim=True).exp() * 0.1
    y = (x + 1).detach().requires_grad_(True)
    z = (m.net(y) * scaled).sum() * len(y)
    del scaled
    return torch.autograd.grad(z, y)[0]


def without_gradients(m: Any, x: Tensor) -> Tensor:
    x.requires_grad_(True)
    with torch.no_grad():
        scale = m.net(x).sigmoid()
    return torch.autograd.grad((m.net(x) * scale + (x * 3).detach() * x).sum(), x)[0]


def within_no_grad(m: Any, x: Tensor) -> Tensor:
    with torch.no_grad():
        y = x * 2
        with torch.enable_grad():
            y.requires_grad_(True)
            result = m.net(y).exp().sum()
        return torch.autograd.grad(result, y)[0]


def in_place(m: Any, x: Tensor) -> Tensor:
    x.requires_grad_(True)
    y = x.clone()
    y.mul_(x).add_(1)
    y[:, 0] = 2
    z = y * y
    return torch.autograd.grad(z.relu_().sum(), x)[0]


def of_several(m: Any, x: Tensor) -> Any:
    x.requires_grad_(True)
    a, b = x.sin(), (x * x).sum()
    return torch.autograd.grad([a, b], x, grad_outputs=[x.detach() + 1, torch.tensor(2.0)])


def unused(m: Any, x: Tensor) -> Any:
    x.requires_grad_(True)
    other = (x.detach() + 1).requires_grad_(True)
    a, b = torch.autograd.grad(x.sin().sum(), [x, other], allow_unused=True)
    assert b is None
    c, d = torch.autograd.grad(x.cos().sum(), [x, other], materialize_grads=True)
    return a, c, d


def of_dependent_inputs(m: Any, x: Tensor) -> Any:
    x.requires_grad_(True)
    y = x.sin()
    return torch.autograd.grad((y * x).sum() + y.pow(3).sum(), [x, y])


CASES: dict[str, Callable[[Any, Tensor], Any]] = {
    "energy and forces": energy_and_forces,
    "displacement": of_displacement,
    "adapted": adapted,
    "second": second,
    "values of the model": with_values_of_the_model,
    "without gradients": without_gradients,
    "within no_grad": within_no_grad,
    "in place": in_place,
    "several": of_several,
    "unused": unused,
    "dependent inputs": of_dependent_inputs,
    "bound early": lambda m, x: bound_early(m.net(x.requires_grad_(True)).sum(), x)[0],
    "normalized": lambda m, x: grad(m.norm(x.requires_grad_(True)).pow(3).sum(), x)[0],
    "jacobian": lambda m, x: torch.autograd.functional.jacobian(lambda y: m.net(y).sum(0), x),
    "branch": lambda m, x: grad(m.net(x.requires_grad_(True)).sum(), x)[0] if x.sum() > 0 else x,
}


def leaves(result: Any) -> list[Tensor]:
    return [leaf.detach() for leaf in pytree.tree_leaves(result)]


@pytest.mark.parametrize("name", CASES)
def test_derivatives(name: str) -> None:
    model = Model(CASES[name]).eval()
    program = onnx_aot.export(model, (X.clone(),), dynamic_shapes=({0: "n"},))
    for x in (X, torch.randn(5, 4), torch.randn(1, 4)):
        found, wanted = program(x.clone()), leaves(model(x.clone()))
        for one, other in zip(found, wanted, strict=True):
            assert_close(one, other)


def test_static() -> None:
    model = Model(energy_and_forces).eval()
    program = onnx_aot.export(model, (X.clone(),))
    for one, other in zip(program(X), leaves(model(X.clone())), strict=True):
        assert_close(one, other)


def test_random_numbers_are_not_drawn_again() -> None:
    with pytest.raises(CaptureError, match=r"random numbers.*\n.*\n.*test_recorded") as caught:
        onnx_aot.export(Model(energy_and_forces).train(), (X.clone(),))
    assert caught.value.code == "OA120"
    assert "eval()" in caught.value.fix


def test_what_the_outputs_do_not_depend_on() -> None:
    def of_other(m: Any, x: Tensor) -> Any:
        return torch.autograd.grad(x.requires_grad_(True).sum(), (x + 1).detach())

    with pytest.raises(CaptureError, match="do not depend on") as caught:
        onnx_aot.export(Model(of_other).eval(), (X.clone(),))
    assert "allow_unused=True" in caught.value.fix


@shows("torch.autograd:grad")
def test_without_the_row() -> None:
    with absent("torch.autograd:grad"), pytest.raises(CaptureError):
        onnx_aot.export(Model(energy_and_forces).eval(), (X.clone(),))
