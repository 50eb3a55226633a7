"""The error that lists unsupported operators, and the code that it suggests."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch._higher_order_ops.out_dtype import out_dtype

import onnx_aot
from onnx_aot.errors import UnsupportedOperatorError

Tensor = torch.Tensor
X = torch.randn(3)

_LIBRARY = torch.library.Library("onnx_aot_tests", "DEF")
_LIBRARY.define("ranged(Tensor x, str from='a, b', *, MemoryFormat? memory_format=None) -> Tensor")
torch.library.register_fake("onnx_aot_tests::ranged", lambda x, *a, **k: torch.empty_like(x))

for _name in ("gadget", "widget"):
    _LIBRARY.define(f"{_name}(Tensor x, int n=1) -> Tensor")
    # NumPy reads the tensor's memory, so this cannot be traced.
    _LIBRARY.impl(_name, lambda x, n=1: torch.from_numpy(x.numpy() * n), "CPU")
    torch.library.register_fake(f"onnx_aot_tests::{_name}", lambda x, n=1: torch.empty_like(x))

OPS = torch.ops.onnx_aot_tests


class UsesCustomOperators(torch.nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        y = OPS.gadget(x, 2)
        y = OPS.gadget(y)  # a second call of the same operator
        return OPS.widget(y + 1, 3)


def test_every_unknown_operator_is_listed_once_with_its_lines() -> None:
    with pytest.raises(UnsupportedOperatorError) as caught:
        onnx_aot.export(UsesCustomOperators(), (X,))
    gadget, widget = caught.value.operators
    assert (gadget.target, gadget.count) == ("onnx_aot_tests.gadget.default", 2)
    assert (widget.target, widget.count) == ("onnx_aot_tests.widget.default", 1)
    assert len(gadget.locations) == 2
    for location, code in zip(
        (*gadget.locations, *widget.locations),
        ("y = OPS.gadget(x, 2)", "y = OPS.gadget(y)", "return OPS.widget(y + 1, 3)"),
        strict=True,
    ):
        assert location.startswith(f"{__file__}:")
        assert code in location
    message = str(caught.value)
    assert "2 operator(s)" in message
    assert "onnx_aot_tests.gadget.default  (2x)" in message
    assert "onnx_aot_tests::gadget(Tensor x, int n=1) -> Tensor" in message


def test_the_stub_that_the_error_proposes_works() -> None:
    """The code that the message suggests is accepted."""
    with pytest.raises(UnsupportedOperatorError) as caught:
        onnx_aot.export(UsesCustomOperators(), (X,))
    assert "def onnx_aot_tests_gadget_default(op, x, n):" in str(caught.value)

    def onnx_aot_tests_gadget_default(op: Any, x: Any, n: Any) -> Any:
        return op.Mul(x, n)

    program = onnx_aot.export(
        UsesCustomOperators(),
        (X,),
        custom_translation_table={
            torch.ops.onnx_aot_tests.gadget.default: onnx_aot_tests_gadget_default,
            torch.ops.onnx_aot_tests.widget.default: onnx_aot_tests_gadget_default,
        },
    )
    torch.testing.assert_close(program(X)[0], UsesCustomOperators()(X))


def test_the_stub_takes_what_a_translation_takes() -> None:
    """Memory arguments are omitted, and names that are Python keywords get an underscore."""
    with pytest.raises(UnsupportedOperatorError) as caught:
        onnx_aot.export(OPS.ranged, (X,))
    assert "def onnx_aot_tests_ranged_default(op, x, from_):" in str(caught.value)

    def onnx_aot_tests_ranged_default(op: Any, x: Any, from_: Any) -> Any:
        assert from_ == "a, b"
        return op.Relu(x)

    table = {OPS.ranged.default: onnx_aot_tests_ranged_default}
    program = onnx_aot.export(OPS.ranged, (X,), custom_translation_table=table)
    torch.testing.assert_close(program(X)[0], X.relu())


def test_lines_of_functions_and_methods() -> None:
    def forward_of_no_module(x: Tensor) -> Tensor:
        return OPS.gadget(x, 2)

    class Encoder(torch.nn.Module):
        def encode(self, x: Tensor) -> Tensor:
            return OPS.gadget(x, 2)

    for function in (forward_of_no_module, Encoder().encode):
        with pytest.raises(UnsupportedOperatorError) as caught:
            onnx_aot.export(function, (X,))
        line = function.__code__.co_firstlineno + 1
        (location,) = caught.value.operators[0].locations
        assert location.startswith(f"{__file__}:{line} in {function.__name__}")


class WithOutDtype(torch.nn.Module):
    """An operator that takes an operator."""

    def forward(self, x: Tensor) -> Tensor:
        y = out_dtype(torch.ops.aten.mm.default, torch.int32, x, x)
        return y * 2


INTEGERS = torch.ones(3, 3, dtype=torch.int8)


def test_what_is_given_functions_says_what_can_be_done() -> None:
    """A function that takes functions has no schema, and therefore no stub."""
    with pytest.raises(UnsupportedOperatorError) as caught:
        onnx_aot.export(WithOutDtype(), (INTEGERS,))
    (entry,) = caught.value.operators
    (location,) = entry.locations
    assert entry.target == "out_dtype"
    assert location.startswith(f"{__file__}:")
    assert "y = out_dtype(torch.ops.aten.mm.default" in location
    message = str(caught.value)
    assert "higher-order operator" in message
    assert "Add a translation for each" not in message


def test_the_stub_is_of_an_operator_that_can_have_one() -> None:
    class Model(WithOutDtype):
        def forward(self, x: Tensor) -> Tensor:
            return OPS.gadget(super().forward(x).float())

    with pytest.raises(UnsupportedOperatorError) as caught:
        onnx_aot.export(Model(), (INTEGERS,))
    assert len(caught.value.operators) == 2
    assert "torch.ops.onnx_aot_tests.gadget.default: onnx" in str(caught.value)
