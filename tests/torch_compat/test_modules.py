"""Hooks of a model that run as part of its ``forward``: ``torch_compat/modules.py``."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import onnx_aot
from onnx_aot.errors import CaptureError
from onnx_aot.torch_compat.modules import HookedForward
from tests.tolerances import assert_close
from tests.torch_compat.without import absent, shows

X = torch.randn(3, 4, generator=torch.Generator().manual_seed(0))


class Model(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(4, 4)
        self.register_buffer("power", torch.tensor(2))

    def forward(self, x: Tensor, scale: float = 1.0) -> Any:
        return self.layer(x) * scale


def swap_argument(module: Any, args: Any) -> Any:
    return args[0] * 3


def swap_arguments(module: Any, args: Any, kwargs: Any) -> Any:
    return (args[0] + 1,), {"scale": 2.0}


def swap_result(module: Any, args: Any, result: Any) -> Any:
    return result - args[0]


def swap_result_by_keyword(module: Any, args: Any, kwargs: Any, result: Any) -> Any:
    return result * (1 + len(kwargs))


def look(module: Any, *args: Any) -> None:
    """Changes nothing."""


def make(*hooks: tuple[str, Callable[..., Any], bool]) -> Any:
    torch.manual_seed(0)
    model = Model()
    for name, hook, takes_kwargs in hooks:
        getattr(model, f"register_forward_{name}")(hook, with_kwargs=takes_kwargs)
    return model.eval()


ALL = (
    ("pre_hook", swap_argument, False),
    ("pre_hook", look, False),
    ("pre_hook", swap_arguments, True),
    ("pre_hook", look, True),
    ("hook", swap_result, False),
    ("hook", look, True),
    ("hook", swap_result_by_keyword, True),
)


def test_hooks_run_in_their_order_once() -> None:
    model = make(*ALL)
    expected = model(X)
    place = HookedForward(model)
    assert place.has_hooks()
    assert not HookedForward(make()).has_hooks()
    own = place.own()
    place.put(place.value())
    assert_close(model(X), expected)
    assert not place.has_hooks()
    place.put(own)
    assert place.has_hooks()
    assert "forward" not in vars(model)
    assert_close(model(X), expected)


def test_models_with_hooks_are_exported() -> None:
    model = make(*ALL)
    program = onnx_aot.export(model, (X,), dynamic_shapes=({0: "n"},))
    for x in (X, torch.randn(5, 4)):
        assert_close(program(x)[0], model(x))


def read_a_number(module: Any, args: Any) -> Any:
    return (args[0], -args[0], args[0] ** 2)[module.power]


def branch(module: Any, args: Any, result: Any) -> Any:
    return result if args[0].sum() > 0 else -result


@shows("forward: hooks of the model")
@pytest.mark.parametrize(
    "hook", [("pre_hook", read_a_number, False), ("hook", branch, False)], ids=["read", "branch"]
)
def test_hooks_read_the_state_and_branch_on_data(hook: tuple[str, Any, bool]) -> None:
    model = make(hook)
    program = onnx_aot.export(model, (X,), dynamic_shapes=({0: "n"},))
    for x in (X.abs(), -X.abs(), torch.randn(5, 4)):
        assert_close(program(x)[0], model(x))
    with absent("forward: hooks of the model"), pytest.raises(CaptureError):
        onnx_aot.export(model, (X,), dynamic_shapes=({0: "n"},))


def write_weights(module: Any, args: Any) -> None:
    held = module.held[0]
    held.data[:] = held.data * module.power


def restore_weights(module: Any, args: Any, result: Any) -> None:
    held = module.held[0]
    held.data[:] = held.data / module.power


def test_weights_that_hooks_write_are_those_of_the_layers() -> None:
    model = make(("pre_hook", write_weights, False), ("hook", restore_weights, False))
    model.held = (model.layer.weight,)
    program = onnx_aot.export(model, (X,), state="drop")
    assert_close(program(X)[0], model(X))
