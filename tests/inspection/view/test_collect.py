"""Boxes, edges and their descriptions."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import onnx_ir as ir
import pytest
import torch
from torch import nn

import onnx_aot
from onnx_aot.inspection.view.collect import GraphData, collect
from onnx_aot.inspection.view.descriptions import formal_names
from onnx_aot.inspection.view.tree import MOST_CHILDREN, Item
from tests.inspection.view import models
from tests.inspection.view.models import ViewedComparison, ViewedValue


def _titles(item: Item, data: GraphData) -> Any:
    """Returns a tree as nested lists of titles, with the names of dissolved modules."""
    name = f"{item.title} ({item.subtitle})" if item.subtitle else item.title
    return [name, *(_titles(child, data) for child in item.children)] if item.children else name


def _named(data: GraphData, title: str) -> Item:
    (found,) = [item for item in data.items if item.title == title]
    return found


def _edges(data: GraphData) -> list[tuple[str, str, str]]:
    return [(e.source.title, e.target.title, data.values[e.value]["name"]) for e in data.edges]


def test_modules_are_groups_and_those_of_one_node_are_not() -> None:
    data = collect(models.net().model)
    block = ["Gemm (up)", "Sigmoid", "Gemm (down)", "Add"]
    assert _titles(data.items[0], data) == [
        "main_graph",
        "x",
        "Exp",
        ["first (Block)", *block],
        ["second (Block)", *block],
        "Tanh",
        "tanh",
    ]
    assert [item.number for item in data.items] == list(range(len(data.items)))
    assert all(data.items[child.parent] is item for item in data.items for child in item.children)


class Twice(nn.Module):
    """Calls one block twice, and once more on a value that does not depend on the results."""

    def __init__(self) -> None:
        super().__init__()
        self.block = models.Block()
        self.act = nn.ReLU()

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        once = self.act(self.block(x))
        return self.act(self.block(once) * 2 + self.act(x))


def test_a_module_that_is_called_twice_has_two_boxes() -> None:
    data = collect(onnx_aot.export(Twice(), (models.X,)).model)
    calls = [item for item in data.items if item.kind == "module" and item.number]
    counts = [(item.title, len(item.children)) for item in calls]
    assert counts == [("block", 4), ("act", 2), ("block", 4)]
    assert _loops(data) == []
    assert data.items[-2].subtitle == "act"  # in a box of its own with no other content


def _loops(data: GraphData) -> list[tuple[str, str]]:
    """Returns pairs of boxes in one group that each read a result of the other."""
    between = set()
    for edge in data.edges:
        there, here = (_lineage(data, item) for item in (edge.source, edge.target))
        level = next(i for i, (a, b) in enumerate(zip(there, here, strict=False)) if a is not b)
        between.add((there[level], here[level]))
    return [(a.title, b.title) for a, b in between if (b, a) in between]


def _lineage(data: GraphData, item: Item) -> list[Item]:
    found = [item]
    while found[0].number:
        found.insert(0, data.items[found[0].parent])
    return found


def test_edges_say_which_value_goes_where() -> None:
    data = collect(models.net().model)
    assert _edges(data)[:5] == [
        ("x", "Exp", "x"),
        ("Exp", "Gemm", "exp"),
        ("Gemm", "Sigmoid", "linear"),
        ("Sigmoid", "Gemm", "sigmoid"),
        ("Exp", "Add", "exp"),
    ]
    (value,) = [value for value in data.values if value["name"] == "linear"]
    assert (value["type"], value["shape"]) == ("float32", ["rows", 8])
    assert data.items[value["producer"]].title == "Gemm"


def test_nodes_have_attributes_names_of_inputs_and_metadata() -> None:
    data = collect(models.net().model)
    gemm = next(item for item in data.items if item.title == "Gemm")
    assert gemm.path == "first.up"
    assert gemm.details["attributes"]["transB"] == "1"
    assert [formal for formal, _ in gemm.details["inputs"]] == ["A", "B", "C"]
    assert "models.py" in gemm.details["metadata"]["pkg.torch.onnx.stack_trace"]
    assert gemm.details["family"] == "weights"


def test_bodies_are_groups_that_read_values_around_them() -> None:
    data = collect(models.branch().model)
    branch = _named(data, "If")
    assert sorted(child.title for child in branch.children) == ["else_branch", "then_branch"]
    assert all(child.kind == "body" for child in branch.children)
    assert ("Exp", "Add", "exp") in _edges(data)
    assert _named(data, "Sin").path == "cond"
    then = next(child for child in branch.children if child.title == "then_branch")
    assert [child.title for child in then.children][:2] == ["Add", "Sin"]


def test_calls_of_functions_are_opened_in_their_places() -> None:
    data = collect(models.net_of_functions().model)
    calls = [item for item in data.items if item.kind == "function"]
    assert [len(call.children) for call in calls] == [4, 4]
    assert [(call.title, call.subtitle) for call in calls] == [
        ("Block", "first"),
        ("Block", "second"),
    ]
    edges = [(e.source.number, e.target.number) for e in data.edges]
    adds = [item for item in data.items if item.title == "Add"]
    assert (_named(data, "Exp").number, adds[0].number) in edges
    assert (adds[1].number, _named(data, "Tanh").number) in edges
    weights = Counter(value["name"] for value in data.values if "weight" in value)
    assert max(weights.values()) == 1


def test_a_function_that_gives_back_what_it_takes() -> None:
    x = ir.val("x", ir.DataType.FLOAT, [3])
    formal = ir.val("formal")
    inner = ir.Graph([formal], [formal], nodes=[], opset_imports={"": 20})
    same = ir.Function("mine", "same", graph=inner, attributes=[])
    call = ir.node("same", [x], domain="mine", name="call")
    relu = ir.node("Relu", [call.outputs[0]])
    graph = ir.Graph(
        [x], [relu.outputs[0]], nodes=[call, relu], opset_imports={"": 20, "mine": 1}, name="g"
    )
    data = collect(ir.Model(graph, ir_version=10, functions=[same]))
    assert _edges(data)[0][:2] == ("x", "Relu")


def test_functions_that_call_others_twice_are_opened_up_to_a_limit(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("onnx_aot.inspection.view.collect.MOST_ITEMS", 50)
    functions = []
    for level in range(12):
        x = ir.val("x")
        inner: ir.Value = x
        nodes = []
        for _ in range(2):
            name, domain = (f"f{level - 1}", "mine") if level else ("Relu", "")
            nodes.append(ir.node(name, [inner], domain=domain))
            inner = nodes[-1].outputs[0]
        body = ir.Graph([x], [inner], nodes=nodes, opset_imports={"": 20, "mine": 1})
        functions.append(ir.Function("mine", f"f{level}", graph=body, attributes=[]))
    x = ir.val("x")
    call = ir.node("f11", [x], domain="mine")
    graph = ir.Graph([x], call.outputs, nodes=[call], opset_imports={"mine": 1}, name="g")
    data = collect(ir.Model(graph, ir_version=10, functions=functions))
    assert len(data.items) < 200
    assert any(item.title[0] == "f" and not item.children for item in data.items)


@pytest.mark.parametrize("length", [99, 101, 5000, 10_200])
def test_no_group_has_many_children(length: int) -> None:
    data = collect(models.chain(length).model)
    assert max(len(item.children) for item in data.items) <= MOST_CHILDREN
    assert sum(item.kind == "node" for item in data.items) == length
    assert len(data.edges) == length + 1
    parts = [item.title for item in data.items[0].children if item.kind == "part"]
    assert bool(parts) == (length + 2 > MOST_CHILDREN)
    if parts:
        assert parts[-1].endswith(f" to {length + 2}")


def test_models_of_other_programs_may_have_any_metadata() -> None:
    program = models.chain(3)
    for node, written in zip(program.model.graph, ["['", "{}", "[1, '']"], strict=True):
        node.metadata_props["pkg.torch.onnx.name_scopes"] = written
    data = collect(program.model)
    assert [item.title for item in data.items] == ["chain", "x", "Relu", "Relu", "Relu", "v2"]


def test_differences_go_up_to_the_groups_around_them() -> None:
    wrong = ViewedValue("linear", False, 0.5, float("inf"), "3 of 9 elements differ")
    rows = (
        ViewedValue("exp", True, 1e-7),
        wrong,
        ViewedValue("sigmoid", None),
        ViewedValue(None, True),
    )
    data = collect(models.net().model, comparison=ViewedComparison(rows, wrong))
    found = {item.title: item.difference for item in data.items}
    assert found["Exp"] == "within"
    assert found["first"] == "deviates"
    assert (found["second"], found["Sigmoid"]) == (None, None)
    assert data.items[0].difference == "deviates"
    assert data.first is not None
    assert data.first.path == "first.up"
    (value,) = [value for value in data.values if value["name"] == "linear"]
    assert value["difference"]["absolute"] == "0.5"
    assert value["difference"]["relative"] == "inf"
    assert value["difference"]["remark"] == "3 of 9 elements differ"
    assert (data.summary["deviating"], data.summary["compared"]) == (1, 2)


def test_what_follows_from_a_deviation_is_not_the_worst() -> None:
    inherits = ViewedValue("linear", False, origin="inherited")
    own, unknown = ViewedValue("linear_2", False, origin="own"), ViewedValue("tanh", False)
    data = collect(models.net().model, comparison=ViewedComparison((inherits, own, unknown), own))
    found = {item.title: item.difference for item in data.items if item.difference}
    assert found["first"] == found["Tanh"] == "follows"
    assert found["second"] == found["main_graph"] == "deviates"


def test_what_was_not_examined_deviates_where_nothing_is_to_blame() -> None:
    rows = (ViewedValue("linear", False, origin="inherited"), ViewedValue("tanh", False))
    data = collect(models.net().model, comparison=ViewedComparison(rows, rows[0]))
    found = {item.title: item.difference for item in data.items if item.difference}
    assert (found["first"], found["Tanh"]) == ("follows", "deviates")


def test_names_in_functions_are_not_those_of_the_model() -> None:
    model = models.net_of_functions().model
    (function,) = model.functions.values()
    inner = str(next(iter(function)).outputs[0].name)
    data = collect(model, comparison=ViewedComparison((ViewedValue(inner, False),)))
    inside = [item for call in data.items if call.kind == "function" for item in call.children]
    assert {item.difference for item in inside} == {None}


def test_constants_are_shown_where_they_are_used() -> None:
    constant = ir.node("Constant", [], attributes={"value": ir.tensor([1.5, 2.5], name="c")})
    x = ir.val("x", ir.DataType.FLOAT, [3])
    add = ir.node("Add", [x, constant.outputs[0]])
    graph = ir.Graph([x], add.outputs, nodes=[constant, add], opset_imports={"": 20}, name="g")
    data = collect(ir.Model(graph, ir_version=10))
    assert [item.title for item in data.items[:3]] == ["g", "x", "Add"]
    number = _named(data, "Add").details["inputs"][1][1]
    assert data.values[number]["weight"]["text"] == "[1.5, 2.5]"


def test_constants_without_a_tensor_are_nodes() -> None:
    attribute = ir.RefAttr("value", "of_the_call", ir.AttributeType.TENSOR)
    constant = ir.node("Constant", [], attributes={})
    constant.attributes["value"] = attribute
    formal = ir.val("x")
    add = ir.node("Add", [formal, constant.outputs[0]])
    inner = ir.Graph([formal], add.outputs, nodes=[constant, add], opset_imports={"": 20})
    parameter = ir.Attr("of_the_call", ir.AttributeType.TENSOR, None)
    function = ir.Function("mine", "plus", graph=inner, attributes=[parameter])
    x = ir.val("x", ir.DataType.FLOAT, [3])
    call = ir.node("plus", [x], domain="mine", attributes={"of_the_call": ir.tensor([1.0])})
    graph = ir.Graph([x], call.outputs, nodes=[call], opset_imports={"mine": 1}, name="g")
    data = collect(ir.Model(graph, ir_version=10, functions=[function]))
    assert ("Constant", "Add") in [edge[:2] for edge in _edges(data)]
    assert _named(data, "Constant").details["attributes"] == {"value": "of the call: of_the_call"}


def test_absent_weights_are_said_to_be() -> None:
    with onnx_aot.enable_fake_mode():
        module = nn.Linear(4, 8)
    program = onnx_aot.export(module, (torch.rand(2, 4),))
    data = collect(program.model, absent=lambda tensor: True)
    weights = [value["weight"] for value in data.values if "weight" in value]
    assert weights
    assert all(weight["absent"] and "statistics" not in weight for weight in weights)


def test_weights_that_are_listed_as_inputs_too(tmp_path: Path) -> None:
    models.net().save(tmp_path / "net.onnx", keep_initializers_as_inputs=True)
    data = collect(onnx_aot.ONNXProgram.load(tmp_path / "net.onnx").model)
    assert [item.title for item in data.items if item.kind == "input"] == ["x"]
    gemm = next(item for item in data.items if item.title == "Gemm")
    weights = [data.values[number] for _, number in gemm.details["inputs"]]
    assert ["weight" in weight for weight in weights] == [False, True, True]


def test_many_inputs_are_a_group() -> None:
    program = onnx_aot.export(lambda *xs: sum(xs), tuple(torch.rand(2) for _ in range(12)))
    data = collect(program.model)
    assert data.items[1].title == "12 inputs"
    assert len(data.items[1].children) == 12


def test_a_version_that_no_operator_set_has() -> None:
    relu = ir.node("Relu", [ir.Value(name="x")])
    assert formal_names(relu, 20) == (["X"], ["Y"])
    for version in (-(2**63), 2**40):
        assert formal_names(relu, version) == (["0"], ["0"])
