"""Bodies of higher-order operators: what they write, and wrappers that are called once."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch._higher_order_ops import scan, while_loop
from torch._higher_order_ops.map import map as map_slices

import onnx_aot
from onnx_aot.errors import FunctionalizationError, OnnxExporterWarning
from onnx_aot.fx_passes.body_writes import functionalize_bodies
from onnx_aot.fx_passes.inline_wrappers import inline_wrappers
from onnx_aot.fx_passes.nested_graphs import every_body
from onnx_aot.torch_compat import aten, higher_order

Tensor = torch.Tensor


class Call(torch.nn.Module):
    def __init__(self, function: Callable[..., Any]) -> None:
        super().__init__()
        self._function = function

    def forward(self, *inputs: Tensor) -> Any:
        return self._function(*inputs)


def captured(function: Callable[..., Any], *inputs: Tensor) -> torch.export.ExportedProgram:
    return torch.export.export(Call(function), inputs)


def writing(program: torch.export.ExportedProgram) -> torch.export.ExportedProgram:
    """Makes the first addition of a body write, as torch's own tracing refuses to."""
    (body,) = every_body(program.graph_module)
    node = next(node for node in body.graph.nodes if node.target == aten.add.Tensor)
    node.target = aten.add_.Tensor
    node.meta["val"] = node.args[0].meta["val"]
    return program


def test_a_scan_writes_to_what_all_steps_share() -> None:
    def model(x: Tensor, total: Tensor) -> Any:
        def step(state: Tensor, row: Tensor) -> tuple[Tensor, Tensor]:
            return state * 2, (total + row) * state

        return scan(step, torch.ones(3), x)

    x, total = torch.randn(4, 3), torch.zeros(3)
    program = writing(captured(model, x, total))
    with pytest.warns(OnnxExporterWarning, match="total_out|inputs_1_out"):
        actual = onnx_aot.export(program)(x, total)
    sums = x.cumsum(0)
    powers = 2.0 ** torch.arange(4)[:, None]
    torch.testing.assert_close(actual[0], torch.full((3,), 16.0))
    torch.testing.assert_close(actual[1], sums * powers)
    torch.testing.assert_close(actual[2], sums[-1])


def test_a_map_writes_to_slices() -> None:
    def model(x: Tensor) -> Any:
        y = x.clone()
        return map_slices(lambda row: (row + 1) * 2, y), y

    x = torch.randn(4, 3)
    first, second = onnx_aot.export(writing(captured(model, x)))(x)
    torch.testing.assert_close(first, (x + 1) * 2)
    torch.testing.assert_close(second, x + 1)


def test_other_writes_are_refused() -> None:
    def model(x: Tensor) -> Any:
        return scan(lambda state, row: (state + row, row * 2), torch.zeros(3), x)

    with pytest.raises(FunctionalizationError, match=r"scan is given writes to its parameter"):
        functionalize_bodies(writing(captured(model, torch.randn(4, 3))))

    def loop(x: Tensor) -> Any:
        return while_loop(lambda x: x.sum() < 3, lambda x: (x + 1,), (x,))

    with pytest.raises(FunctionalizationError, match="let it write to a clone"):
        functionalize_bodies(writing_last(captured(loop, torch.zeros(3))))


def writing_last(program: torch.export.ExportedProgram) -> torch.export.ExportedProgram:
    _, body = every_body(program.graph_module)
    node = next(node for node in body.graph.nodes if node.target == aten.add.Tensor)
    node.target = aten.add_.Tensor
    node.meta["val"] = node.args[0].meta["val"]
    return program


# --- wrappers ------------------------------------------------------------------------------------


def wrapped(target: Any, arguments: Callable[[Any, Any], tuple[Any, ...]], **kwargs: Any) -> Any:
    """A captured cond's true branch as the body of a wrapper, in the cond's place."""

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
