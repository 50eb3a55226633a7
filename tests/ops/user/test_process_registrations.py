"""``onnx_aot.register``: translations for all exports of the process."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
import torch

import onnx_aot
from onnx_aot.errors import InvalidOptionError
from tests.ops.user.relu_model import (
    X,
    aten,
    exported,
    negated,
    operators,
    relu,
    wants_a_later_opset,
)

# --- registration --------------------------------------------------------------------------------


@pytest.fixture
def registered() -> Iterator[None]:
    yield
    onnx_aot.unregister(aten.relu)


@pytest.mark.usefixtures("registered")
def test_registration() -> None:
    @onnx_aot.register(aten.relu.default)
    def first(op: Any, self: Any) -> Any:
        return op.Neg(self)

    assert onnx_aot.register(aten.relu, wants_a_later_opset, opset=24) is wants_a_later_opset
    assert operators(exported(torch.relu, X)) == ["Neg"]
    assert operators(exported(torch.relu, X, opset_version=24)) == ["Swish"]
    table = {aten.relu.default: relu}
    assert operators(exported(torch.relu, X, custom_translation_table=table)) == ["Relu"]
    with pytest.raises(InvalidOptionError, match="first is already registered for"):
        onnx_aot.register(aten.relu.default, relu)
    onnx_aot.register(aten.relu.default, first)  # registered twice, as happens in a notebook


def test_what_was_registered_is_gone() -> None:
    onnx_aot.register(aten.relu, negated)
    onnx_aot.unregister(aten.relu.default)
    assert operators(exported(torch.relu, X)) == ["Relu"]
    with pytest.raises(InvalidOptionError, match=r"nothing is registered for aten.relu"):
        onnx_aot.unregister(aten.relu)


@pytest.mark.parametrize(
    ("target", "function", "opset", "message"),
    [
        ("relu", relu, 17, "not 'relu'"),
        (aten.relu.default, lambda op, x: x, 17, "takes 'x', which aten.relu.default"),
        (aten.relu.default, relu, 10, "opset is 10; opsets 11 to"),
        (aten.relu.default, "Relu", 17, "expected operators mapped to functions"),
    ],
)
def test_what_cannot_be_registered(target: Any, function: Any, opset: int, message: str) -> None:
    with pytest.raises(InvalidOptionError, match=message):
        onnx_aot.register(target, function, opset=opset)
