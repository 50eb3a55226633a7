"""A model is restored exactly, whatever a pass did to it before it failed."""

from __future__ import annotations

import onnx_ir as ir

from onnx_aot.ir_passes.snapshot import Snapshot
from tests.ir_passes.graphs import model, names, node, value


def test_nodes_names_and_interface_are_restored() -> None:
    x, y = value("x"), value("y")
    a = node("LeakyRelu", [x], "a", alpha=0.5)
    b = node("Add", [a.outputs[0], y], "b")
    m = model([x, y], [a, b], [b.outputs[0]])
    weight = ir.Value(name="w", const_value=ir.tensor([1.0]))
    m.graph.initializers.add(weight)
    before = ir.serde.serialize_model(m)
    snapshot = Snapshot(m)

    new = node("Neg", [y], "new")
    m.graph.insert_before(b, new)
    b.replace_input_with(0, new.outputs[0])
    m.graph.remove(a)
    b.attributes["axis"] = ir.AttrInt64("axis", 1)
    b.outputs[0].name = "renamed"
    m.graph.outputs[0] = new.outputs[0]
    m.graph.initializers.clear()
    m.graph.opset_imports["com.microsoft"] = 1

    snapshot.restore()
    assert ir.serde.serialize_model(m) == before
    assert names(m) == ["a", "b"]
    assert [n.op_type for n, _ in y.uses()] == ["Add"]


def test_bodies_and_functions_are_restored() -> None:
    x, condition = value("x"), value("condition")
    inner = node("Neg", [x], "inner")
    body = ir.Graph([], [inner.outputs[0]], nodes=[inner], name="body")
    choice = node("If", [condition], "choice", then_branch=body, else_branch=body)
    m = model([condition, x], [choice], [choice.outputs[0]])
    inside = node("Abs", [value("p")], "inside")
    graph = ir.Graph(list(inside.inputs), inside.outputs, nodes=[inside], opset_imports={"": 20})
    function = ir.Function("mine", "F", "", graph=graph, attributes=[])
    m.functions[function.identifier()] = function
    snapshot = Snapshot(m)

    added = node("Exp", [inner.outputs[0]], "added")
    body.append(added)
    body.outputs[0] = added.outputs[0]
    graph.outputs[0] = graph.inputs[0]
    graph.remove(inside)
    m.functions.clear()

    snapshot.restore()
    assert [n.op_type for n in body] == ["Neg"]
    assert body.outputs[0] is inner.outputs[0]
    assert list(m.functions.values()) == [function]
    assert [n.op_type for n in function] == ["Abs"]
    assert function.outputs[0] is inside.outputs[0]
