"""The builder rejects element types that an ONNX operator does not accept."""

from __future__ import annotations

from typing import Any

import onnx
import onnx_ir as ir
import pytest
import torch

import onnx_aot
from onnx_aot.builder.builder import Builder
from onnx_aot.errors import TranslationError
from onnx_aot.graph.onnx_schemas import onnx_operator

Tensor = torch.Tensor


def test_a_type_that_a_later_opset_takes() -> None:
    """bfloat16 convolutions exist since opset 22; before that they are computed in float32."""
    model = torch.nn.Conv2d(1, 1, 3).bfloat16()
    x = torch.ones(1, 1, 8, 8, dtype=torch.bfloat16)
    for opset, casts in ((20, True), (22, False)):
        program = onnx_aot.export(model, (x,), opset_version=opset, target=None)
        onnx.checker.check_model(program.model_proto, full_check=True)
        assert any(node.op_type == "Cast" for node in program.model.graph) is casts
        assert program.model.graph.outputs[0].dtype == ir.DataType.BFLOAT16


def test_a_type_that_no_wider_one_holds() -> None:
    op = Builder(20)
    value = ir.Value(type=ir.TensorType(ir.DataType.STRING), shape=ir.Shape([1]))
    with pytest.raises(TranslationError, match="ONNX Relu does not take STRING in opset 20"):
        op.Relu(value)


@pytest.mark.parametrize(
    ("translation", "message"),
    [
        (
            lambda op, self: op.Not(self),
            r"Not does not take FLOAT .*X takes BOOL",
        ),
        (lambda op, self: op.Add(op.Sqrt(2), self), r"Sqrt does not take INT64 .*\.float\(\)"),
        (lambda op, self: op.Add(self, op.Sin(op.Shape(self))), r"Sin does not take INT64"),
    ],
)
def test_wrong_types_in_a_translation(translation: Any, message: str) -> None:
    with pytest.raises(TranslationError, match=message):
        onnx_aot.export(
            torch.nn.ReLU(),
            (torch.ones(3),),
            custom_translation_table={torch.ops.aten.relu.default: translation},
        )


@pytest.mark.parametrize(
    ("name", "position", "dtype", "taken"),
    [
        ("Add", 0, ir.DataType.FLOAT, True),
        ("Add", 1, ir.DataType.BOOL, False),
        ("Transpose", 0, ir.DataType.COMPLEX128, True),
        ("Reshape", 1, ir.DataType.INT64, True),
        ("Reshape", 1, ir.DataType.INT32, False),
        ("Cast", 0, ir.DataType.FLOAT8E4M3FN, True),
    ],
)
def test_accepted_types(name: str, position: int, dtype: ir.DataType, taken: bool) -> None:
    operator = onnx_operator(name, 20)
    assert operator is not None
    accepted = operator.accepted[position]
    assert accepted is not None
    assert (dtype in accepted) == taken


def test_inputs_that_are_sequences_are_not_checked() -> None:
    operator = onnx_operator("SequenceLength", 20)
    assert operator is not None
    assert operator.accepted == (None,)


@pytest.mark.parametrize(("opset", "taken"), [(18, False), (19, True)])
def test_tensors_are_checked_where_sequences_may_stand_too(opset: int, taken: bool) -> None:
    operator = onnx_operator("Identity", opset)
    assert operator is not None
    accepted = operator.accepted[0]
    assert accepted is not None
    assert (ir.DataType.FLOAT8E5M2 in accepted) == taken


def test_operators_of_unknown_domains_are_not_checked() -> None:
    op = Builder(20)
    x = ir.Value(name="x", type=ir.TensorType(ir.DataType.COMPLEX64))
    op.Mul(x, x, _domain="my.domain")
    assert op.nodes[0].domain == "my.domain"
