"""Derivatives inside of models: ``capture/patches/derivatives.py``."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.func import functional_call, grad, grad_and_value, hessian, jacfwd, jacrev, jvp, vjp

import onnx_aot
from onnx_aot.errors import CaptureError, ConversionError, DynamicShapeError
from onnx_aot.torch_compat import pytree
from tests.tolerances import assert_close
from tests.torch_compat.without import absent, shows

X = torch.randn(3, 4, generator=torch.Generator().manual_seed(0))


class Model(nn.Module):
    """A small network, and a function of this module and an input ``[n, 4]``."""

    def __init__(self, function: Callable[[Any, Tensor], Any]) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.net = nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Linear(8, 1))
        self.register_buffer("power", torch.tensor(3))
        self.function = function
        self.of_sample = torch.vmap(grad(lambda y: self.net(y).sum()))

    def forward(self, x: Tensor) -> Any:
        return self.function(self, x)

    def weights(self) -> dict[str, Tensor]:
        return dict(self.net.named_parameters())

    def loss(self, weights: dict[str, Tensor], x: Tensor) -> Tensor:
        error: Tensor = functional_call(self.net, weights, (x,)).pow(2)
        return error.sum()


def of_intermediate(m: Any, x: Tensor) -> Tensor:
    """Reads a value of the model with a dynamic size that the function is not given."""
    h = m.net[0](x)
    return grad(lambda y: (m.net(y) * h.sum(-1, keepdim=True)).sum())(x)


def adapted(m: Any, x: Tensor) -> Tensor:
    slopes = grad(m.loss)(m.weights(), x)
    weights = {name: w - 0.1 * slopes[name] for name, w in m.weights().items()}
    result: Tensor = functional_call(m.net, weights, (x,))
    return result


def pulled_back(m: Any, x: Tensor) -> Any:
    result, pull, aux = vjp(lambda a, b: ({"a": a * b}, b.cos()), x, x + 1, has_aux=True)
    return result, pull({"a": x}), aux


CASES: dict[str, Callable[[Any, Tensor], Any]] = {
    "grad": lambda m, x: grad(lambda y: m.net(y).sum())(x),
    "value": lambda m, x: grad_and_value(lambda y: m.net(y).sum())(x),
    "intermediate": of_intermediate,
    "weights": lambda m, x: grad(m.loss)(m.weights(), x),
    "adapted": adapted,
    "aux": lambda m, x: grad(lambda y: (y.sin().sum(), y + 1), has_aux=True)(x),
    "known value": lambda m, x: grad(lambda y: (y ** int(m.power)).sum() * len(y))(x),
    "number of data": lambda m, x: grad(lambda y: (y.sin() * x.sum().item()).sum())(x),
    "new tensor": lambda m, x: grad(lambda y: (y.sin() * torch.ones(len(x), 1)).sum())(x),
    "in place": lambda m, x: grad(lambda y: y.clone().mul_(y).relu_().sum())(x),
    "second": lambda m, x: grad(lambda y: grad(m.loss, 1)(m.weights(), y).pow(2).sum())(x),
    "samples": lambda m, x: m.of_sample(x),
    "samples of samples": lambda m, x: torch.vmap(lambda a: m.of_sample(x * a))(x),
    "vjp": pulled_back,
    "jvp": lambda m, x: jvp(lambda a, b: {"a": a * b, "s": a.sin()}, (x, x + 1), (x * 2, x)),
    "jacrev": lambda m, x: torch.vmap(jacrev(m.net))(x),
    "jacrev of one": lambda m, x: jacrev(lambda a, y: m.net(y).sum(0) * a.sum(), 1)(x, x),
    "jacfwd": lambda m, x: torch.vmap(jacfwd(lambda a, y: m.net(y) * a.sum(), (0, 1)))(x, x),
    "jacfwd, aux": lambda m, x: jacfwd(lambda y: (m.net(y[0]), y + 1), has_aux=True)(x),
    "hessian": lambda m, x: hessian(lambda y: m.net(y).sum())(x[0]),
}


def leaves(result: Any) -> list[Tensor]:
    return [leaf.detach() for leaf in pytree.tree_leaves(result)]


@pytest.mark.parametrize("name", CASES)
def test_derivatives(name: str) -> None:
    model = Model(CASES[name]).eval()
    program = onnx_aot.export(model, (X,), dynamic_shapes=({0: "n"},))
    for x in (X, torch.randn(5, 4), torch.randn(1, 4)):
        for found, wanted in zip(program(x), leaves(model(x)), strict=True):
            assert_close(found, wanted)


def test_a_branch_inside_of_a_derivative_is_refused() -> None:
    def of_branch(m: Any, x: Tensor) -> Tensor:
        return grad(lambda y: y.sum() if x.sum() > 0 else -y.sum())(x)

    with pytest.raises(CaptureError, match=r"x\.sum\(\) > 0"):
        onnx_aot.export(Model(of_branch), (X,), dynamic_shapes=({0: "n"},))


def test_vmap_on_one_side_of_a_branch() -> None:
    model = Model(lambda m, x: torch.vmap(lambda y: y * y.sum())(x) if x.sum() > 0 else x)
    program = onnx_aot.export(model, (X,), dynamic_shapes=({0: "n"},))
    for x in (X.abs(), -X.abs()):
        assert_close(program(x)[0], model(x))


def test_vmap_without_derivatives_is_left_to_torch() -> None:
    model = Model(lambda m, x: torch.vmap(lambda y: m.net(y) * y.sum())(x))
    program = onnx_aot.export(model, (X,), dynamic_shapes=({0: "n"},))
    assert any("torch.vmap" in note for note in program.report.notes)


_TRANSFORMS = "torch._functorch.eager_transforms"
REFUSED = {
    f"{_TRANSFORMS}:grad_and_value_impl": "grad",
    f"{_TRANSFORMS}:_vjp_with_argnums": "jacrev of one",
    f"{_TRANSFORMS}:_jvp_with_argnums": "jacfwd",
    "torch._functorch.apis:vmap_impl": "samples",
}


@shows(*REFUSED)
@pytest.mark.parametrize("name", REFUSED)
def test_without_the_row(name: str) -> None:
    model = Model(CASES[REFUSED[name]]).eval()
    with absent(name), pytest.raises((CaptureError, ConversionError, DynamicShapeError)):
        onnx_aot.export(model, (X,), dynamic_shapes=({0: "n"},))
