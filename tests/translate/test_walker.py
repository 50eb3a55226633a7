"""Failing translations, translations with wrong results, and untranslatable graphs."""

from __future__ import annotations

from typing import Any

import pytest
import torch

import onnx_aot
from onnx_aot.errors import ConversionError, InvalidOptionError, TranslationError
from tests.translate.two_results import RELU, Tensor, X


class HoldsSparse(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("matrix", torch.eye(3).to_sparse())

    def forward(self, x: Tensor) -> Tensor:
        return self.matrix * x


@pytest.mark.parametrize(
    ("model", "args", "message"),
    [
        (lambda x: x, torch.empty(3, dtype=torch.bits8), "input x is torch.bits8"),
        (HoldsSparse(), X, "the model computes with sparse tensors"),
    ],
)
def test_what_onnx_does_not_have(model: Any, args: Tensor, message: str) -> None:
    with pytest.raises(ConversionError, match=message):
        onnx_aot.export(model, (args,))


def test_a_translation_that_fails_says_where() -> None:
    def broken(op: Any, self: Any) -> Any:
        raise KeyError("missing")

    class Model(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.inner = torch.nn.ReLU()

        def forward(self, x: Tensor) -> Tensor:
            return self.inner(x)

    with pytest.raises(TranslationError) as caught:
        onnx_aot.export(
            Model(), (X,), custom_translation_table={torch.ops.aten.relu.default: broken}
        )
    message = str(caught.value)
    assert "aten.relu.default failed: KeyError: 'missing'" in message
    assert "%relu : [num_users=1]" in message
    assert "module  inner" in message
    assert f"{__file__}:" in message
    assert isinstance(caught.value.__cause__, KeyError)


@pytest.mark.parametrize(
    ("translation", "message"),
    [
        (lambda op, self: op.Cast(self, to=7), "gives INT64, the capture recorded FLOAT"),
        (lambda op, self: op.Unsqueeze(self, [0]), "gives rank 2, the capture recorded 1"),
        (lambda op, self: op.Add(self, op.Shape(self)), "takes one type T: FLOAT and INT64"),
        (lambda op, self: op.Relu(self, alpha=1), "Relu has no attribute 'alpha'"),
        (lambda op, self: op.NoSuchOperator(self), "NoSuchOperator does not exist in opset 20"),
        (lambda op, self: op.relu(self), "op has no 'relu'; .*op.CamelCase"),
    ],
)
def test_wrong_translations(translation: Any, message: str) -> None:
    with pytest.raises(onnx_aot.OnnxExporterError, match=message):
        onnx_aot.export(
            torch.nn.ReLU(),
            (X,),
            custom_translation_table={torch.ops.aten.relu.default: translation},
        )


@pytest.mark.parametrize(
    ("table", "message"),
    [
        ({torch.ops.aten.relu: lambda op, x: x}, "takes 'x', which aten.relu.default"),
        ({torch.ops.aten.relu.default: "Relu"}, "expected operators mapped to functions"),
        ({torch.ops.aten.relu.default: lambda op, x: x}, "takes 'x', which aten.relu.default"),
        ({torch.ops.aten.add.Tensor: lambda op, self: self}, "does not take 'other', 'alpha'"),
        ({"relu": lambda op, self: self}, "not 'relu'"),
        ({torch.ops.aten.relu.default: max}, "no signature found for builtin"),
        ([torch.ops.aten.relu.default], "is a list; expected a dict of functions"),
    ],
)
def test_wrong_tables(table: Any, message: str) -> None:
    with pytest.raises(InvalidOptionError, match=message):
        onnx_aot.export(torch.nn.ReLU(), (X,), custom_translation_table=table)


def test_a_failure_before_the_translation_says_where() -> None:
    """A manually edited graph may lack values that the capture records."""
    program = torch.export.export(torch.nn.ReLU(), (X,))
    program.graph_module.register_buffer("constant", X)
    (relu,) = (node for node in program.graph.nodes if node.target == RELU)
    with program.graph.inserting_before(relu):
        constant = program.graph.get_attr("constant")
        relu.target = torch.ops.aten.logaddexp.default  # decomposed by torch's rule
        relu.args = (relu.args[0], constant)
    with pytest.raises(TranslationError) as caught:
        onnx_aot.export(program)
    assert "aten.logaddexp.default failed: KeyError: 'val'" in str(caught.value)
    assert "%relu : [num_users=1]" in str(caught.value)
