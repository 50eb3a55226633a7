"""Unused nodes and weights are removed."""

from __future__ import annotations

import onnx_ir as ir

from onnx_aot.ir_passes.remove_unused import remove_unused
from tests.ir_passes.graphs import model, names, node, value


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
