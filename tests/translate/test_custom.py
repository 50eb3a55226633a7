"""``custom_translation_table``: our form, and what is written for torch.onnx."""

from __future__ import annotations

from typing import Any

import onnx
import onnxscript
import pytest
import torch
from onnxscript import opset18

import onnx_aot
from onnx_aot.ops.complex_values import Complex

Tensor = torch.Tensor
aten = torch.ops.aten
X, Y = torch.randn(3, 4), torch.randn(3, 4)


class Model(torch.nn.Module):
    def forward(self, x: Tensor, y: Tensor) -> Tensor:
        return torch.add(x, y, alpha=3).relu()


def check(table: dict[Any, Any], expected: Any) -> onnx_aot.ONNXProgram:
    program = onnx_aot.export(Model(), (X, Y), custom_translation_table=table)
    onnx.checker.check_model(program.model_proto)
    torch.testing.assert_close(program(X, Y)[0], expected)
    return program


def test_ours() -> None:
    def add(op: Any, self: Any, other: Any, alpha: Any) -> Any:
        return op.Sub(self, op.Mul(other, alpha))

    check({aten.add.Tensor: add}, (X - 3 * Y).relu())


def test_a_python_function_over_onnxscript_operators() -> None:
    def add(self: Any, other: Any, alpha: float = 1.0) -> Any:
        return opset18.Sub(self, opset18.Mul(other, alpha))

    check({aten.add.Tensor: add}, (X - 3 * Y).relu())


def test_arithmetic_on_values() -> None:
    def add(self: Any, other: Any, alpha: float = 1.0) -> Any:
        return self - other * alpha

    check({aten.add.Tensor: add}, (X - 3 * Y).relu())


def test_a_script_becomes_a_local_function() -> None:
    domain = onnxscript.values.Opset("my.domain", 1)

    @onnxscript.script(domain)
    def Clipped(x):  # noqa: N802
        one = opset18.CastLike(opset18.Constant(value_float=1.0), x)
        return opset18.Min(opset18.Relu(x), one)

    program = check({aten.relu.default: Clipped}, (X + 3 * Y).clamp(0, 1))
    assert program.model.opset_imports == {"": 20, "my.domain": 1}
    assert list(program.model.functions) == [("my.domain", "Clipped", "")]


def test_an_operator_of_another_domain() -> None:
    contrib = onnxscript.values.Opset("com.microsoft", 1)
    quick_gelu = onnxscript.values.Op(contrib, "QuickGelu")

    def relu(self: Any) -> Any:
        return quick_gelu(self, alpha=1.0)

    program = onnx_aot.export(Model(), (X, Y), custom_translation_table={aten.relu.default: relu})
    assert program.model.opset_imports == {"": 20, "com.microsoft": 1}
    summed = X + 3 * Y
    torch.testing.assert_close(program(X, Y)[0], summed * summed.sigmoid(), rtol=1e-4, atol=1e-5)


def test_several_outputs() -> None:
    class TopK(torch.nn.Module):
        def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
            values, indices = torch.max(x, 1)
            return values, indices

    def largest(self: Any, dim: int, keepdim: bool = False) -> Any:
        values, indices = opset18.TopK(self, opset18.Constant(value_ints=[1]), axis=dim)
        axes = opset18.Constant(value_ints=[dim])
        return opset18.Squeeze(values, axes), opset18.Squeeze(indices, axes)

    program = onnx_aot.export(TopK(), (X,), custom_translation_table={aten.max.dim: largest})
    for actual, expected in zip(program(X), TopK()(X), strict=True):
        torch.testing.assert_close(actual, expected)


def test_the_table_itself_is_not_changed() -> None:
    def neg(op: Any, self: Any) -> Any:
        return op.Neg(self)

    onnx_aot.export(Model(), (X, Y), custom_translation_table={aten.relu.default: neg})
    program = onnx_aot.export(Model(), (X, Y))
    torch.testing.assert_close(program(X, Y)[0], (X + 3 * Y).relu())


@pytest.mark.parametrize("dtype", [torch.float16, torch.int64])
def test_dtypes_are_handed_over_as_onnx_numbers(dtype: torch.dtype) -> None:
    seen = []

    def to(self: Any, wanted: int, *rest: Any) -> Any:
        seen.append(wanted)
        return opset18.Cast(self, to=wanted)

    program = onnx_aot.export(
        lambda x: x.to(dtype), (X,), custom_translation_table={aten.to.dtype: to}
    )
    assert seen == [{torch.float16: 10, torch.int64: 7}[dtype]]
    assert program(X)[0].dtype == dtype


def test_complex_numbers_come_in_pairs() -> None:
    def swapped(op: Any, self: Complex) -> Complex:
        return Complex(self.imag, op.Neg(self.real))

    x = torch.randn(3, dtype=torch.complex64)
    program = onnx_aot.export(
        torch.exp, (x,), custom_translation_table={torch.ops.aten.exp.default: swapped}
    )
    torch.testing.assert_close(program(x)[0], torch.complex(x.imag, -x.real))
