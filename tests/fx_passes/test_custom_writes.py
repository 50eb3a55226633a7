"""Custom operators that write in place and have no functional overload."""

from __future__ import annotations

import io
from collections.abc import Callable
from typing import Any

import pytest
import torch

import onnx_aot
from onnx_aot.errors import OnnxExporterWarning, UnsupportedOperatorError
from onnx_aot.fx_passes.custom_writes import FUNCTIONALIZED

Tensor = torch.Tensor

_LIBRARY = torch.library.Library("onnx_aot_writes", "DEF")
OPS = torch.ops.onnx_aot_writes


def define(schema: str, kernel: Callable[..., Any], fake: Callable[..., Any]) -> None:
    _LIBRARY.define(schema)
    name = schema.partition("(")[0]
    _LIBRARY.impl(name, kernel, "CPU")
    torch.library.register_fake(f"onnx_aot_writes::{name}", fake)


def add_one(x: Tensor) -> None:
    x.add_(1)


def add_to_both(x: Tensor, y: Tensor, z: Tensor | None = None, n: int = 2) -> Tensor:
    x.add_(y, alpha=n)
    if z is not None:
        z.mul_(n)
    return x - y


def double_all(xs: list[Tensor]) -> None:
    for x in xs:
        x.mul_(2)


def halve(x: Tensor) -> Tensor:
    return x.div_(2)


def min_max(x: Tensor) -> tuple[Tensor, Tensor]:
    results = x.min(), x.max()
    x.zero_()
    return results


define("add_one(Tensor(a!) x) -> ()", add_one, lambda x: None)
define(
    "add_to_both(Tensor(a!) x, Tensor y, Tensor(b!)? z=None, *, int n=2) -> Tensor",
    add_to_both,
    lambda x, y, z=None, n=2: torch.empty_like(x),
)
define("double_all(Tensor(a!)[] xs) -> ()", double_all, lambda xs: None)
define("halve(Tensor(a!) x) -> Tensor(a!)", halve, lambda x: x)
define(
    "min_max(Tensor(a!) x) -> (Tensor, Tensor)",
    min_max,
    lambda x: (x.new_empty([]), x.new_empty([])),
)


def translate_add_to_both(op: Any, x: Any, y: Any, z: Any, n: int) -> Any:
    new = op.Add(x, op.Mul(y, n))
    return (op.Sub(new, y), new) if z is None else (op.Sub(new, y), new, op.Mul(z, n))


TABLE = {
    OPS.add_one.default: lambda op, x: op.Add(x, 1),
    OPS.add_to_both.default: translate_add_to_both,
    OPS.double_all.default: lambda op, xs: [op.Mul(x, 2) for x in xs],
    OPS.halve.default: lambda op, x: op.Div(x, 2),
    OPS.min_max.default: lambda op, x: (
        op.ReduceMin(x, keepdims=0),
        op.ReduceMax(x, keepdims=0),
        op.Mul(x, 0),
    ),
}


def whole(x: Tensor) -> tuple[Tensor, ...]:
    y = x * 3
    OPS.add_one(y)
    OPS.add_one(y)
    return y, y.relu()


def through_view(x: Tensor) -> tuple[Tensor, ...]:
    y = x * 3
    row = y[0]
    OPS.add_one(row)
    return y, row


def with_result(x: Tensor) -> tuple[Tensor, ...]:
    y, z = x * 3, x * 2
    first = OPS.add_to_both(y, x, z, n=4)
    second = OPS.add_to_both(y, x)
    second.mul_(2)
    return first, second, y, z


def lists(x: Tensor) -> tuple[Tensor, ...]:
    y, z = x * 3, x * 2
    OPS.double_all([y, z[1]])
    return y, z


def returns_what_it_wrote(x: Tensor) -> tuple[Tensor, ...]:
    y = x * 3
    z = OPS.halve(y)
    z.add_(1)
    return y, z


def several_results(x: Tensor) -> tuple[Tensor, ...]:
    y = x * 3
    low, high = OPS.min_max(y)
    return low, high + 1, y


CASES = [whole, through_view, with_result, lists, returns_what_it_wrote, several_results]


class Function(torch.nn.Module):
    def __init__(self, function: Callable[..., Any]) -> None:
        super().__init__()
        self.function = function

    def forward(self, x: Tensor) -> Any:
        return self.function(x)


@pytest.mark.parametrize("function", CASES, ids=lambda f: f.__name__)
def test_a_translation_returns_results_and_new_values(function: Callable[..., Any]) -> None:
    x = torch.randn(2, 3)
    program = onnx_aot.export(Function(function), (x,), custom_translation_table=TABLE)
    for actual, expected in zip(program(x), function(x), strict=True):
        torch.testing.assert_close(actual, expected)
    captured = program.exported_program
    assert captured is not None
    assert any(node.target == FUNCTIONALIZED for node in captured.graph.nodes)
    torch.export.save(captured, io.BytesIO())


def test_a_mutated_input_is_an_output() -> None:
    def to_input(x: Tensor) -> Tensor:
        OPS.add_one(x)
        return x * 2

    with pytest.warns(OnnxExporterWarning, match="x_out"):
        program = onnx_aot.export(
            Function(to_input), (torch.zeros(2),), custom_translation_table=TABLE
        )
    for actual, expected in zip(program(torch.zeros(2)), (2.0, 1.0), strict=True):
        torch.testing.assert_close(actual, torch.full((2,), expected))


def test_a_function_written_for_torch_onnx() -> None:
    def add_to_both(x: Any, y: Any, z: Any = None, *, n: int = 2) -> Any:
        new = x + y * n
        return (new - y, new) if z is None else (new - y, new, z * n)

    x = torch.randn(2, 3)
    program = onnx_aot.export(
        Function(with_result), (x,), custom_translation_table={OPS.add_to_both.default: add_to_both}
    )
    for actual, expected in zip(program(x), with_result(x), strict=True):
        torch.testing.assert_close(actual, expected)


class Twice(torch.nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        y = x * 3
        OPS.add_one(y)
        OPS.add_one(y[0])
        return y


def test_an_unknown_operator_names_itself() -> None:
    with pytest.raises(UnsupportedOperatorError) as caught:
        onnx_aot.export(Twice(), (torch.ones(2),))
    (entry,) = caught.value.operators
    assert (entry.target, entry.count) == ("onnx_aot_writes.add_one.default", 2)
    assert entry.schema == "onnx_aot_writes::add_one(Tensor(a!) x) -> ()"
    for location, code in zip(entry.locations, ("add_one(y)", "add_one(y[0])"), strict=True):
        assert location.startswith(f"{__file__}:")
        assert location.endswith(f"in forward: OPS.{code}")
    message = str(caught.value)
    assert "def onnx_aot_writes_add_one_default(op, x):" in message
    assert "# return the new value of x;" in message


def test_the_stub_says_what_to_return() -> None:
    with pytest.raises(UnsupportedOperatorError) as caught:
        onnx_aot.export(Function(with_result), (torch.ones(2),))
    assert "the new value of x, z" in str(caught.value)


def test_a_translation_that_returns_too_few() -> None:
    with pytest.raises(
        onnx_aot.OnnxExporterError, match=r"add_to_both\.default returned one value"
    ):
        onnx_aot.export(
            Function(with_result),
            (torch.ones(2),),
            custom_translation_table={OPS.add_to_both.default: lambda op, x, y, z, n: op.Add(x, y)},
        )


# torch itself uses a deprecated form
@pytest.mark.filterwarnings("ignore:.*LeafSpec.*:FutureWarning")
def test_what_torch_functionalized_names_itself() -> None:
    captured = torch.export.export(Function(whole), (torch.ones(2),)).run_decompositions({})
    with pytest.raises(UnsupportedOperatorError) as caught:
        onnx_aot.export(captured, custom_translation_table=TABLE)
    (entry,) = caught.value.operators
    assert (entry.target, entry.count) == ("onnx_aot_writes.add_one.default", 2)
    assert "run_decompositions wrapped the call" in entry.reason
