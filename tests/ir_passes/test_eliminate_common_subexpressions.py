"""Nodes that are equal in every run are merged."""

from __future__ import annotations

import pytest

from onnx_aot.ir_passes.eliminate_common_subexpressions import eliminate_common_subexpressions
from tests.ir_passes.graphs import model, names, node, value


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
    c = node("Softmax", [x], "c", axis=0)  # equal to a, but a graph output
    m = model([x], [a, b, c], [a.outputs[0], b.outputs[0], c.outputs[0]])
    assert eliminate_common_subexpressions(m) == 0
