"""Emission of nodes from operator domains other than ONNX's own."""

from __future__ import annotations

import onnx_ir as ir

from onnx_aot.builder.builder import Builder


def test_types_are_widened_in_other_domains() -> None:
    op = Builder(17)
    x = ir.Value(type=ir.TensorType(ir.DataType.BOOL), shape=ir.Shape([2, 3]))
    y = op.Binarizer(x, threshold=0.5, _domain="ai.onnx.ml", _version=1)
    emitted = [(node.domain, node.op_type) for node in op.nodes]
    assert emitted == [("", "Cast"), ("ai.onnx.ml", "Binarizer"), ("", "Cast")]
    assert y.dtype == ir.DataType.BOOL
    assert op.state.domains.imports == {"ai.onnx.ml": 1}
