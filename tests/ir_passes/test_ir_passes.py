"""All IR passes: their running time is linear, and they work together."""

from __future__ import annotations

from typing import Any

import onnx_ir as ir
import pytest

from onnx_aot.ir_passes import IR_PASSES, run_passes
from tests.ir_passes.graphs import model, node, value


def _chain(length: int) -> ir.Model:
    """Duplicates every node, so that each pass has work to do everywhere."""
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
    """Reads of a node's outputs: their number per node does not depend on the graph's length."""

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
