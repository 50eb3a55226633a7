"""The builder refuses element types that an ONNX operator does not take."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import onnx
import onnx_ir as ir
import pytest
import torch

import onnx_aot
from onnx_aot.errors import OnnxExporterError, OpsetError, TranslationError
from onnx_aot.ops.builder import Builder
from onnx_aot.ops.onnx_schemas import onnx_operator

Tensor = torch.Tensor
COMPLEX = torch.ones(3, 3, dtype=torch.complex64)


class Doubles(torch.nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return x * 2


def test_arithmetic_on_complex_numbers_is_refused() -> None:
    with pytest.raises(TranslationError) as caught:
        onnx_aot.export(Doubles(), (COMPLEX,))
    message = str(caught.value)
    assert "ONNX Mul takes no COMPLEX64 in opset 20: its input A takes BFLOAT16, DOUBLE" in message
    assert "torch.view_as_real" in message
    assert "%mul : [num_users=1]" in message
    assert f"{__file__}:" in message
    assert "return x * 2" in message


@pytest.mark.parametrize(
    "function",
    [
        lambda x: x + x,
        lambda x: x.abs(),
        lambda x: x @ x,
        lambda x: x.sum(),
        lambda x: x.exp(),
        lambda x: x.to(torch.complex128),
        lambda x: x.to(torch.float32),
        lambda x: x.real,
        lambda x: x.conj() * 2j,
        lambda x: torch.where(x == 0, x, 1),
        torch.view_as_real,
    ],
)
@pytest.mark.filterwarnings("ignore:Casting complex values to real")
def test_no_complex_number_gives_an_invalid_model(function: Callable[[Tensor], Tensor]) -> None:
    with pytest.raises(OnnxExporterError):
        onnx_aot.export(function, (COMPLEX,))


@pytest.mark.parametrize("function", [lambda x: x, lambda x: x.reshape(-1), lambda x: x.T])
def test_complex_numbers_can_be_moved(function: Callable[[Tensor], Tensor]) -> None:
    program = onnx_aot.export(function, (COMPLEX,))
    onnx.checker.check_model(program.model_proto, full_check=True)


def test_a_type_that_a_later_opset_takes() -> None:
    model = torch.nn.Conv2d(1, 1, 3).bfloat16()
    x = torch.ones(1, 1, 8, 8, dtype=torch.bfloat16)
    with pytest.raises(OpsetError, match=r"Conv takes no BFLOAT16.*pass opset_version=22"):
        onnx_aot.export(model, (x,), opset_version=20)
    program = onnx_aot.export(model, (x,), opset_version=22)
    onnx.checker.check_model(program.model_proto, full_check=True)


@pytest.mark.parametrize(
    ("translation", "message"),
    [
        (
            lambda op, self: op.Not(self),
            r"Not takes no FLOAT in opset 20: its input X takes BOOL\. ",
        ),
        (lambda op, self: op.Add(op.Sqrt(2), self), r"Sqrt takes no INT64 .*\.float\(\)"),
        (lambda op, self: op.Add(self, op.Sin(op.Shape(self))), r"Sin takes no INT64"),
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


@pytest.mark.parametrize("name", ["SequenceLength", "Identity"])
def test_inputs_that_may_be_sequences_are_not_checked(name: str) -> None:
    operator = onnx_operator(name, 20)
    assert operator is not None
    assert operator.accepted == (None,)


def test_operators_of_unknown_domains_are_not_checked() -> None:
    op = Builder(20)
    x = ir.Value(name="x", type=ir.TensorType(ir.DataType.COMPLEX64))
    op.Mul(x, x, _domain="my.domain")
    assert op.nodes[0].domain == "my.domain"
