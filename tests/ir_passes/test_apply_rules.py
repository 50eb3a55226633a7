"""The driver of rules: the nodes that it visits, its rollback, and the option ``optimize``."""

from __future__ import annotations

import ast
from collections.abc import Callable
from typing import Any

import onnx_ir as ir
import pytest
import torch
from torch import nn

import onnx_aot
from onnx_aot import ir_passes
from onnx_aot.errors import InvalidOptionError, OnnxExporterWarning
from onnx_aot.ir_passes import Outcome, run_passes
from onnx_aot.ir_passes.apply_rules import apply_rules
from onnx_aot.ir_passes.rewriter import Rewriter, Rule
from onnx_aot.metadata.keys import APART, FUSED, NAMESPACE
from tests.ir_passes.graphs import model, names, node, value


def apply(m: ir.Model, *rules: Rule) -> Outcome:
    outcome = Outcome()
    assert apply_rules(m, rules, outcome) is None
    return outcome


def _merge_relu(n: ir.Node, rewriter: Rewriter) -> bool:
    inner = rewriter.producer(n.inputs[0], "Relu")
    if inner is None:
        return False
    rewriter.replace(n.outputs[0], rewriter.emit("Relu", [inner.inputs[0]], like=inner))
    return True


MERGE = Rule("merge_relu", ("Relu",), _merge_relu, exact=True)


def _chain(length: int, op_type: str = "Relu") -> ir.Model:
    x = value("x")
    nodes: list[ir.Node] = []
    last = x
    for i in range(length):
        nodes.append(node(op_type, [last], f"r{i}"))
        last = nodes[-1].outputs[0]
    return model([x], nodes, [last])


def test_a_chain_becomes_one_node_with_the_name_of_the_output() -> None:
    m = _chain(5)
    first = m.graph[0]
    first.metadata_props[NAMESPACE] = "first"
    outcome = apply(m, MERGE)
    assert outcome.counts == {"merge_relu": 4}
    (left,) = m.graph
    assert left.outputs[0].name == "r4"
    assert left.outputs[0].is_graph_output()
    assert left.outputs[0].shape == ir.Shape([2])
    assert left.metadata_props[NAMESPACE] == "first"
    fused = [f"node_r{i}" for i in range(5)]
    assert ast.literal_eval(left.metadata_props[FUSED]) == fused
    assert left.name == "node_r4"


def test_what_is_read_elsewhere_stays() -> None:
    m = _chain(3)
    m.graph.outputs.append(m.graph[0].outputs[0])
    apply(m, MERGE)
    assert names(m) == ["r0", "r2"]
    assert [v.name for v in m.graph.outputs] == ["r2", "r0"]


@pytest.mark.parametrize("build", [_chain, lambda n: _chain(n, "Neg")])
def test_visits_are_linear(build: Callable[[int], ir.Model]) -> None:
    def to_relu(n: ir.Node, rewriter: Rewriter) -> bool:
        rewriter.replace(n.outputs[0], rewriter.emit("Relu", n.inputs, like=n))
        return True

    for length in (50, 800):
        outcome = apply(build(length), Rule("to_relu", ("Neg",), to_relu, exact=True), MERGE)
        assert outcome.visits <= 5 * length
        assert not outcome.undone


def test_every_rule_visits_a_wide_graph_a_constant_number_of_times() -> None:
    """A single value has very many readers, and each of them changes."""
    for width in (50, 800):
        x = value("x")
        source = node("Relu", [x], "source")
        readers = [node("Relu", source.outputs, f"r{i}") for i in range(width)]
        total = node("Sum", [r.outputs[0] for r in readers], "total")
        m = model([x], [source, *readers, total], [total.outputs[0]])
        assert apply(m, MERGE).visits <= 5 * width


def test_rules_that_undo_each_other_are_stopped() -> None:
    def becomes(op_type: str) -> Callable[[ir.Node, Rewriter], bool]:
        def change(n: ir.Node, rewriter: Rewriter) -> bool:
            rewriter.replace(n.outputs[0], rewriter.emit(op_type, n.inputs, like=n))
            return True

        return change

    m = _chain(4)
    rules = (
        Rule("there", ("Relu",), becomes("Neg"), exact=True),
        Rule("back", ("Neg",), becomes("Relu"), exact=True),
    )
    outcome = apply(m, *rules)
    assert "repeat forever" in str(outcome.undone)
    assert len(m.graph) == 4


def test_a_rule_that_raises_changes_nothing_and_others_go_on() -> None:
    def fails(n: ir.Node, rewriter: Rewriter) -> bool:
        rewriter.replace(n.outputs[0], rewriter.emit("Neg", [n.inputs[0]], like=n))
        rewriter.initializer(torch.ones(3))
        if n.name == "node_r2":
            raise ValueError("on purpose")
        return False

    m = _chain(4)
    outcome = apply(m, Rule("fails", ("Relu",), fails, exact=True), MERGE)
    assert outcome.undone == {"fails": "ValueError: on purpose"}
    assert outcome.counts == {"merge_relu": 3}
    assert [n.op_type for n in m.graph] == ["Relu"]
    assert not m.graph.initializers


def test_calls_of_modules_that_become_functions_stay_apart() -> None:
    m = _chain(2)
    m.graph[1].meta[APART] = ("block.1",)
    assert apply(m, MERGE).counts == {}
    assert names(m) == ["r0", "r1"]


def test_an_output_that_is_another_output_or_input_stays() -> None:
    def skip(n: ir.Node, rewriter: Rewriter) -> bool:
        assert n.inputs[0] is not None
        rewriter.replace(n.outputs[0], n.inputs[0])
        return True

    rule = Rule("skip", ("Identity",), skip, exact=True)
    x = value("x")
    a = node("Relu", [x], "a")
    b, c = node("Identity", a.outputs, "b"), node("Identity", [x], "c")
    m = model([x], [a, b, c], [a.outputs[0], b.outputs[0], c.outputs[0]])
    assert apply(m, rule).counts == {}
    m.graph.outputs.remove(a.outputs[0])
    assert apply(m, rule).counts == {"skip": 1}
    assert [v.name for v in m.graph.outputs] == ["b", "c"]
    assert [n.op_type for n in m.graph] == ["Relu", "Identity"]


def test_subgraphs_and_functions_are_visited() -> None:
    """Each has its own opset, and constants of functions become nodes."""

    def to_add(n: ir.Node, rewriter: Rewriter) -> bool:
        zero = rewriter.initializer(torch.zeros(()))
        rewriter.replace(n.outputs[0], rewriter.emit("Add", [n.inputs[0], zero], like=n))
        return True

    rule = Rule("to_add", ("Identity",), to_add, exact=True)
    x, condition = value("x"), ir.Value(name="condition", type=ir.TensorType(ir.DataType.BOOL))
    inner = [node("Identity", [x], f"inner{i}") for i in range(2)]
    branches = [ir.Graph([], n.outputs, nodes=[n], name=n.name) for n in inner]
    choice = node("If", [condition], "y", then_branch=branches[0], else_branch=branches[1])
    y = value("of_function")
    body = node("Identity", [y], "result")
    graph = ir.Graph([y], body.outputs, nodes=[body], opset_imports={"": 20}, name="f")
    m = model([x, condition], [choice], [choice.outputs[0]])
    m.functions[("local", "f", "")] = ir.Function("local", "f", graph=graph, attributes=[])
    assert apply(m, rule).counts == {"to_add": 3}
    assert [branch[0].op_type for branch in branches] == ["Add", "Add"]
    assert branches[0][0].inputs[1] is branches[1][0].inputs[1]
    assert list(m.graph.initializers) == ["const_f32_0.0"]
    assert [n.op_type for n in graph] == ["Constant", "Add"]


def test_functions_with_attributes_stay() -> None:
    """The constants differ only in the function attribute that they refer to."""
    text = """<ir_version: 9, opset_import: ["": 20, "local": 1]>
    g (float[2] x) => (float[2] y) {y = local.f <a = 2.0, b = 3.0> (x)}
    <domain: "local", opset_import: ["": 20]>
    f <a, b> (x) => (y) {
        c = Constant<value_float: float = @a>()
        d = Constant<value_float: float = @b>()
        z = Mul(x, c)
        i = Identity(z)
        y = Mul(i, d)
    }"""
    m = ir.from_onnx_text(text)
    outcome = run_passes(m)
    assert outcome.counts == {}
    (function,) = m.functions.values()
    assert len(function) == 5


def test_rules_of_later_opsets_are_left_out() -> None:
    rule = Rule("merge_relu", ("Relu",), _merge_relu, exact=True, since=21)
    assert apply(_chain(3), rule).counts == {}


def test_contents_of_constants() -> None:
    m = _chain(1)
    rewriter = Rewriter(m)
    held = rewriter.constant(ir.Value(name="c", const_value=ir.tensor([1.0, 2.0])))
    assert held is not None
    assert held.tolist() == [1.0, 2.0]
    long = ir.Value(name="c", const_value=ir.tensor(torch.zeros(5000)))
    assert rewriter.constant(long) is None
    assert rewriter.constant(long, limit=None) is not None
    meta = ir.tensor_adapters.TorchTensor(torch.zeros(2, device="meta"))
    assert rewriter.constant(ir.Value(name="c", const_value=meta)) is None
    file = ir.ExternalTensor("none", 0, 8, ir.DataType.FLOAT, shape=ir.Shape([2]), name="c")
    assert rewriter.constant(ir.Value(name="c", const_value=file)) is None
    assert rewriter.constant(m.graph.inputs[0]) is None


# --- the option ----------------------------------------------------------------------------------


class Twice(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.exp(x) + torch.exp(x)


X = torch.randn(2, 3)


@pytest.mark.parametrize(
    ("optimize", "count"),
    [(True, 2), ("safe", 2), (False, 3), ({"eliminate_common_subexpressions"}, 2), (set(), 3)],
)
def test_what_is_asked_for_runs(optimize: Any, count: int) -> None:
    program = onnx_aot.export(Twice(), (X,), optimize=optimize)
    assert len(program.model.graph) == count


@pytest.mark.parametrize(
    ("optimize", "says"),
    [
        ("all", r"expected True, .* a set of names: remove_unused"),
        ({"remove_unusd"}, "did you mean 'remove_unused'"),
        (3, "optimize is 3"),
    ],
)
def test_other_values_are_refused(optimize: Any, says: str) -> None:
    with pytest.raises(InvalidOptionError, match=says):
        onnx_aot.export(Twice(), (X,), optimize=optimize)
    program = onnx_aot.export(Twice(), (X,), optimize=False)
    with pytest.raises(InvalidOptionError, match=says):
        program.optimize(optimize)
    assert program.optimize({"eliminate_common_subexpressions"}) == {
        "eliminate_common_subexpressions": 1
    }


def test_the_report_counts(tmp_path: Any) -> None:
    onnx_aot.export(Twice(), (X,), report=True, artifacts_dir=tmp_path)
    (path,) = tmp_path.iterdir()
    assert "| `eliminate_common_subexpressions` | 1 " in path.read_text()


def test_a_pass_that_raises_is_undone(monkeypatch: pytest.MonkeyPatch, tmp_path: Any) -> None:
    def breaks_things(m: ir.Model) -> int:
        last = m.graph[-1]
        other = ir.node("Neg", [last.inputs[0]], name="other")
        m.graph.append(other)
        m.graph.outputs[0] = other.outputs[0]
        last.outputs[0].name, other.outputs[0].name = "lost", last.outputs[0].name
        last.replace_input_with(0, None)
        m.graph.remove(m.graph[0])
        m.graph.initializers.clear()
        raise KeyError("on purpose")

    monkeypatch.setattr(ir_passes, "IR_PASSES", (*ir_passes.IR_PASSES[:2], breaks_things))
    with pytest.warns(OnnxExporterWarning, match="breaks_things failed and was undone: KeyError"):
        program = onnx_aot.export(
            nn.Linear(3, 2), (X,), report=True, artifacts_dir=tmp_path, optimize=True
        )
    torch.testing.assert_close(program(X)[0], program.exported_program.module()(X))
    assert "breaks_things failed" in next(tmp_path.iterdir()).read_text()
    unchanged = onnx_aot.export(nn.Linear(3, 2), (X,), optimize=False)
    assert names(program.model) == names(unchanged.model)


def test_a_rule_whose_change_fails_is_undone(monkeypatch: pytest.MonkeyPatch) -> None:
    def reads_itself(n: ir.Node, rewriter: Rewriter) -> bool:
        new = rewriter.emit("Neg", [n.inputs[0]], like=n)
        rewriter.replace(n.outputs[0], new)
        rewriter._change.replaced.append((new, None))  # type: ignore[arg-type]
        return True

    rule = Rule("reads_itself", ("Exp",), reads_itself, exact=True)
    monkeypatch.setattr(ir_passes, "RULES", (rule, *ir_passes.RULES))
    program = onnx_aot.export(Twice(), (X,), optimize=False)
    outcome = run_passes(program.model)
    assert list(outcome.undone) == ["reads_itself"]
    assert [n.op_type for n in program.model.graph] == ["Exp", "Add"]
    torch.testing.assert_close(program(X)[0], Twice()(X))
