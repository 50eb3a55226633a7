"""Bodies of higher-order operators in the model: names, metadata, checks, functions."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import onnx
import onnx_ir as ir
import pytest
import torch
from torch._higher_order_ops import scan, while_loop

import onnx_aot
from onnx_aot.errors import UnsupportedOperatorError
from onnx_aot.graph.traversal import subgraphs
from tests.tolerances import assert_close
from tests.translate.bodies import Model, kinds

Tensor = torch.Tensor
NAMED = (({0: "batch"},),)


def export(function: Any, *inputs: Any, shapes: Any = NAMED, **options: Any) -> Any:
    return onnx_aot.export(Model(function).eval(), inputs, dynamic_shapes=shapes, **options)


def inner_nodes(program: Any) -> list[ir.Node]:
    def inside(nodes: Any) -> Iterator[ir.Node]:
        for node in nodes:
            for graph in subgraphs(node):
                yield from graph
                yield from inside(graph)

    return list(inside(program.model.graph))


def doubling(m: Model, x: Tensor) -> Any:
    def branch(x: Tensor) -> Tensor:
        return torch.cond(x.mean() > 1, lambda x: m.linear(x), lambda x: x.sin(), (x,))  # noqa: PLW0108

    return while_loop(
        lambda i, y: i < 3,
        lambda i, y: (i + 1, branch(y)),
        (torch.zeros((), dtype=torch.int64), x),
    )[1]


def test_nodes_of_bodies_have_names_and_metadata_of_their_own() -> None:
    program = export(doubling, torch.ones(4, 3))
    nodes = {str(node.name): node for node in inner_nodes(program)}
    (sine,) = (node for node in nodes.values() if node.op_type == "Sin")
    namespace = sine.metadata_props["namespace"]
    scopes = ["while_loop: while_loop", "cond: cond", "sin: aten.sin.default"]
    assert namespace.split("/")[-3:] == scopes, namespace
    assert namespace.startswith(": tests.translate.bodies.Model")
    linear = next(n for n in nodes.values() if n.op_type in ("Gemm", "MatMul"))
    assert "/linear: torch.nn.modules.linear.Linear/" in linear.metadata_props["namespace"]
    trace = sine.metadata_props["pkg.torch.onnx.stack_trace"]
    assert "test_subgraph_bodies.py" in trace
    assert "x.sin()" in trace
    assert sine.name == "node_sin"
    values = [v for node in (*program.model.graph, *nodes.values()) for v in node.outputs]
    names = [str(value.name) for value in values]
    assert len(set(names)) == len(names)
    for value in values:
        assert value.dtype is not None, value
        assert value.shape is not None, value
    for node in (*program.model.graph, *nodes.values()):
        assert any(v.uses() or v.is_graph_output() for v in node.outputs), node
    assert {str(s) for s in sine.outputs[0].shape or ()} == {"batch", "3"}


def test_bodies_read_weights_and_values_around_them() -> None:
    program = export(doubling, torch.ones(4, 3))
    assert set(program.model.graph.initializers) >= {"linear.weight", "linear.bias"}
    assert not program.model.functions
    loop = next(node for node in program.model.graph if node.op_type == "Loop")
    assert len(loop.inputs) == 4  # carried values only


def sizes_of_steps(m: Model, x: Tensor) -> Any:
    return while_loop(
        lambda i, y: torch.arange(i).sum() < 9,
        lambda i, y: (i + 1, y + torch.arange(i).sum()),
        (0, x),
    )[1]


def test_sizes_of_their_own_have_names_of_their_own() -> None:
    """A symbol of the capture differs in size between the condition before and the loop."""
    program = export(sizes_of_steps, torch.ones(4, 3))
    ranges = [n for n in (*program.model.graph, *inner_nodes(program)) if n.op_type == "Range"]
    names = [str(value.shape[0]) for node in ranges for value in node.outputs if value.shape]
    assert len(names) == 2  # the first condition has a constant size
    assert len(set(names)) == 2


def test_one_error_lists_what_is_missing_in_all_bodies() -> None:
    class Missing(torch.nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            def inner(x: Tensor) -> Tensor:
                y = torch.ops.onnx_aot_bodies.first(x)
                return torch.cond(
                    x.sum() > 1, torch.ops.onnx_aot_bodies.second, lambda y: y + 1, (y,)
                )

            return torch.cond(x.sum() > 0, inner, lambda x: x + 1, (x,))

    library = torch.library.Library("onnx_aot_bodies", "FRAGMENT")
    for name in ("first", "second"):
        library.define(f"{name}(Tensor x) -> Tensor")
        # NumPy reads the tensor's memory, so this cannot be traced.
        library.impl(name, lambda x: torch.from_numpy(x.numpy()), "CompositeExplicitAutograd")
        torch.library.register_fake(f"onnx_aot_bodies::{name}", torch.empty_like, lib=library)
    with pytest.raises(UnsupportedOperatorError) as caught:
        onnx_aot.export(Missing(), (torch.ones(3),))
    message = str(caught.value)
    assert "onnx_aot_bodies.first.default" in message
    assert "onnx_aot_bodies.second.default" in message
    assert "test_subgraph_bodies.py" in message
    table = {
        torch.ops.onnx_aot_bodies.first.default: lambda op, x: op.Neg(x),
        torch.ops.onnx_aot_bodies.second.default: lambda op, x: op.Abs(x),
    }
    program = onnx_aot.export(Missing(), (torch.ones(3),), custom_translation_table=table)
    torch.testing.assert_close(program(torch.ones(3))[0], torch.ones(3))


def test_a_custom_operator_in_a_branch_in_a_loop_in_a_scanned_cell() -> None:
    library = torch.library.Library("onnx_aot_cells", "FRAGMENT")
    library.define("squash(Tensor x) -> Tensor")
    library.impl("squash", lambda x: x / (1 + x.abs()), "CompositeExplicitAutograd")
    torch.library.register_fake("onnx_aot_cells::squash", torch.empty_like, lib=library)
    squash = torch.ops.onnx_aot_cells.squash

    class Cell(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            torch.manual_seed(0)
            self.inner = torch.nn.Linear(6, 3)

        def refined(self, state: Tensor) -> Tensor:
            def step(i: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
                return i + 1, torch.cond(y.sum() > 0, lambda y: squash(y), lambda y: y * 0.5, (y,))  # noqa: PLW0108

            start = torch.zeros((), dtype=torch.int64)
            return while_loop(lambda i, y: (i < 3) & (y.abs().amax() > 0.1), step, (start, state))[
                1
            ]

        def forward(self, x: Tensor) -> Any:
            def step(state: Tensor, row: Tensor) -> tuple[Tensor, Tensor]:
                after = self.refined(torch.tanh(self.inner(torch.cat([state, row]))))
                return after, after.clone()

            return scan(step, torch.zeros(3), x)

    model = Cell().eval()
    program = onnx_aot.export(
        model,
        (torch.randn(4, 3),),
        dynamic_shapes=({0: "time"},),
        custom_translation_table={
            squash.default: lambda op, x: op.Div(x, op.Add(op.Abs(x), 1.0)),
        },
    )
    onnx.checker.check_model(program.model_proto, full_check=True)
    assert {"Scan", "Loop", "If"} <= set(kinds(program))
    for steps in (1, 4, 11):
        x = torch.randn(steps, 3)
        with torch.no_grad():
            expected = model(x)
        for actual, wanted in zip(program(x), expected, strict=True):
            assert_close(actual, wanted)


def test_a_translation_of_ones_own_gets_functions() -> None:
    seen = []

    def both(op: Any, pred: Any, true_fn: Any, false_fn: Any, operands: Any) -> Any:
        seen.append(len(operands))
        pairs = zip(true_fn(*operands), false_fn(*operands), strict=True)
        return [op.Where(pred, one, other) for one, other in pairs]

    def model(m: Model, x: Tensor) -> Any:
        return torch.cond(x.sum() > 0, lambda x: m.linear(x), lambda x: x.sin(), (x,))  # noqa: PLW0108

    program = export(
        model,
        torch.ones(4, 3),
        custom_translation_table={torch.ops.higher_order.cond: both},
    )
    assert seen == [3]
    assert "If" not in kinds(program)
    assert "Where" in kinds(program)
    for x in (torch.ones(2, 3), -torch.ones(2, 3)):
        assert_close(program(x)[0], Model(model)(x))


def checked(m: Model, x: Tensor) -> Any:
    def counted(x: Tensor) -> Tensor:
        count = x.sum().to(torch.int64).item()
        torch._check(count < 5)
        return torch.arange(count).sum() + x

    return torch.cond(x.sum() > 0, counted, lambda x: x * 1.0, (x,))


def test_assertions_in_a_body_are_checked_when_it_runs() -> None:
    program = export(checked, torch.ones(1, 3), runtime_checks=True)
    torch.testing.assert_close(program(torch.ones(1, 3))[0], torch.ones(1, 3) + 3)
    assert program(-9 * torch.ones(1, 3))[0].sum() == -27
    with pytest.raises(Exception, match="check: u0 <= 4"):
        program(9 * torch.ones(1, 3))


def test_training_in_a_body_is_said() -> None:
    def model(m: Model, x: Tensor) -> Any:
        dropped = torch.nn.functional.dropout
        return torch.cond(x.sum() > 0, lambda x: dropped(x, 0.5), lambda x: x * 1, (x,))

    with pytest.warns(match="captured in training mode: aten.dropout"):
        export(model, torch.ones(4, 3))


# --- regions -------------------------------------------------------------------------------------


@torch.compiler.nested_compile_region
def region(x: Tensor, weight: Tensor) -> Tensor:
    return torch.nn.functional.elu(x @ weight.T) * x.shape[0] + torch.tensor([0.5, 1.0, 2.0])


@torch.compiler.nested_compile_region
def another(x: Tensor) -> Tensor:
    return x.cos()


def regions(m: Model, x: Tensor) -> Any:
    y = region(region(x, m.linear.weight), m.linear.weight)
    return another(y) + region(torch.cat([x, x]), m.linear.weight).sum() + another(y * 2)


class Block(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.linear = torch.nn.Linear(3, 3)

    def forward(self, x: Tensor) -> Tensor:
        return torch.cond(x.sum() > 0, lambda x: self.linear(x) + 1, lambda x: x.cos(), (x,))


def test_modules_with_branches_are_functions_too() -> None:
    """Outer values that a body reads, including weights, are passed to the function."""
    model = torch.nn.Sequential(Block(), Block()).eval()
    program = onnx_aot.export(
        model,
        (torch.randn(4, 3),),
        dynamic_shapes=({0: "n"},),
        export_modules_as_functions={Block},
    )
    onnx.checker.check_model(program.model_proto, full_check=True)
    assert len(program.model.functions) == 1
    for x in (torch.randn(2, 3), -torch.ones(5, 3)):
        with torch.no_grad():
            expected = model(x)
        assert_close(program(x)[0], expected)


def calls(program: Any) -> list[str]:
    return [node.op_type for node in program.model.graph if node.domain == "pkg.onnx_aot"]


@pytest.mark.parametrize("opset", [17, 20, 25])
def test_equal_regions_are_one_function(opset: int) -> None:
    program = export(regions, torch.randn(4, 3), opset_version=opset)
    onnx.checker.check_model(program.model_proto, full_check=True)
    assert len(program.model.functions) == 2
    assert calls(program) == ["region", "region", "region_1", "region", "region_1"]
    for rows in (1, 2, 9):
        x = torch.randn(rows, 3)
        expected = Model(regions)(x)
        assert_close(program(x)[0], expected)


def test_functions_are_made_to_run_too() -> None:
    """ONNX Runtime has no Elu for double; its replacement reads constants of the function."""

    def model(m: Model, x: Tensor) -> Any:
        weight = m.linear.weight.double()
        return region(region(x, weight), weight)

    x = torch.randn(4, 3, dtype=torch.float64)
    program = export(model, x)
    onnx.checker.check_model(program.model_proto, full_check=True)
    assert len(program.model.functions) == 1
    assert "Elu" not in kinds(program)
    assert_close(program(x)[0], Model(model)(x))


def test_regions_write() -> None:
    @torch.compiler.nested_compile_region
    def count(x: Tensor, total: Tensor) -> Tensor:
        total.add_(x.sum(0))
        return x * total

    def model(m: Model, x: Tensor) -> Any:
        return count(count(x, m.total), m.total)

    x = torch.randn(4, 3)
    with pytest.warns(match="total_out"):
        program = export(model, x)
    eager = Model(model)
    with torch.no_grad():
        expected = eager(x)
    actual = program(x)
    assert_close(actual[0], expected)
    assert_close(actual[1], eager.total)
    assert len(program.model.functions) == 1
