"""Numbers as inputs, registered classes, and less common forms of dynamic shapes."""

from __future__ import annotations

import dataclasses
import math
from typing import Any

import pytest
import torch
from torch.export import Dim

import onnx_aot
from onnx_aot.errors import DynamicShapeError
from tests.capture.sizes.declared_shapes import shapes

Tensor = torch.Tensor
X = torch.arange(12.0).reshape(4, 3)


def names(program: onnx_aot.ONNXProgram) -> list[Any]:
    return [value.name for value in program.model.graph.inputs]


# --- numbers -------------------------------------------------------------------------------------


def repeat(x: Tensor, n: int) -> Tensor:
    return x.repeat(n, 1) + n


@pytest.mark.parametrize(
    "given",
    [
        {"n": "n"},
        {"n": Dim("n", min=1, max=9)},
        {"n": Dim.DYNAMIC},
        {"n": Dim.AUTO},
        (None, "n"),
    ],
    ids=str,
)
def test_an_int_is_an_input(given: Any) -> None:
    program = onnx_aot.export(repeat, (X, 3), dynamic_shapes=given, input_names=["x", "times"])
    assert names(program) == ["x", "times"]
    assert shapes(program) == [[4, 3], []]
    for n in (1, 3, 5):
        torch.testing.assert_close(program(X, n)[0], repeat(X, n))


def test_the_name_of_a_number_is_in_sizes() -> None:
    program = onnx_aot.export(repeat, (X, 3), dynamic_shapes=({0: "rows"}, "times"))
    (output,) = program.model.graph.outputs
    assert [str(d) for d in output.shape] == ["rows*times", "3"]


def arithmetic(x: Tensor, scale: float) -> tuple[Tensor, Tensor, Tensor]:
    return (
        x * scale + math.sqrt(scale) + scale**2,
        x.long() * scale,  # a Python float gives float32; a float64 tensor would not
        torch.full((2,), scale).clamp(max=0.75),
    )


@pytest.mark.parametrize("given", [{"scale": "scale"}, {"scale": Dim.DYNAMIC}, (None, Dim.AUTO)])
def test_a_float_is_an_input(given: Any) -> None:
    program = onnx_aot.export(arithmetic, (X, 0.5), dynamic_shapes=given, verify=True)
    assert shapes(program) == [[4, 3], []]
    for scale in (0.25, 1.5):
        for got, wanted in zip(program(X, scale), arithmetic(X, scale), strict=True):
            torch.testing.assert_close(got, wanted)


def test_floats_in_containers_and_keywords() -> None:
    def forward(x: Tensor, options: dict[str, Any], *, bias: float) -> Tensor:
        return x * options["scale"] + options["steps"] + bias

    program = onnx_aot.export(
        forward,
        (X, {"scale": 0.5, "steps": 2}),
        kwargs={"bias": 0.25},
        dynamic_shapes={"x": {0: "n"}, "options": {"scale": "s"}, "bias": "b"},
    )
    assert names(program) == ["x", "options_scale", "bias"]
    got = program(X[:2], {"scale": 3.0, "steps": 2}, bias=-1.0)[0]
    torch.testing.assert_close(got, X[:2] * 3 + 2 - 1)


def test_a_bool_is_not() -> None:
    def flip(x: Tensor, negative: bool) -> Tensor:
        return -x if negative else x

    with pytest.raises(DynamicShapeError, match=r"bool True: .+torch\.tensor\(True\) and choose"):
        onnx_aot.export(flip, (X, True), dynamic_shapes={"negative": "negative"})


def test_one_name_for_everything_leaves_numbers_alone() -> None:
    def forward(x: Tensor, d: dict[str, Any], k: int, mode: str) -> Tensor:
        return x.sum(0) * d["a"].sum(0) * d["f"] * k

    program = onnx_aot.export(forward, (X, {"a": X, "f": 2.0}, 3, "m"), dynamic_shapes="batch")
    assert shapes(program) == [["batch", 3], ["batch", 3]]
    with pytest.raises(DynamicShapeError, match=r"for mode, .* str and has no dimensions"):
        onnx_aot.export(forward, (X, {"a": X, "f": 2.0}, 3, "m"), dynamic_shapes={"mode": "m"})


def test_a_tensor_without_dimensions() -> None:
    with pytest.raises(DynamicShapeError, match=r"for k, .*without dimensions; leave it out"):
        onnx_aot.export(lambda x, k: x * k, (X, torch.tensor(2)), dynamic_shapes={"k": "k"})


# --- containers ----------------------------------------------------------------------------------


@dataclasses.dataclass
class State:
    hidden: Tensor
    layers: list[Tensor]


class TakesState(torch.nn.Module):
    def forward(self, state: State) -> Tensor:
        return state.hidden.sum() + state.layers[0].sum() * state.layers[1].sum()


@pytest.mark.parametrize(
    "given",
    [
        {"state": {"hidden": {0: "h"}, "layers": [None, {1: "l"}]}},
        {"state": [{0: "h"}, [None, {1: "l"}]]},
        ([{0: "h"}, None, {1: "l"}],),  # one entry per tensor
        {"state_hidden": {0: "h"}, "state_layers_1": {1: "l"}},
        {"state.hidden": {0: "h"}, "state.layers[1]": {1: "l"}},
        {"first": {0: "h"}, "third": {1: "l"}},
    ],
    ids=str,
)
def test_dataclasses(given: Any) -> None:
    program = onnx_aot.export(
        TakesState(),
        (State(X, [X, X]),),
        dynamic_shapes=given,
        input_names=["first", "second", "third"],
    )
    assert shapes(program) == [["h", 3], [4, 3], [4, "l"]]


def test_a_dimension_of_a_dataclass_that_is_fixed() -> None:
    def forward(state: State) -> Tensor:
        return state.hidden.view(4, 3).sum() + state.layers[0].sum()

    with pytest.raises(DynamicShapeError) as caught:
        onnx_aot.export(forward, (State(X, [X]),), dynamic_shapes={"state": "batch"})
    assert "  state.hidden, axis 0 ('batch'): fixed at 4\n" in str(caught.value)
    assert "in forward\n" in str(caught.value)


def test_unknown_fields_of_a_dataclass() -> None:
    with pytest.raises(DynamicShapeError, match=r"'cell' in state, .* 'hidden', 'layers'"):
        onnx_aot.export(
            TakesState(), (State(X, [X, X]),), dynamic_shapes={"state": {"cell": {0: "c"}}}
        )


class TakesAny(torch.nn.Module):
    def forward(self, *tensors: Tensor, **more: Tensor) -> Tensor:
        total = tensors[0].sum() + tensors[1].sum()
        return total + sum(tensor.sum() for tensor in more.values())


@pytest.mark.parametrize(
    "given", [({0: "n"}, {1: "m"}), {"tensors": ({0: "n"}, {1: "m"})}, {"tensors[0]": ["n", 3]}]
)
def test_variable_arguments(given: Any) -> None:
    program = onnx_aot.export(TakesAny(), (X, X), dynamic_shapes=given)
    assert shapes(program)[0] == ["n", 3]


@pytest.mark.parametrize("given", [{"more": {"k": {0: "n"}}}, {"k": {0: "n"}}])
def test_variable_keywords(given: Any) -> None:
    program = onnx_aot.export(TakesAny(), (X, X), kwargs={"k": X}, dynamic_shapes=given)
    assert shapes(program) == [[4, 3], [4, 3], ["n", 3]]


def test_named_tuples_by_field() -> None:
    with_fields = torch.return_types.max((X, X.long()))  # a struct sequence is a tuple

    def forward(pair: Any) -> Tensor:
        return pair[0].sum() + pair[1].sum()

    program = onnx_aot.export(
        forward, (tuple(with_fields),), dynamic_shapes={"pair": [{0: "n"}, None]}
    )
    assert shapes(program) == [["n", 3], [4, 3]]


def test_derived_dims_and_hints_with_limits() -> None:
    n = Dim("n", max=20)

    def forward(x: Tensor, y: Tensor, z: Tensor) -> Tensor:
        return x[1:] + y + z.sum()

    program = onnx_aot.export(
        forward,
        (torch.ones(5, 3), X, X),
        dynamic_shapes=({0: n + 1}, {0: n}, {0: Dim.DYNAMIC(min=2, max=9), 1: Dim.AUTO(min=1)}),
    )
    assert shapes(program) == [["n + 1", 3], ["n", 3], ["z_dim_0", "z_dim_1"]]


# --- dynamic_axes --------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("axes", "message"),
    [
        ({"x": [0], "out": [1]}, r"axis 1 of the output 'out', .*\[3\]"),
        ({"x": [0], "out": {"0": "n"}}, "axis '0' of the output 'out'"),
        ({"x": [0], "out": 0}, "gives 0 for 'out'"),
        ({"x": [0], "oot": [0]}, "'oot', which is neither .+ known are x, y, out"),
        ({"x": [2]}, "axis 2 of x"),
    ],
)
def test_dynamic_axes_that_do_not_fit(axes: Any, message: str) -> None:
    with pytest.raises(DynamicShapeError, match=message):
        onnx_aot.export(
            lambda x, y: x.sum(0) + y.sum(0),
            (X, X),
            dynamic_axes=axes,
            output_names=["out"],
        )


def test_dynamic_axes_of_a_dataclass() -> None:
    program = onnx_aot.export(
        TakesState(),
        (State(X, [X, X]),),
        dynamic_axes={"hidden": {0: "h"}, "state_layers_1": [1], "out": {}},
        input_names=["hidden"],
        output_names=["out"],
    )
    assert shapes(program) == [["h", 3], [4, 3], [4, "state_layers_1_dim_1"]]
