"""Handmade ONNX values, nodes and models."""

from __future__ import annotations

from typing import Any

import onnx_ir as ir

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
