"""IR passes: what they remove, that results are the same, that they are linear."""

from __future__ import annotations

from typing import Any

import onnx_ir as ir
import pytest
import torch

import onnx_aot
from onnx_aot.ir_passes import IR_PASSES, run_passes
from onnx_aot.ir_passes.eliminate_common_subexpressions import eliminate_common_subexpressions
from onnx_aot.ir_passes.remove_unused import remove_unused
from onnx_aot.ir_passes.share_initializers import share_initializers

FLOAT = ir.TensorType(ir.DataType.FLOAT)


def value(name: str) -> ir.Value:
    return ir.Value(name=name, type=FLOAT, shape=ir.Shape([2]))


def node(op_type: str, inputs: list[Any], name: str, **attributes: Any) -> ir.Node:
    return ir.node(
        op_type, inputs, attributes=attributes, outputs=[value(name)], name=f"node_{name}"
    )


def model(inputs: list[ir.Value], nodes: list[ir.Node], outputs: list[ir.Value]) -> ir.Model:
    graph = ir.Graph(inputs, outputs, nodes=nodes, opset_imports={"": 20}, name="g")
    return ir.Model(graph, ir_version=10)


def names(m: ir.Model) -> list[str | None]:
    return [n.outputs[0].name for n in m.graph]


def test_remove_unused() -> None:
    x = value("x")
    a = node("Relu", [x], "a")
    b = node("Neg", [a.outputs[0]], "b")
    c = node("Abs", [b.outputs[0]], "c")
    kept = node("Exp", [a.outputs[0]], "kept")
    m = model([x], [a, b, c, kept], [kept.outputs[0]])
    weight = ir.Value(name="w", const_value=ir.tensor([1.0]))
    m.graph.initializers.add(weight)
    assert remove_unused(m) == 2
    assert names(m) == ["a", "kept"]
    assert not m.graph.initializers
    assert remove_unused(m) == 0


def test_common_subexpressions() -> None:
    x, y = value("x"), value("y")
    a = node("Add", [x, y], "a")
    b = node("Add", [x, y], "b")
    swapped = node("Add", [y, x], "swapped")
    left = node("Relu", [a.outputs[0]], "left")
    right = node("Relu", [b.outputs[0]], "right")
    out = node("Sum", [left.outputs[0], right.outputs[0], swapped.outputs[0]], "out")
    m = model([x, y], [a, b, swapped, left, right, out], [out.outputs[0]])
    assert eliminate_common_subexpressions(m) == 2
    assert names(m) == ["a", "swapped", "left", "out"]
    assert [v.name for v in out.inputs] == ["left", "left", "swapped"]


@pytest.mark.parametrize(
    "op_type", ["RandomNormalLike", "RandomUniformLike", "Bernoulli", "Dropout"]
)
def test_random_nodes_are_not_merged(op_type: str) -> None:
    x = value("x")
    a, b = node(op_type, [x], "a"), node(op_type, [x], "b")
    out = node("Add", [a.outputs[0], b.outputs[0]], "out")
    m = model([x], [a, b, out], [out.outputs[0]])
    assert eliminate_common_subexpressions(m) == 0


def test_attributes_and_graph_outputs_are_not_merged() -> None:
    x = value("x")
    a, b = node("Softmax", [x], "a", axis=0), node("Softmax", [x], "b", axis=1)
    c = node("Softmax", [x], "c", axis=0)  # equal to a, but an output of the graph
    m = model([x], [a, b, c], [a.outputs[0], b.outputs[0], c.outputs[0]])
    assert eliminate_common_subexpressions(m) == 0


def test_initializers_that_share_memory_are_one() -> None:
    class Tied(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.embedding = torch.nn.Embedding(10, 4)
            self.head = torch.nn.Linear(4, 10, bias=False)
            self.head.weight = self.embedding.weight
            self.register_buffer("same_numbers", self.embedding.weight.detach().clone())

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.head(self.embedding(x)) + self.same_numbers.sum()

    module = Tied()
    x = torch.arange(5)
    program = onnx_aot.export(module, (x,))
    kept, same_numbers = sorted(program.model.graph.initializers)
    assert kept in ("embedding.weight", "head.weight")
    assert same_numbers == "same_numbers"
    torch.testing.assert_close(program(x)[0], module(x))
    assert share_initializers(program.model) == 0
    other = Tied()
    program.apply_weights(other.state_dict())  # takes both names
    torch.testing.assert_close(program(x)[0], other(x))
    program.apply_weights({"embedding.weight": module.head.weight})
    torch.testing.assert_close(
        program.model.graph.initializers[kept].const_value.raw, module.head.weight.data
    )


def test_parts_of_one_storage_are_different_weights() -> None:
    class Halves(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            whole = torch.randn(8)
            self.register_buffer("first", whole[:4])
            self.register_buffer("second", whole[4:])
            self.register_buffer("shaped", whole[:4].view(2, 2))

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return x * self.first + self.second + self.shaped.sum()

    module = Halves()
    program = onnx_aot.export(module, (torch.ones(4),))
    assert len(program.model.graph.initializers) == 3
    torch.testing.assert_close(program(torch.ones(4))[0], module(torch.ones(4)))


def _chain(length: int) -> ir.Model:
    """Every node twice, so that each pass has something to do everywhere."""
    x = value("x")
    nodes, last = [], x
    for i in range(length):
        a, b = node("Relu", [last], f"a{i}"), node("Relu", [last], f"b{i}")
        unused = node("Neg", [last], f"u{i}")
        total = node("Add", [a.outputs[0], b.outputs[0]], f"t{i}")
        nodes += [a, b, unused, total]
        last = total.outputs[0]
    return model([x], nodes, [last])


@pytest.mark.parametrize("ir_pass", IR_PASSES, ids=lambda p: p.__name__)
def test_work_is_linear_in_the_number_of_nodes(
    ir_pass: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Counts how often the outputs of a node are looked at: constant per node, at any length."""

    def visits(length: int) -> float:
        m = _chain(length)
        count = 0
        original = ir.Node.outputs.fget

        def outputs(self: ir.Node) -> Any:
            nonlocal count
            count += 1
            return original(self)

        with monkeypatch.context() as patched:
            patched.setattr(ir.Node, "outputs", property(outputs))
            ir_pass(m)
        return count / length

    assert visits(400) <= visits(50) * 1.05


def test_all_passes_together() -> None:
    m = _chain(10)
    run_passes(m)
    assert len(m.graph) == 20
