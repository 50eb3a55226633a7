"""Signed integer activations, which are written as unsigned ones for ONNX Runtime."""

from __future__ import annotations

import onnx
import onnx.parser
import onnx_ir as ir
import onnxruntime
import pytest
import torch

from onnx_aot.targets import legalize

GRID = "float s={0.5}, int8 z={-7}"
QUANTIZE = "q=QuantizeLinear(x,s,z)"


def parsed(graph: str) -> ir.Model:
    text = f'<ir_version: 9, opset_import: ["": 20]> g (float[n] x) => {graph}'
    return ir.from_proto(onnx.shape_inference.infer_shapes(onnx.parser.parse_model(text)))


def types(model: ir.Model) -> set[ir.DataType | None]:
    return {n.outputs[0].dtype for n in model.graph if n.op_type == "QuantizeLinear"}


def run(model: ir.Model) -> list[bytes]:
    proto = ir.to_proto(model)
    onnx.checker.check_model(proto, full_check=True)
    session = onnxruntime.InferenceSession(proto.SerializeToString())
    x = torch.cat([torch.linspace(-90, 90, 721), torch.tensor([float("inf"), -float("inf")])])
    return [array.tobytes() for array in session.run(None, {"x": x.numpy()})]


@pytest.mark.parametrize(
    "graph",
    [
        f"(float[n] y) <{GRID}> {{{QUANTIZE} y=DequantizeLinear(q,s,z)}}",
        f"(float[n] y, float[n] v) <{GRID}> {{{QUANTIZE} y=DequantizeLinear(q,s,z)"
        " d=DequantizeLinear(q,s,z) v=Relu(d)}",
        f"(float[n] y) <{GRID}, int8 w={{-7}}> {{{QUANTIZE} y=DequantizeLinear(q,s,w)}}",
        f"(float[n] y) <{GRID}, float t={{0.25}}> {{{QUANTIZE} y=DequantizeLinear(q,t,z)}}",
    ],
)
def test_numbers_are_the_same(graph: str) -> None:
    model = parsed(graph)
    before = run(model)
    legalize(model, "onnxruntime")
    assert types(model) == {ir.DataType.UINT8}
    assert run(model) == before


@pytest.mark.parametrize(
    "graph",
    [
        f"(int8[n] q) <{GRID}> {{{QUANTIZE}}}",
        f"(float[n] y, int8[n] q) <{GRID}> {{{QUANTIZE} y=DequantizeLinear(q,s,z)}}",
        f"(float[n] y, int8[n] v) <{GRID}> {{{QUANTIZE} y=DequantizeLinear(q,s,z) v=Identity(q)}}",
        f"(float[n] y) <{GRID}, int8 w={{-6}}> {{{QUANTIZE} y=DequantizeLinear(q,s,w)}}",
    ],
)
def test_what_is_read_otherwise_stays(graph: str) -> None:
    model = parsed(graph)
    before = run(model)
    legalize(model, "onnxruntime")
    assert types(model) == {ir.DataType.INT8}
    assert run(model) == before
