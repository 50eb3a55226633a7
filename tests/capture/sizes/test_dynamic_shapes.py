"""Every form of requesting dynamic dimensions, and the requests that are rejected."""

from __future__ import annotations

import collections
import math
import warnings
from typing import Any

import pytest
import torch
from torch.export import Dim

import onnx_aot
from onnx_aot.errors import (
    DynamicShapeError,
    FunctionalizationError,
    InferenceError,
    OnnxExporterWarning,
)

Tensor = torch.Tensor
X, Y = torch.randn(4, 3), torch.randn(4, 3)


class Sum(torch.nn.Module):
    def forward(self, x: Tensor, y: Tensor) -> Tensor:
        return x.sum(0) + y.sum(0)


class Nested(torch.nn.Module):
    def forward(self, x: Tensor, d: dict[str, Any], values: list[Tensor], n: int = 2) -> Tensor:
        total = x.sum() + d["a"].sum() + d["b"][0].sum()
        return total + sum(value.sum() for value in values) * n


class Keywords(torch.nn.Module):
    def forward(self, x: Tensor, **more: Tensor) -> Tensor:
        return x.sum() + more["first"].sum() * more["second"].sum()


def shapes(program: onnx_aot.ONNXProgram) -> list[list[Any]]:
    return [
        [d if isinstance(d, int) else d.value for d in value.shape]
        for value in program.model.graph.inputs
    ]


@pytest.mark.parametrize(
    "given",
    [
        {"x": {0: "n"}, "y": {0: "m"}},
        ({0: "n"}, {0: "m"}),
        [{0: "n"}, {0: "m"}],
        {"x": {0: "n"}, "y": ["m", None]},
        {"x": {0: "n", 1: None}, "y": {0: "m", 1: 3}},
        {"x": {-2: "n"}, "y": ("m", Dim.STATIC)},
        {"x": {0: Dim("n")}, "y": {0: Dim("m", min=2, max=100)}},
        {"x": "n", "y": "m"},
        {"a": {0: "n"}, "b": {0: "m"}},
        {"a": {0: "n"}, "y": {0: "m"}},
    ],
    ids=str,
)
def test_forms(given: Any) -> None:
    program = onnx_aot.export(Sum(), (X, Y), dynamic_shapes=given, input_names=["a", "b"])
    assert shapes(program) == [["n", 3], ["m", 3]]
    torch.testing.assert_close(program(X[:3], Y[:2])[0], Sum()(X[:3], Y[:2]))


def test_what_is_not_mentioned_is_static() -> None:
    assert shapes(onnx_aot.export(Sum(), (X, Y))) == [[4, 3], [4, 3]]
    assert shapes(onnx_aot.export(Sum(), (X, Y), dynamic_shapes=({0: "n"},))) == [["n", 3], [4, 3]]
    program = onnx_aot.export(Sum(), (X, Y), dynamic_shapes={"y": {0: "n"}})
    assert shapes(program) == [[4, 3], ["n", 3]]


def test_one_name_for_the_first_dimension_of_everything() -> None:
    program = onnx_aot.export(Sum(), (X, Y), dynamic_shapes="batch")
    assert shapes(program) == [["batch", 3], ["batch", 3]]


@pytest.mark.parametrize("hint", [Dim.DYNAMIC, Dim.AUTO])
def test_dimensions_without_a_name_are_named_after_the_input(hint: Any) -> None:
    program = onnx_aot.export(
        Sum(), (X, Y), dynamic_shapes=({0: hint, 1: hint}, {1: hint}), input_names=["a"]
    )
    assert shapes(program) == [["a_dim_0", "a_dim_1"], [4, "a_dim_1"]]


def test_derived_dimensions_are_expressions_over_the_names() -> None:
    n = Dim("n")

    class Halves(torch.nn.Module):
        def forward(self, x: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
            return x[::2] + y, torch.cat([y, y, y])[1:]

    program = onnx_aot.export(Halves(), (X, Y[:2]), dynamic_shapes=({0: 2 * n}, {0: n}))
    assert shapes(program) == [["2*n", 3], ["n", 3]]
    outputs = [value.shape[0].value for value in program.model.graph.outputs]
    assert outputs == ["n", "max(0, 3*n - 1)"]


def test_nested_inputs() -> None:
    args = (X, {"a": X, "b": (X,)}, [X, X], 3)
    module = Nested()
    for given in (
        ({0: "n"}, {"a": {1: "m"}, "b": ({0: "k"},)}, [None, {0: "l"}], None),
        {"x": {0: "n"}, "d": {"a": {1: "m"}, "b": [{0: "k"}]}, "values": [None, {0: "l"}]},
        {"x": {0: "n"}, "d_a": {1: "m"}, "d['b'][0]": {0: "k"}, "values_1": {0: "l"}},
    ):
        program = onnx_aot.export(module, args, dynamic_shapes=given)
        assert shapes(program) == [["n", 3], [4, "m"], ["k", 3], [4, 3], ["l", 3]]
    fewer = (X[:2], {"a": X[:, :2], "b": (X[:3],)}, [X, X[:1]], 3)
    torch.testing.assert_close(program(*fewer)[0], module(*fewer))


@pytest.mark.parametrize(
    "given", [({0: "n", 1: "m"},), (({0: "n", 1: "m"},),), ({0: {0: "n", 1: "m"}},)]
)
def test_one_value_of_args(given: Any) -> None:
    class Star(torch.nn.Module):
        def forward(self, *tensors: Tensor) -> Tensor:
            return tensors[0] * 2

    program = onnx_aot.export(Star(), (X,), dynamic_shapes=given)
    assert shapes(program) == [["n", "m"]]
    torch.testing.assert_close(program(X[:2, :2])[0], X[:2, :2] * 2)


def test_containers_of_other_kinds() -> None:
    Pair = collections.namedtuple("Pair", ["left", "right"])

    class TakesPair(torch.nn.Module):
        def forward(self, pair: Any, ordered: Any) -> Tensor:
            return pair.left.sum() + pair.right.sum() + ordered["z"].sum() + ordered["a"].sum()

    args = (Pair(X, Y), collections.OrderedDict(z=X, a=Y))
    given = ([{0: "l"}, {0: "r"}], {"a": {0: "k"}})
    program = onnx_aot.export(TakesPair(), args, dynamic_shapes=given)
    assert shapes(program) == [["l", 3], ["r", 3], [4, 3], ["k", 3]]


def test_keyword_inputs_in_any_order() -> None:
    given = {"second": {0: "s"}, "x": {0: "n"}, "first": {1: "f"}}
    program = onnx_aot.export(
        Keywords(), (X,), kwargs={"second": Y, "first": X}, dynamic_shapes=given
    )
    assert [value.name for value in program.model.graph.inputs] == ["x", "second", "first"]
    assert shapes(program) == [["n", 3], ["s", 3], [4, "f"]]


@pytest.mark.parametrize("size", [0, 1])
def test_example_sizes_0_and_1_stay_dynamic(size: int) -> None:
    program = onnx_aot.export(Sum(), (X[:size], Y), dynamic_shapes=({0: "n"}, {0: "m"}))
    assert shapes(program) == [["n", 3], ["m", 3]]
    torch.testing.assert_close(program(X, Y)[0], Sum()(X, Y))


# --- dynamic_axes --------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("axes", "expected"),
    [
        ({"a": {0: "n"}, "b": {0: "m"}, "out": {0: "k"}}, [["n", 3], ["m", 3]]),
        ({"a": [0], "out": [0]}, [["a_dim_0", 3], [4, 3]]),
        ({"a": [0, 1], "y": {1: "w"}}, [["a_dim_0", "w"], [4, "w"]]),
    ],
)
def test_dynamic_axes(axes: Any, expected: list[list[Any]]) -> None:
    program = onnx_aot.export(
        Sum(), (X, Y), dynamic_axes=axes, input_names=["a", "b"], output_names=["out"]
    )
    assert shapes(program) == expected


def test_dynamic_axes_of_nested_inputs_by_input_names() -> None:
    program = onnx_aot.export(
        Nested(),
        (X, {"a": X, "b": (X,)}, [X, X]),
        input_names=["first", "second", "third"],
        dynamic_axes={"second": {0: "s"}, "third": {1: "t"}, "values_0": [0]},
    )
    assert shapes(program) == [[4, 3], ["s", 3], [4, "t"], ["values_0_dim_0", 3], [4, 3]]


# --- refusals ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"z": {0: "n"}}, "'z', which is not an input; .* x, y"),
        (({0: "n"}, None, None), "3 entries, the model got 2 arguments: x, y"),
        (3, "dynamic_shapes is int"),
        ({"x": {2: "n"}}, r"axis 2 of x, whose shape is \[4, 3\]"),
        ({"x": {"n": 0}}, "axis 'n' of x"),
        ({"x": ["n"]}, "1 dimensions for x, which has 2"),
        ({"x": 3}, "gives 3 for x"),
    ],
)
def test_requests_that_do_not_fit(given: Any, message: str) -> None:
    with pytest.raises(DynamicShapeError, match=message):
        onnx_aot.export(Sum(), (X, Y), dynamic_shapes=given)


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"d": {"c": {0: "n"}}}, "'c' in d, which has 'a', 'b'"),
        ({"values": [None, None, None]}, "3 entries for values, which holds 2"),
        ({"d": 3}, "gives 3 for d, which is a container"),
        ({"n": {0: "n"}}, "for n, .* int and has no dimensions"),
    ],
)
def test_nested_requests_that_do_not_fit(given: Any, message: str) -> None:
    with pytest.raises(DynamicShapeError, match=message):
        onnx_aot.export(Nested(), (X, {"a": X, "b": (X,)}, [X, X], 2), dynamic_shapes=given)


def test_inputs_of_a_model_that_wraps_another_one() -> None:
    wrapped = torch.nn.DataParallel(Sum())
    with pytest.raises(DynamicShapeError, match=r"inputs is a tuple: .* export that one, or give"):
        onnx_aot.export(wrapped, (X, Y), dynamic_shapes={"x": {0: "n"}, "y": {0: "n"}})
    program = onnx_aot.export(wrapped, (X, Y), dynamic_shapes=({0: "n"}, {0: "n"}))
    assert [str(value.shape) for value in program.model.graph.inputs] == ["[n,3]", "[n,3]"]


def test_dynamic_axes_that_name_nothing() -> None:
    with pytest.raises(DynamicShapeError, match="'z', which is neither an input"):
        onnx_aot.export(Sum(), (X, Y), dynamic_axes={"z": [0]})
    with pytest.raises(DynamicShapeError, match="gives 0 for 'x'"):
        onnx_aot.export(Sum(), (X, Y), dynamic_axes={"x": 0})  # type: ignore[dict-item]
    with pytest.raises(DynamicShapeError, match=r"expected a dict .* such as {'x': {0: \"batch"):
        onnx_aot.export(Sum(), (X, Y), dynamic_axes=["x"])  # type: ignore[arg-type]


class Specializes(torch.nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return x.view(2, 2, 3)


@pytest.mark.parametrize(
    ("dimension", "name"), [("n", " ('n')"), (Dim.DYNAMIC, ""), (Dim("n"), " ('n')")]
)
@pytest.mark.parametrize("nested", [False, True])
def test_a_dimension_that_the_model_fixes_is_an_error(
    dimension: Any, name: str, nested: bool
) -> None:
    def fixes(x: Any) -> Tensor:
        tensor = x["a"] if nested else x
        return tensor + torch.ones(4, 3)

    name = ("x['a'], axis 0" if nested else "x, axis 0") + name
    given = {"a": {0: dimension}} if nested else {0: dimension}
    with pytest.raises(DynamicShapeError) as caught:
        onnx_aot.export(fixes, ({"a": X} if nested else X,), dynamic_shapes=(given,))
    message = str(caught.value)
    line = fixes.__code__.co_firstlineno + 2
    assert f"  {name}: fixed at 4\n" in message
    assert f"      at {__file__}:{line} in fixes\n" in message
    assert "leave it out of dynamic_shapes" in message


def test_a_condition_on_a_named_dimension_is_an_error() -> None:
    def branches(x: Tensor) -> Tensor:
        return x * 2 if x.shape[0] > 3 else x.sum()

    with pytest.raises(DynamicShapeError) as caught:
        onnx_aot.export(branches, (X,), dynamic_shapes=({0: Dim("n")},))
    assert "x, axis 0 ('n'): limited to x.shape[0] > 3" in str(caught.value)
    assert "write torch.export.Dim('n', min=4)" in str(caught.value)


def test_a_dimension_that_came_out_static_in_the_end() -> None:
    """The write has no functional form, and torch's own functionalization specializes the size."""

    def windows(x: Tensor) -> Tensor:
        y = x * 2
        y.unfold(1, 2, 2).view(torch.int32).add_(1)
        return y

    named, view = ({0: "n"},), r"a view made by aten\.view\.dtype"
    with pytest.raises(DynamicShapeError, match="fixed at 3"):
        onnx_aot.export(windows, (torch.ones(3, 4),), dynamic_shapes=named)
    with pytest.raises(FunctionalizationError, match=f"{view}.*dynamic dimensions static"):
        onnx_aot.export(windows, (torch.ones(1, 4),), dynamic_shapes=named)


def test_a_condition_that_binds_a_dimension_to_the_example() -> None:
    def function(x: Tensor) -> Tensor:
        return x * math.isqrt(x.shape[0] * 3 // 2)

    x = torch.ones(4, 2)
    with pytest.raises(
        DynamicShapeError, match=r"x, axis 0 \('n'\): fixed at \d: captured for"
    ) as caught:
        onnx_aot.export(function, (x,), dynamic_shapes=({0: "n"},))
    assert "== 6" in str(caught.value)
    with pytest.warns(OnnxExporterWarning, match="outside of x, axis 0: 4 to 4, by"):
        onnx_aot.export(function, (x,), dynamic_shapes=({0: Dim.AUTO},))


def test_a_condition_that_binds_a_dimension_to_sizes_around_the_example() -> None:
    def tenth(x: Tensor) -> Tensor:
        return x[: math.isqrt(x.shape[0] // 10)]

    with pytest.raises(DynamicShapeError, match=r"'n'\): right for 20 to 29 only"):
        onnx_aot.export(tenth, (torch.ones(25, 2),), dynamic_shapes=({0: "n"},))
    with pytest.warns(OnnxExporterWarning, match="wrong outside of x, axis 0: 0 to 9"):
        onnx_aot.export(tenth, (torch.ones(4, 2),), dynamic_shapes=({0: "n"},))


@pytest.mark.parametrize("size", [2, 6, 40])
def test_bounds_and_multiples_bind_nothing(size: int) -> None:
    """The position table bounds the length, and pairing requires an even length."""
    table = torch.randn(50)

    def forward(x: Tensor) -> Tensor:
        return (x + table[: x.shape[0]]).reshape(-1, 2)

    program = onnx_aot.export(forward, (torch.ones(size),), dynamic_shapes=({0: "n"},))
    torch.testing.assert_close(program(torch.ones(24))[0], forward(torch.ones(24)))


def mean(x: Tensor, y: Tensor) -> Tensor:
    return y.sum(0) / y.shape[0] + x.shape[0]


@pytest.mark.parametrize("given", [({0: "n"}, {0: "n"}), ({0: Dim("n")}, {0: "n"})])
def test_a_name_stands_for_one_size(given: Any) -> None:
    with pytest.raises(DynamicShapeError, match=r"'n' .*: x, axis 0 is 4, y, axis 0"):
        onnx_aot.export(mean, (X, torch.ones(5, 3)), dynamic_shapes=given)
    program = onnx_aot.export(mean, (X, X), dynamic_shapes=given)
    assert shapes(program) == [["n", 3], ["n", 3]]
    torch.testing.assert_close(program(Y, Y)[0], mean(Y, Y))
    with pytest.raises(InferenceError, match="n is 4 in input x, axis 0, and 5 in"):
        program(X, torch.ones(5, 3))


def test_a_dimension_without_a_name_gets_one_of_its_own() -> None:
    x, y = X, torch.ones(5, 3)
    program = onnx_aot.export(mean, (x, y), dynamic_shapes=({0: Dim.DYNAMIC}, {0: "x_dim_0"}))
    assert shapes(program) == [["x_dim_0_1", 3], ["x_dim_0", 3]]
    torch.testing.assert_close(program(x, y)[0], mean(x, y))


def test_a_size_that_only_data_tells_has_a_name_of_its_own() -> None:
    def count(x: Tensor) -> Tensor:
        return x.nonzero().shape[0] * 10 + x.shape[0] + torch.zeros(())

    x = torch.tensor([1.0, 0.0, 1.0])
    program = onnx_aot.export(count, (x,), dynamic_shapes=({0: "u0"},))
    assert shapes(program) == [["u0"]]
    torch.testing.assert_close(program(x)[0], count(x))


def test_dimensions_that_are_always_equal_are_reported() -> None:
    def add(x: Tensor, y: Tensor) -> Tensor:
        return x + y

    with pytest.warns(OnnxExporterWarning, match=r"y, axis 0 \('b'\) always equals 'a'"):
        program = onnx_aot.export(add, (X, Y), dynamic_shapes=({0: "a"}, {0: "b"}))
    assert shapes(program) == [["a", 3], ["a", 3]]


def test_a_dynamic_number_is_an_input() -> None:
    def repeat(x: Tensor, n: int) -> Tensor:
        return x.repeat(n, 1) + n

    program = onnx_aot.export(repeat, (X, 3), dynamic_shapes=({0: "rows"}, Dim.DYNAMIC))
    assert shapes(program) == [["rows", 3], []]
    torch.testing.assert_close(program(Y[:2], 5)[0], repeat(Y[:2], 5))


@pytest.mark.parametrize("dimension", [True, 1.5, {}])
def test_what_is_no_dimension(dimension: Any) -> None:
    with pytest.raises(DynamicShapeError, match=r"for x, axis 0; a dimension is a name"):
        onnx_aot.export(Sum(), (X, Y), dynamic_shapes=({0: dimension}, None))


def test_auto_accepts_a_fixed_dimension() -> None:
    program = onnx_aot.export(Specializes(), (X,), dynamic_shapes=({0: Dim.AUTO},))
    assert shapes(program) == [[4, 3]]


@pytest.mark.parametrize("last", ["view", "unfold"])
def test_windows_of_a_padded_size_limit_no_dim(last: str) -> None:
    """torch compares strides, which tell whether there is a single window."""

    def windows(x: Tensor) -> Tensor:
        n, c, h, w = x.shape
        x = torch.nn.functional.pad(x, (0, -w % 4, 0, -h % 4))
        if last == "unfold":
            return (
                x.unfold(2, 4, 4).unfold(3, 4, 4).permute(0, 2, 3, 1, 4, 5).reshape(n, -1, 16 * c)
            )
        height, width = x.shape[2] // 4, x.shape[3] // 4
        return x.view(n * c, height, 4, width, 4).transpose(2, 3).reshape(-1, 16)

    dims = {0: Dim("n"), 2: Dim("h"), 3: Dim("w")}
    program = onnx_aot.export(windows, (torch.randn(2, 3, 7, 10),), dynamic_shapes=(dims,))
    for shape in ((1, 3, 3, 2), (1, 3, 2, 9), (2, 3, 11, 4), (3, 3, 8, 5)):
        x = torch.randn(shape)
        torch.testing.assert_close(program(x)[0], windows(x))


def positions(document: Tensor, x: Tensor) -> Tensor:
    """Counts from the beginning of each document of a packed row."""
    begins = torch.nn.functional.pad(document[:, 1:] != document[:, :-1], (1, 0), value=True)
    steps = torch.arange(x.shape[1])
    return steps - torch.where(begins, steps, 0).cummax(1).values + x


@pytest.mark.parametrize("seq", ["seq", Dim("seq", min=1)])
def test_dimensions_of_one_name_keep_it(seq: Any) -> None:
    """The mask's length, ``max(0, seq - 1) + 1``, is compared with that of another input."""
    dims = {0: "batch", 1: seq} if seq == "seq" else {0: Dim("batch", min=1), 1: seq}
    inputs = (torch.tensor([[0, 0, 1, 1, 1]] * 2), torch.randn(2, 5))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        program = onnx_aot.export(positions, inputs, dynamic_shapes=(dims, dims))
    assert shapes(program) == [["batch", "seq"]] * 2
    for rows, length in ((1, 5), (3, 1), (2, 8)):
        document = torch.randint(0, 3, (rows, length)).sort(1).values
        x = torch.randn(rows, length)
        torch.testing.assert_close(program(document, x)[0], positions(document, x))
