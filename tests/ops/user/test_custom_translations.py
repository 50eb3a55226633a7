"""``custom_translation_table``: this package's form and the form for torch.onnx."""

from __future__ import annotations

import math
import operator
from typing import Any

import onnx
import onnxscript
import pytest
import torch
from onnxscript import DOUBLE, FLOAT, INT64, opset18, opset20

import onnx_aot
from onnx_aot.errors import InvalidOptionError, OpsetError, TranslationError
from onnx_aot.ops.complex.pairs import Complex
from tests.ops.user.relu_model import (
    X,
    Y,
    aten,
    exported,
    negated,
    operators,
    relu,
    wants_a_later_opset,
)
from tests.tolerances import assert_close

Tensor = torch.Tensor


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
    assert_close(program(X, Y)[0], summed * summed.sigmoid())


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


# --- candidates and keys -------------------------------------------------------------------------


def declines(op: Any, self: Any) -> Any:
    op.Abs(op.Shape(self))  # rolled back
    return NotImplemented


@pytest.mark.parametrize(
    ("functions", "chosen"),
    [
        ([declines, negated, relu], "Neg"),
        ([wants_a_later_opset, negated], "Neg"),
        ([declines], "Relu"),  # the package's own translation
        (declines, "Relu"),
    ],
)
def test_the_first_that_takes_the_call(functions: Any, chosen: str) -> None:
    program = exported(torch.relu, X, custom_translation_table={aten.relu.default: functions})
    assert operators(program) == [chosen]


def test_a_later_candidate_is_needed_for_an_error_to_be_passed_over() -> None:
    for functions in ([declines, wants_a_later_opset], [wants_a_later_opset, declines]):
        table = {aten.relu.default: functions}
        with pytest.raises(OpsetError, match="Swish does not exist in opset 20"):
            exported(torch.relu, X, custom_translation_table=table)
    program = exported(torch.relu, X, custom_translation_table=table, opset_version=24)
    assert operators(program) == ["Swish"]


def test_torchs_rule_comes_last() -> None:
    def no(op: Any, self: Any, other: Any) -> Any:
        return NotImplemented

    table = {aten.logaddexp.default: no}
    program = exported(torch.logaddexp, X, Y, custom_translation_table=table)
    torch.testing.assert_close(program(X, Y)[0], torch.logaddexp(X, Y))


def test_nobody_takes_the_call() -> None:
    @torch.library.custom_op("onnx_aot_custom::nobody", mutates_args=())
    def nobody(x: Tensor, n: int) -> Tensor:
        return torch.from_numpy(x.numpy() * n)

    nobody.register_fake(lambda x, n: torch.empty_like(x))

    def of_double(x: DOUBLE, n: int) -> Any:
        return opset18.Neg(x)

    def no(op: Any, x: Any, n: Any) -> Any:
        return NotImplemented

    with pytest.raises(TranslationError) as caught:
        exported(lambda x: nobody(x, 2), X, custom_translation_table={nobody: [of_double, no]})
    message = str(caught.value)
    assert "nobody.default takes this call" in message
    assert "x is FLOAT, and declared as DOUBLE" in message
    assert "no: returned NotImplemented" in message


@pytest.mark.parametrize(("x", "chosen"), [(X, "Neg"), (X.double(), "Abs"), (X.long(), "Sign")])
def test_annotations_choose(x: Tensor, chosen: str) -> None:
    def first(self: FLOAT) -> Any:
        return opset18.Neg(self)

    def second(self: FLOAT | DOUBLE) -> Any:
        return opset18.Abs(self)

    def third(self: INT64[...]) -> Any:
        return opset18.Sign(self)

    table = {aten.relu.default: [first, second, third]}
    assert operators(exported(torch.relu, x, custom_translation_table=table)) == [chosen]


def test_a_packet_stands_for_its_overloads() -> None:
    def times(op: Any, self: Any, other: Any) -> Any:
        return op.Mul(self, other)

    def of_scalars(op: Any, self: Any, other: Any) -> Any:
        return op.Div(self, other)

    def both(x: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
        return torch.ops.aten.sub.Tensor(x, y), torch.ops.aten.mul(x, 3)

    table = {aten.mul: of_scalars, aten.mul.Tensor: times}
    program = exported(both, X, Y, custom_translation_table=table)
    assert operators(program) == ["Sub", "Mul"]  # the entry of the overload itself takes precedence
    program = exported(both, X, Y, custom_translation_table={aten.mul: of_scalars})
    assert operators(program) == ["Sub", "Div"]


def test_numbers_and_lists_and_types() -> None:
    @torch.library.custom_op("onnx_aot_custom::mixed", mutates_args=())
    def mixed(
        x: Tensor, sizes: list[int], mode: str, to: torch.dtype, *, on: bool = True, by: float = 2.0
    ) -> tuple[Tensor, Tensor]:
        return (x * by).to(to), x[: sizes[0]].clone()

    @mixed.register_fake
    def _(x: Any, sizes: Any, mode: Any, to: Any, on: bool = True, by: float = 2.0) -> Any:
        return x.to(to), x.new_empty([sizes[0], *x.shape[1:]])

    seen = []

    def ours(op: Any, x: Any, sizes: Any, mode: Any, to: Any, on: Any, by: Any) -> tuple[Any, Any]:
        seen.append((mode, to, on, by))
        wanted = {torch.float64: 11}[to]
        return op.Cast(op.Mul(x, by), to=wanted), op.Slice(x, [0], op.sizes(sizes), [0])

    def theirs(x: Any, sizes: Any, mode: str, to: int, *, on: Any, by: float) -> Any:
        seen.append((mode, to, on, by))
        doubled = opset18.Cast(opset18.Mul(x, by), to=to)
        zero = opset18.Constant(value_ints=[0])
        return doubled, opset18.Slice(x, zero, sizes, zero)

    def called(x: Tensor) -> tuple[Tensor, Tensor]:
        return mixed(x, [x.shape[0] - 1], "text", torch.float64, by=3.0)

    for function in (ours, theirs):
        program = exported(
            called,
            X,
            dynamic_shapes=({0: "n"},),
            custom_translation_table={mixed: function},
        )
        for x in (X, torch.randn(7, 4)):
            for actual, expected in zip(program(x), called(x), strict=True):
                torch.testing.assert_close(actual, expected)
    assert seen == [("text", torch.float64, True, 3.0), ("text", 11, True, 3.0)]


def test_symbolic_numbers() -> None:
    seen = []

    def added(op: Any, left: Any, right: Any) -> Any:
        seen.append("add")
        return op.Add(left, right)

    def floor(op: Any, value: Any) -> Any:
        seen.append("floor")
        return op.Cast(op.Floor(value), to=7)

    def as_float(op: Any, value: Any) -> Any:
        seen.append("float")
        return op.Cast(value, to=11)

    def function(x: Tensor) -> Tensor:
        return x.new_zeros([x.shape[0] + 5, math.floor(torch.sym_float(x.shape[0]) / 2)])

    table = {operator.add: added, math.floor: floor, torch.sym_float: as_float}
    program = exported(
        function, X, dynamic_shapes=({0: "n"},), custom_translation_table=table, optimize=False
    )
    assert "add" in seen
    for n in (2, 9):
        assert program(torch.ones(n, 4))[0].shape == (n + 5, n // 2)


def test_a_higher_order_operator_may_be_a_key() -> None:
    def cond(op: Any, predicate: Any, *rest: Any) -> Any:
        raise AssertionError("the model has none")

    program = exported(torch.relu, X, custom_translation_table={torch.ops.higher_order.cond: cond})
    assert operators(program) == ["Relu"]


def test_no_results() -> None:
    library = torch.library.Library("onnx_aot_custom", "FRAGMENT")
    library.define("announce(Tensor x) -> ()")
    torch.library.register_fake("onnx_aot_custom::announce", lambda x: None, lib=library)

    def announced(x: Tensor) -> Tensor:
        torch.ops.onnx_aot_custom.announce(x)
        return x.relu()

    program = torch.export.export(Announces(), (X,))
    assert torch.ops.onnx_aot_custom.announce.default in {n.target for n in program.graph.nodes}
    table = {torch.ops.onnx_aot_custom.announce: lambda op, x: None}
    assert operators(exported(announced, X, custom_translation_table=table)) == ["Relu"]
    library._destroy()


class Announces(torch.nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        torch.ops.onnx_aot_custom.announce(x)
        return x.relu()


def test_complex_numbers_for_torch_onnx_have_a_last_dimension_of_two() -> None:
    def conjugated(self: Any) -> Any:
        return opset18.Mul(self, opset18.Constant(value_floats=[1.0, -1.0]))

    x = torch.randn(3, dtype=torch.complex64)
    program = exported(torch.exp, x, custom_translation_table={aten.exp.default: conjugated})
    torch.testing.assert_close(program(x)[0], x.conj().resolve_conj())


# --- scripts -------------------------------------------------------------------------------------

INNER = onnxscript.values.Opset("inner.domain", 2)
OUTER = onnxscript.values.Opset("outer.domain", 1)


@onnxscript.script(INNER, default_opset=opset20)
def Scaled(x, by: float = 2.0):  # noqa: N802
    return x * opset20.CastLike(opset20.Constant(value_float=by), x)


@onnxscript.script(OUTER, default_opset=opset20)
def ScaledRelu(x):  # noqa: N802
    return opset20.Relu(Scaled(x, by=3.0))


def test_functions_that_a_script_calls() -> None:
    program = exported(torch.relu, X, custom_translation_table={aten.relu.default: ScaledRelu})
    assert program.model.opset_imports == {"": 20, "outer.domain": 1, "inner.domain": 2}
    assert {f.name for f in program.model.functions.values()} == {"Scaled", "ScaledRelu"}
    torch.testing.assert_close(program(X)[0], (X * 3).relu())


def test_attributes_of_a_script_have_its_types() -> None:
    def times(self: Any, other: Any) -> Any:
        return Scaled(self, by=other)  # an int

    program = exported(
        lambda x: torch.ops.aten.mul(x, 3), X, custom_translation_table={aten.mul.Tensor: times}
    )
    torch.testing.assert_close(program(X)[0], X * 3)


def test_more_arguments_than_a_script_takes() -> None:
    table = {aten.add.Tensor: Scaled}
    with pytest.raises(TranslationError, match=r"Scaled takes by as an attribute"):
        exported(Model(), X, Y, custom_translation_table=table)


# --- domains -------------------------------------------------------------------------------------


def kernel(domain: str, version: int | None = None) -> Any:
    return lambda op, self: op.Kernel(self, _domain=domain, _version=version)


@pytest.mark.parametrize(
    ("function", "given", "expected"),
    [
        (kernel("my.domain"), None, 1),
        (kernel("my.domain"), {"my.domain": 2}, 2),
        (kernel("my.domain", 4), None, 4),
        (kernel("my.domain", 4), {"my.domain": 4}, 4),
    ],
)
def test_versions_of_domains(function: Any, given: Any, expected: int) -> None:
    table = {aten.relu.default: function}
    program = exported(torch.relu, X, custom_translation_table=table, custom_opsets=given)
    assert program.model.opset_imports == {"": 20, "my.domain": expected}
    assert [i.version for i in program.model_proto.opset_import] == [20, expected]


def test_versions_that_contradict_each_other() -> None:
    table = {aten.relu.default: kernel("my.domain", 4)}
    with pytest.raises(InvalidOptionError, match=r"custom_opsets has version 2 of 'my.domain'"):
        exported(torch.relu, X, custom_translation_table=table, custom_opsets={"my.domain": 2})
    table[aten.add.Tensor] = lambda op, self, other, alpha: op.Kernel(
        self, _domain="my.domain", _version=3
    )
    with pytest.raises(TranslationError, match=r"versions 3 and 4 of the domain 'my.domain'"):
        exported(Model(), X, Y, custom_translation_table=table)


def test_versions_of_domains_that_are_not_there() -> None:
    with pytest.warns(onnx_aot.OnnxExporterWarning, match=r"no operators of: \['my.domain'\]"):
        exported(torch.relu, X, custom_opsets={"my.domain": 2})
    for wrong in ({"": 20}, {"my.domain": "2"}, {"my.domain": 0}, ["my.domain"]):
        with pytest.raises(InvalidOptionError, match="expected a dict of versions"):
            exported(torch.relu, X, custom_opsets=wrong)


def test_a_model_with_foreign_operators_says_so() -> None:
    table = {aten.relu.default: kernel("my.domain")}
    with pytest.warns(onnx_aot.OnnxExporterWarning, match=r"was not verified.*my.domain::Kernel"):
        program = exported(torch.relu, X, custom_translation_table=table, verify=True)
    with pytest.raises(onnx_aot.errors.InferenceError, match=r"has no my.domain::Kernel"):
        program(X)


# --- torch's own rules ---------------------------------------------------------------------------


def test_a_composite_kernel_in_python_needs_no_translation() -> None:
    library = torch.library.Library("onnx_aot_custom", "FRAGMENT")
    library.define("swished(Tensor x, float by=2.0) -> Tensor")

    def swished(x: Tensor, by: float = 2.0) -> Tensor:
        return torch.sigmoid(x) * x * by

    library.impl("swished", swished, "CompositeImplicitAutograd")
    program = exported(
        lambda x: torch.ops.onnx_aot_custom.swished(x, 3.0), X, dynamic_shapes=({0: "n"},)
    )
    x = torch.randn(6, 4)
    torch.testing.assert_close(program(x)[0], swished(x, 3.0))
    library._destroy()
