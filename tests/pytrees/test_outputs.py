"""Outputs are returned in the structure of the module's results."""

from __future__ import annotations

import collections
import dataclasses
import enum
from typing import Any, NamedTuple

import pytest
import torch
from torch import Tensor
from torch.utils import _pytree as pytree

import onnx_aot
from onnx_aot.errors import InvalidOptionError
from onnx_aot.program.program import ONNXProgram

X = torch.arange(6.0).reshape(2, 3)


class Mode(enum.Enum):
    FAST = 1


class Pair(NamedTuple):
    a: Any
    b: Any


@dataclasses.dataclass
class Result:
    value: Any
    more: Any = None
    mode: Mode = Mode.FAST


@dataclasses.dataclass(frozen=True)
class Frozen:
    value: Any
    size: int = 0


class Tagged(dict[str, Any]):
    """A dict with an attribute."""

    note = "none"


def _same(actual: Any, expected: Any) -> None:
    left, right = pytree.tree_flatten(actual), pytree.tree_flatten(expected)
    assert left[1] == right[1]
    for a, b in zip(left[0], right[0], strict=True):
        assert type(a) is type(b)
        if isinstance(a, Tensor):
            torch.testing.assert_close(a, b)
        else:
            assert a == b


RETURNED = {
    "one tensor": lambda x: x + 1,
    "one number": lambda x: 3,
    "numbers": lambda x: (x + 1, 3, 2.5, True, False),
    "None and strings": lambda x: {"a": None, "b": [x + 1, None, "text"], "c": ""},
    "types": lambda x: (x.dtype, x + 1, x.device, Mode.FAST),
    "the input, twice": lambda x: (x, x + 1, x),
    "one value twice": lambda x: [y := x + 1, y, {"again": y}],
    "a shape": lambda x: (x.shape, x.sum()),
    "named tuple": lambda x: Pair(x + 1, Pair(None, x)),
    "torch's named tuple": lambda x: x.max(dim=0),
    "ordered dict": lambda x: collections.OrderedDict(z=x + 1, a=x + 2),
    "dict, unsorted": lambda x: {"z": x + 1, "a": x + 2},
    "empty containers": lambda x: (x + 1, [], {}, ()),
    "dataclass": lambda x: Result(x + 1, more=[Frozen(x, 3), 7]),
    "frozen dataclass": lambda x: Frozen(x * 2),
    "subclass of dict": lambda x: Tagged(a=x + 1, b=None),
    "complex": lambda x: {"z": torch.complex(x, x + 1), "n": 1},
    "nested": lambda x: (Result([{"k": (x, None)}]), Pair(Result(1), "end")),
}


@pytest.mark.parametrize("name", RETURNED)
def test_structured(name: str) -> None:
    model = RETURNED[name]
    program = onnx_aot.export(model, (X,), verify=True)
    expected = model(X)
    _same(program(X, structured=True), expected)
    flat = program(X)
    assert isinstance(flat, tuple)
    assert all(isinstance(output, Tensor) for output in flat)
    _same(program.unflatten(flat), expected)


def test_sizes_become_numbers() -> None:
    def model(x: Tensor) -> Any:
        n = x.shape[0]
        return Result(n, more=(n * 2 + 1, n * 0.5, Frozen(x + 1, n)))

    program = onnx_aot.export(model, (X,), dynamic_shapes={"x": {0: "n"}})
    for size in (2, 5, 1):
        x = torch.ones(size, 3)
        _same(program(x, structured=True), model(x))


def test_an_input_that_is_a_constant_comes_back() -> None:
    def model(x: Tensor, mode: Mode, text: str, nothing: None, number: int) -> Any:
        return [mode, text, nothing, number, x + 1]

    given = (X, Mode.FAST, "text", None, 3)
    program = onnx_aot.export(model, given)
    _same(program(*given, structured=True), model(*given))


class Counter(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("count", torch.zeros(()))
        self.count: Tensor

    def forward(self, x: Tensor) -> dict[str, Any]:
        self.count += 1
        return {"y": x + self.count, "none": None}


def test_state_is_left_out() -> None:
    with pytest.warns(onnx_aot.OnnxExporterWarning, match="count_out"):
        program = onnx_aot.export(Counter(), (X,))
    flat = program(X)
    assert len(flat) == 2
    expected = {"y": X + 1, "none": None}
    _same(program.unflatten(flat), expected)
    _same(program.unflatten(flat[:1]), expected)
    _same(program(X, structured=True), expected)
    with pytest.raises(InvalidOptionError, match=r"returns 1 values, up to 2 with .* 3 were given"):
        program.unflatten((*flat, X))


def test_an_argument_of_the_model_called_structured() -> None:
    def model(x: Tensor, structured: Tensor) -> dict[str, Tensor]:
        return {"sum": x + structured}

    program = onnx_aot.export(model, (X,), kwargs={"structured": X})
    flat = program(X, structured=X)
    _same(flat, (X + X,))
    _same(program.unflatten(flat), {"sum": X + X})


def test_a_program_that_was_captured_before() -> None:
    captured = torch.export.export(torch.nn.Linear(3, 2), (X,))
    program = onnx_aot.export(captured)
    _same(program(X, structured=True), captured.module()(X))


def test_without_an_exported_program() -> None:
    program = ONNXProgram(onnx_aot.export(lambda x: [x + 1], (X,)).model)
    _same(program(X), (X + 1,))
    for call in (lambda: program.unflatten(program(X)), lambda: program(X, structured=True)):
        with pytest.raises(InvalidOptionError, match="the program has no exported_program"):
            call()


# --- names ---------------------------------------------------------------------------------------


@dataclasses.dataclass
class Scores:
    logits: Tensor
    hidden: tuple[Tensor, ...] = ()


class Returns(torch.nn.Module):
    def __init__(self, build: Any) -> None:
        super().__init__()
        self.build = build
        self.offset = torch.nn.Buffer(torch.ones(3))

    def forward(self, x: Tensor) -> Any:
        return self.build(x + self.offset)


NAMED: dict[str, tuple[Any, list[str]]] = {
    "a dataclass": (lambda x: Scores(x + 1, (x, x * 2)), ["logits", "hidden.0", "hidden.1"]),
    "a named tuple": (lambda x: Pair(x + 1, Pair(x * 2, [x * 3])), ["a", "b.a", "b.b.0"]),
    "a dict": (lambda x: {"out": x + 1, "aux": {"low": x * 2}}, ["out", "aux.low"]),
    "an ordered dict": (lambda x: collections.OrderedDict(b=x + 1, a=x * 2), ["b", "a"]),
    "values without outputs": (lambda x: {"mode": "fast", "none": None, "y": x * 2}, ["y"]),
    "the name of an input": (lambda x: {"x": x * 2, "y": x * 3}, ["x_1", "y"]),
    "the name of a buffer": (lambda x: {"offset": x * 2}, ["offset_1"]),
    "one value twice": (lambda x: {"y": x * 2, "z": x}, ["y", "z"]),
    "keys that are no names": (lambda x: {0: x * 2, "a b": x * 3}, ["mul", "mul_1"]),
    "a tuple": (lambda x: (x * 2, {"y": x * 3}), ["mul", "mul_1"]),
}


@pytest.mark.parametrize(("build", "names"), NAMED.values(), ids=NAMED.keys())
def test_outputs_have_the_names_of_fields(build: Any, names: list[str]) -> None:
    program = onnx_aot.export(Returns(build), (X,))
    assert [output.name for output in program.model.graph.outputs] == names
    wanted = [leaf for leaf in pytree.tree_leaves(Returns(build)(X)) if isinstance(leaf, Tensor)]
    for actual, expected in zip(program(X), wanted, strict=True):
        torch.testing.assert_close(actual, expected)


def test_names_that_are_given_come_first() -> None:
    build = NAMED["a dict"][0]
    program = onnx_aot.export(Returns(build), (X,), output_names=["scores"])
    assert [output.name for output in program.model.graph.outputs] == ["scores", "aux.low"]


def test_a_node_whose_name_is_that_of_a_field() -> None:
    """The output has it, and the node in between another."""
    program = onnx_aot.export(lambda x: {"mul": (x * 2).relu()}, (X,))
    assert [output.name for output in program.model.graph.outputs] == ["mul"]
    torch.testing.assert_close(program(X)[0], (X * 2).relu())
