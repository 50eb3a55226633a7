"""What an export that cannot succeed says."""

from __future__ import annotations

from typing import Any

import pytest
import torch

import onnx_aot
from onnx_aot.errors import (
    CaptureError,
    ConversionError,
    InvalidOptionError,
    TranslationError,
    UnsupportedOperatorError,
)

Tensor = torch.Tensor
X = torch.randn(3)

_LIBRARY = torch.library.Library("onnx_aot_tests", "DEF")
_LIBRARY.define("ranged(Tensor x, str from='a, b', *, MemoryFormat? memory_format=None) -> Tensor")
torch.library.register_fake("onnx_aot_tests::ranged", lambda x, *a, **k: torch.empty_like(x))
for _name in ("gadget", "widget"):
    _LIBRARY.define(f"{_name}(Tensor x, int n=1) -> Tensor")
    _LIBRARY.impl(_name, lambda x, n=1: x * n, "CPU")
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
    assert "2 operator(s) of the model have no ONNX translation" in message
    assert "onnx_aot_tests.gadget.default  (2x)" in message
    assert "onnx_aot_tests::gadget(Tensor x, int n=1) -> Tensor" in message


def test_the_stub_that_the_error_proposes_works() -> None:
    """What the message says to write is what is accepted."""
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
    """No arguments about memory, and names that are Python keywords with an underscore."""
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


class HoldsSparse(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("matrix", torch.eye(3).to_sparse())

    def forward(self, x: Tensor) -> Tensor:
        return self.matrix * x


@pytest.mark.parametrize(
    ("model", "args", "message"),
    [
        (lambda x: x, torch.empty(3, dtype=torch.bits8), "input x is torch.bits8, a type that"),
        (HoldsSparse(), X, "weight matrix has the layout torch.sparse_coo"),
    ],
)
def test_what_onnx_does_not_have(model: Any, args: Tensor, message: str) -> None:
    with pytest.raises(ConversionError, match=message):
        onnx_aot.export(model, (args,))


class Branches(torch.nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        y = torch.cond(x.sum() > 0, lambda x: x + 1, lambda x: x - 1, (x,))
        return y * 2


def test_control_flow_says_what_can_be_done() -> None:
    """A function that takes functions has no schema, and so no stub."""
    with pytest.raises(UnsupportedOperatorError) as caught:
        onnx_aot.export(Branches(), (X,))
    (entry,) = caught.value.operators
    (location,) = entry.locations
    assert entry.target == "cond"
    assert location.startswith(f"{__file__}:")
    assert "y = torch.cond(x.sum() > 0" in location
    message = str(caught.value)
    assert "control flow and other operators that call functions have no translation" in message
    assert "torch.where" in message
    assert "custom_translation_table" not in message


def test_the_stub_is_of_an_operator_that_can_have_one() -> None:
    class Model(Branches):
        def forward(self, x: Tensor) -> Tensor:
            y = torch.cond(x.sum() > 0, lambda x: x + 1, lambda x: x - 1, (x,))
            return OPS.gadget(y)

    with pytest.raises(UnsupportedOperatorError) as caught:
        onnx_aot.export(Model(), (X,))
    assert len(caught.value.operators) == 2
    assert "torch.ops.onnx_aot_tests.gadget.default: onnx" in str(caught.value)


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
    assert "the translation of aten.relu.default failed: KeyError: 'missing'" in message
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
        (lambda op, self: op.relu(self), "op has no 'relu'; ONNX operators are op.CamelCase"),
    ],
)
def test_wrong_translations(translation: Any, message: str) -> None:
    with pytest.raises(onnx_aot.OnnxExporterError, match=message):
        onnx_aot.export(
            torch.nn.ReLU(),
            (X,),
            custom_translation_table={torch.ops.aten.relu.default: translation},
        )


class TwoResults(torch.nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        values, indices = x.relu().sort()
        return values + indices


RELU, SORT = torch.ops.aten.relu.default, torch.ops.aten.sort.default


@pytest.mark.parametrize("model", [TwoResults(), torch.nn.ReLU()], ids=["inner", "output"])
@pytest.mark.parametrize(
    ("returned", "described"),
    [
        (lambda value: None, "None"),
        (lambda value: 3, "3"),
        (lambda value: "x", "'x'"),
        (lambda value: (value,), "a list of 1: a value"),
        (lambda value: (value, None), "a list of 2: a value, None"),
    ],
)
def test_one_value_is_wanted(model: torch.nn.Module, returned: Any, described: str) -> None:
    with pytest.raises(TranslationError) as caught:
        onnx_aot.export(
            model, (X,), custom_translation_table={RELU: lambda op, self: returned(self)}
        )
    message = str(caught.value)
    assert f"of aten.relu.default returned {described}; the operator gives one tensor" in message
    assert "%relu : [num_users=1]" in message


@pytest.mark.parametrize(
    ("returned", "described"),
    [
        (lambda values, indices: None, "None"),
        (lambda values, indices: values, "one value"),
        (lambda values, indices: (values,), "a list of 1: a value"),
        (lambda values, indices: (values, None), "a list of 2: a value, None"),
        (lambda values, indices: (values, indices, 1), "a list of 3: a value, a value, 1"),
    ],
)
def test_several_values_are_wanted(returned: Any, described: str) -> None:
    def sort(op: Any, self: Any, dim: int, descending: bool) -> Any:
        return returned(*op.TopK(self, [3], _outputs=2))

    with pytest.raises(TranslationError) as caught:
        onnx_aot.export(TwoResults(), (X,), custom_translation_table={SORT: sort})
    message = str(caught.value)
    assert f"of aten.sort.default returned {described}; the operator gives 2 results" in message


def test_a_result_that_is_not_used_may_be_none() -> None:
    class Values(torch.nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            return x.sort().values

    def sort(op: Any, self: Any, dim: int, descending: bool) -> Any:
        return op.TopK(self, [3], largest=0, _outputs=2)[0], None

    program = onnx_aot.export(Values(), (X,), custom_translation_table={SORT: sort})
    torch.testing.assert_close(program(X)[0], X.sort().values)


@pytest.mark.parametrize(
    ("table", "message"),
    [
        ({torch.ops.aten.relu: lambda op, x: x}, "takes 'x', which aten.relu.default does"),
        ({torch.ops.aten.relu.default: "Relu"}, "maps operators to functions"),
        ({torch.ops.aten.relu.default: lambda op, x: x}, "takes 'x', which aten.relu.default does"),
        ({torch.ops.aten.add.Tensor: lambda op, self: self}, "does not take 'other', 'alpha'"),
        ({"relu": lambda op, self: self}, "a target is an operator or a function, not 'relu'"),
        ({torch.ops.aten.relu.default: max}, "no signature found for builtin"),
        ([torch.ops.aten.relu.default], "is a list; it is a dict of functions by operator"),
    ],
)
def test_wrong_tables(table: Any, message: str) -> None:
    with pytest.raises(InvalidOptionError, match=message):
        onnx_aot.export(torch.nn.ReLU(), (X,), custom_translation_table=table)


def test_a_failure_before_the_translation_says_where() -> None:
    """A graph that was edited by hand may lack what the capture records."""
    program = torch.export.export(torch.nn.ReLU(), (X,))
    program.graph_module.register_buffer("constant", X)
    (relu,) = (node for node in program.graph.nodes if node.target == RELU)
    with program.graph.inserting_before(relu):
        constant = program.graph.get_attr("constant")
        relu.target = torch.ops.aten.logaddexp.default  # is expanded with torch's rule
        relu.args = (relu.args[0], constant)
    with pytest.raises(TranslationError) as caught:
        onnx_aot.export(program)
    assert "aten.logaddexp.default failed: KeyError: 'val'" in str(caught.value)
    assert "%relu : [num_users=1]" in str(caught.value)


def test_what_torch_export_refuses() -> None:
    def branches_on_data(x: Tensor) -> Tensor:
        return x + 1 if x.sum() > 0 else x - 1

    with pytest.raises(CaptureError) as caught:
        onnx_aot.export(branches_on_data, (X,))
    message = str(caught.value)
    assert "the model could not be captured" in message
    assert "return x + 1 if x.sum() > 0 else x - 1" in message
    assert f"at {__file__}:" in message
    assert "torch.where" in message
    assert caught.value.__cause__ is not None


def test_what_torch_export_refuses_for_other_reasons() -> None:
    def raises(x: Tensor) -> Tensor:
        raise ValueError("this model is not ready")

    with pytest.raises(CaptureError) as caught:
        onnx_aot.export(raises, (X,))
    message = str(caught.value)
    assert "torch.export.export(strict=False)" in message
    assert "torch.export.export(strict=True)" in message
    assert "this model is not ready" in message
