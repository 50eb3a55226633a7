"""All IR passes: their running time is linear, and they work together."""

from __future__ import annotations

from typing import Any

import onnx_ir as ir
import pytest
import torch
from torch import Tensor, nn

import onnx_aot
from onnx_aot.ir_passes import IR_PASSES, run_passes
from tests.ir_passes.graphs import model, node, value
from tests.tolerances import assert_close


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


class OneHead(nn.Module):
    """Attention that splits its input into one head."""

    def __init__(self, rows: int) -> None:
        super().__init__()
        self.query, self.key, self.value = (nn.Linear(8, 8) for _ in range(3))
        self.rows = rows

    def forward(self, x: Tensor) -> Tensor:
        q, k, v = (
            layer(part).view(x.shape[0], -1, 1, 8).transpose(1, 2)
            for layer, part in ((self.query, x[:, : self.rows]), (self.key, x), (self.value, x))
        )
        y = nn.functional.scaled_dot_product_attention(q, k, v)
        return y.transpose(1, 2).reshape(x.shape[0], -1, 8)


@pytest.mark.parametrize("rows", [1, 5])
def test_one_head_needs_no_transpose_but_that_of_keys(rows: int) -> None:
    """With opset 23 the transposes are needed until attention is recognized by them."""
    torch.manual_seed(0)
    module = OneHead(rows)
    shapes = ({0: "batch"},)
    args = (torch.randn(2, 5, 8),)
    program = onnx_aot.export(module, args, dynamic_shapes=shapes, opset_version=20)
    operators = [node.op_type for node in program.model.graph]
    assert operators.count("Transpose") == 1
    fused = onnx_aot.export(module, args, dynamic_shapes=shapes, opset_version=23)
    assert [node.op_type for node in fused.model.graph].count("Attention") == 1
    for batch in (1, 2, 4):
        x = torch.randn(batch, 5, 8)
        assert_close(program(x)[0], module(x).detach())
        assert_close(fused(x)[0], module(x).detach())
