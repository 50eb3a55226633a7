"""Bodies of higher-order operators: wrappers called once are inlined into the graph."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch

import onnx_aot
from onnx_aot.fx_passes.inline_wrappers import inline_wrappers
from onnx_aot.torch_compat import aten, higher_order
from tests.fx_passes.captured_calls import Tensor, captured

# --- wrappers ------------------------------------------------------------------------------------


def wrapped(target: Any, arguments: Callable[[Any, Any], tuple[Any, ...]], **kwargs: Any) -> Any:
    """Replaces a captured cond by a wrapper whose body is the cond's true branch."""

    def model(x: Tensor) -> Any:
        return torch.cond(x.sum() > 0, lambda x: x.sin() * 2, lambda x: x.cos(), (x,))

    program = captured(model, torch.ones(3))
    graph = program.graph_module.graph
    node = next(node for node in graph.nodes if node.target == higher_order.cond)
    _, body, other, (x,) = node.args
    node.target = target
    node.args = arguments(body, x)
    node.kwargs = kwargs
    graph.erase_node(other)
    return program, body.name


WRAPPERS = {
    "strict_mode": (higher_order.strict_mode, lambda body, x: (body, (x,)), {}),
    "hints_wrapper": (higher_order.hints_wrapper, lambda body, x: (body, (x,), {}, {}), {}),
    "wrap": (higher_order.wrap, lambda body, x: (body, x), {}),
    "checkpoint": (
        higher_order.tag_activation_checkpoint,
        lambda body, x: (body, x),
        {"use_reentrant": False},
    ),
    "bypassing": (higher_order.dynamo_bypassing_wrapper, lambda body, x: ("key", body, x), {}),
}


@pytest.mark.parametrize("name", WRAPPERS)
def test_wrappers_are_inlined(name: str) -> None:
    target, arguments, kwargs = WRAPPERS[name]
    program, _ = wrapped(target, arguments, **kwargs)
    x = torch.tensor([0.5, -1.0, 2.0])
    torch.testing.assert_close(onnx_aot.export(program)(x)[0], x.sin() * 2)


def test_an_autograd_function_gives_its_results_without_what_it_saves() -> None:
    program, name = wrapped(
        higher_order.autograd_function_apply,
        lambda body, x: (body, body, x),
        non_differentiable_idx=[],
        saved_for_backward_idx=[0],
    )
    body = getattr(program.graph_module, name)
    output = next(iter(reversed(body.graph.nodes)))
    output.args = ((output.args[0], list(output.args[0])),)
    inlined = inline_wrappers(program)
    targets = [node.target for node in inlined.graph.nodes if node.op == "call_function"]
    assert aten.sin.default in targets
    assert not any(isinstance(target, torch._ops.HigherOrderOperator) for target in targets)
    assert not any(node.op == "get_attr" for node in inlined.graph.nodes)
    x = torch.tensor([0.5, -1.0, 2.0])
    torch.testing.assert_close(onnx_aot.export(program)(x)[0], x.sin() * 2)
