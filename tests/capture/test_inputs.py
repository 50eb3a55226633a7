"""Example inputs in every form, and calls with the captured arguments and with others."""

from __future__ import annotations

import enum
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor
from torch.testing._internal.two_tensor import TwoTensor

import onnx_aot
from onnx_aot.errors import ConversionError, InferenceError, InvalidOptionError

X = torch.arange(6.0).reshape(2, 3)
Y = X + 10


class Color(enum.Enum):
    RED = 1
    BLUE = 2


class Level(enum.IntEnum):
    LOW = 1
    HIGH = 2


def positional(x: Tensor, y: Tensor) -> Tensor:
    return x - 2 * y


def default(x: Tensor, y: Tensor | None = None, scale: float = 2.0) -> Tensor:
    return x * scale if y is None else x * scale - y


def star(*tensors: Tensor) -> Tensor:
    return tensors[0] - 2 * tensors[1]


def double_star(**tensors: Tensor) -> Tensor:
    return tensors["x"] - 2 * tensors["y"]


def mixed(x: Tensor, *rest: Tensor, scale: float = 1.0, **more: Tensor) -> Tensor:
    return x * scale - rest[0] + more["z"]


def keyword_only(x: Tensor, *, y: Tensor) -> Tensor:
    return x - 2 * y


def in_dict(x: Tensor, options: dict[str, Tensor]) -> Tensor:
    return x - 2 * options["y"]


FORMS: dict[str, tuple[Callable[..., Any], Any, dict[str, Any]]] = {
    "one tensor": (lambda x: x + 1, X, {}),
    "tuple": (positional, (X, Y), {}),
    "list": (positional, [X, Y], {}),
    "dict of keywords at the end": (positional, (X, {"y": Y}), {}),
    "only a dict of keywords": (positional, ({"x": X, "y": Y},), {}),
    "dict that is an argument": (in_dict, (X, {"y": Y}), {}),
    "keywords": (positional, (), {"y": Y, "x": X}),
    "*args": (star, (X, Y), {}),
    "**kwargs": (double_star, (), {"x": X, "y": Y}),
    "everything": (mixed, (X, Y), {"scale": 3.0, "z": X}),
    "keyword only": (keyword_only, (X,), {"y": Y}),
    "defaults": (default, (X,), {}),
    "None for the default": (default, (X, None), {}),
    "some defaults": (default, (X,), {"scale": 3.0}),
    "none at all": (lambda: torch.ones(3) * 2, (), {}),
}


@pytest.mark.parametrize("name", FORMS)
def test_forms(name: str) -> None:
    model, args, kwargs = FORMS[name]
    program = onnx_aot.export(model, args, kwargs=kwargs, verify=True)
    args = (args,) if isinstance(args, Tensor) else tuple(args)
    if name.endswith("dict of keywords at the end") or name.startswith("only a dict"):
        args, kwargs = args[:-1], args[-1]
    torch.testing.assert_close(program(*args, **kwargs)[0], model(*args, **kwargs))


@pytest.mark.parametrize(
    "tensor",
    [
        X.t(),
        X[:, ::2],
        torch.ones(1, 3).expand(2, 3),
        torch.tensor(2.0),
        torch.empty(0, 3),
        X.clone().requires_grad_(),
        torch.nn.Parameter(X.clone()),
        torch.complex(X, Y).conj(),
        X.to(torch.float16).t(),
    ],
)
def test_tensors_of_every_kind(tensor: Tensor) -> None:
    program = onnx_aot.export(lambda x: x * 2 + 1, (tensor,), verify=True)
    expected = (tensor * 2 + 1).detach()
    torch.testing.assert_close(program(tensor)[0], expected)
    torch.testing.assert_close(program(tensor.detach().clone())[0], expected)


def test_none_is_no_output() -> None:
    with pytest.raises(ConversionError, match="returns no tensor and no number"):
        onnx_aot.export(lambda x: None, (X,))


class Quiet(Tensor):
    """A subclass without behavior of its own."""


def test_a_subclass_of_tensor() -> None:
    program = onnx_aot.export(lambda x: x * 2, (X.as_subclass(Quiet),))
    torch.testing.assert_close(program(X)[0], X * 2)


def test_one_tensor_twice_is_two_inputs() -> None:
    axes = {"x": {0: "n"}, "y": {0: "m"}}
    program = onnx_aot.export(
        lambda x, y: x.sum() - 2 * y.sum(), (X, X), dynamic_shapes=axes, verify=True
    )
    assert len(program.model.graph.inputs) == 2
    torch.testing.assert_close(program(X, Y[:1])[0], X.sum() - 2 * Y[:1].sum())


def test_tensors_that_share_memory() -> None:
    whole = X.clone()
    program = onnx_aot.export(positional, (whole[:1], whole[1:]), verify=True)
    torch.testing.assert_close(program(Y[:1], X[1:])[0], Y[:1] - 2 * X[1:])


def writing(x: Tensor, y: Tensor) -> Tensor:
    x.add_(1)
    return x - 2 * y


def test_a_write_to_one_of_two_inputs_that_share_memory() -> None:
    """Inputs of an ONNX model are separate; the program is correct for separate inputs."""
    whole = X.clone()
    with pytest.warns(onnx_aot.OnnxExporterWarning) as caught:
        program = onnx_aot.export(writing, (whole, whole[1:]))
    assert any("writes to x, and example inputs share" in str(w.message) for w in caught)
    torch.testing.assert_close(program(X, Y[:1])[0], X + 1 - 2 * Y[:1])
    with pytest.warns(onnx_aot.OnnxExporterWarning) as caught:  # adjacent memory is not shared
        onnx_aot.export(writing, (whole[:1], whole[1:]))
    assert not any("share" in str(w.message) for w in caught)


def test_a_write_to_an_input_that_repeats_its_elements() -> None:
    """Elements of an ONNX input are separate; the program is correct for such inputs."""
    expanded = X[:1].expand(3, -1)
    with pytest.warns(onnx_aot.OnnxExporterWarning) as caught:
        program = onnx_aot.export(lambda x: x[0].add_(1) + x[1], (expanded,))
    assert any("writes to x" in str(w.message) and "expand" in str(w.message) for w in caught)
    x = X[:1].repeat(3, 1)
    torch.testing.assert_close(program(x)[0], X[0] + 1 + X[0])


def test_an_input_that_repeats_its_elements_is_read() -> None:
    expanded = X[:1].expand(3, -1)
    program = onnx_aot.export(lambda x: x * 2, (expanded,), verify=True)
    torch.testing.assert_close(program(expanded)[0], expanded * 2)


@pytest.mark.parametrize(
    ("given", "message"),
    [
        (np.ones(3, np.float32), r"y .*is a NumPy array\. .* torch.from_numpy"),
        ([X, np.ones(3)], r"y\[1\] of .* is a NumPy array"),
        (X.to_sparse(), r"y .*torch.sparse_coo; .* to_dense"),
        (X.to_mkldnn(), r"y .*torch._mkldnn; .* to_dense"),
        (TwoTensor(X, X), r"y .*is a .*TwoTensor, a tensor that"),
        (object(), r"y .*is a builtins.object, a class that"),
        ({X}, r"y of .* is a set; .* Pass a list"),
    ],
)
def test_what_is_refused(given: Any, message: str) -> None:
    with pytest.raises(InvalidOptionError, match=message):
        onnx_aot.export(lambda x, y: x, (X, given))


# Arguments that were constants in the example, and other rejected calls.
CONSTANTS: dict[str, tuple[Any, list[Any]]] = {
    "int": (2, [3, 2.0, True, None, "2", torch.tensor(2)]),
    "one": (1, [True, 1.0]),
    "bool": (True, [False, 1, None]),
    "float": (0.5, [0.25, float("nan"), 1, None]),
    "zero": (0.0, [-0.0, 0, False]),
    "NaN": (float("nan"), [0.0, None]),
    "string": ("mean", ["sum", "", None, b"mean"]),
    "None": (None, [0, False, X, ""]),
    "dtype": (torch.float64, [torch.float32, None, "float64"]),
    "device": (torch.device("cpu"), [torch.device("meta"), None]),
    "enum": (Color.RED, [Color.BLUE, 1, None]),
    "int enum": (Level.LOW, [Level.HIGH, None]),
    "complex": (2j, [1j, 2.0, None]),
    "slice": (slice(0, 2), [slice(0, 1), None]),
    "NumPy number": (np.float32(2), [np.float32(3), None]),
    "function": (torch.relu, [torch.sigmoid, None]),
    "list of floats": ([0.5, 1.5], [[0.5, 2.5], [0.5], 0.5]),
    "dict": ({"a": 1, "b": Color.RED}, [{"a": 1, "b": Color.BLUE}, {"a": 1}, None]),
}


@pytest.mark.parametrize("name", CONSTANTS)
def test_constants(name: str) -> None:
    constant, others = CONSTANTS[name]
    given: list[Any] = []

    def model(x: Tensor, constant: Any) -> Tensor:
        given.append(constant)
        return x + 1

    program = onnx_aot.export(model, (X, constant))
    assert type(given[-1]) is type(constant)
    assert repr(given[-1]) == repr(constant)
    assert len(program.model.graph.inputs) == 1
    torch.testing.assert_close(program(X, constant)[0], X + 1)
    torch.testing.assert_close(program(x=X, constant=constant)[0], X + 1)
    for other in others:
        with pytest.raises(InferenceError, match=r"constant.* when the model was captured"):
            program(X, other)


def test_defaults_of_forward() -> None:
    """Arguments that the export or a call omits have their defaults."""
    left_out = onnx_aot.export(default, (X,))
    for call in ((X, None), (X, None, 2.0)):
        torch.testing.assert_close(left_out(*call)[0], X * 2)
    with pytest.raises(InferenceError, match=r"y was left at its default None .* shape \[2, 3\]"):
        left_out(X, Y)
    with pytest.raises(InferenceError, match=r"scale was left at its default 2.0 .*; 3.0 was"):
        left_out(X, scale=3.0)
    given = onnx_aot.export(default, (X, Y, 3.0))
    torch.testing.assert_close(given(X, Y, scale=3.0)[0], X * 3 - Y)
    with pytest.raises(InferenceError, match=r"scale was 3.0 when .*; 2.0 was given"):
        given(X, Y)
    with pytest.raises(InferenceError, match=r"y was a tensor when .*; None was given"):
        given(X, scale=3.0)
    same = onnx_aot.export(default, (X,), kwargs={"scale": 2.0})
    torch.testing.assert_close(same(X)[0], X * 2)


def _weighted(a: Tensor, b: Tensor, c: Tensor, **more: Tensor) -> Tensor:
    return a + 10 * b + 100 * c + sum(more.values())


@pytest.mark.parametrize("given", ["abc", "cab", "bca"])
@pytest.mark.parametrize(
    ("names", "expected"),
    [
        ("abc", "abc"),
        ("cba", "cba"),
        ("ca", "cab"),
        ("xyz", "xyz"),
        ("xbz", "xbz"),
    ],
)
def test_keyword_inputs_in_any_order(given: str, names: str, expected: str) -> None:
    """Names are those of parameters, or are for the parameters in order."""
    values = dict(zip("abc", (X, X + 1, X + 2), strict=True))
    kwargs = {name: values[name] for name in given}
    program = onnx_aot.export(_weighted, kwargs=kwargs, input_names=list(names))
    assert [value.name for value in program.inputs] == list(expected)
    torch.testing.assert_close(program(**kwargs)[0], _weighted(**values))
    torch.testing.assert_close(program(*values.values())[0], _weighted(**values))


def test_keyword_inputs_after_others_and_beyond_the_parameters() -> None:
    kwargs = {"e": X + 4, "c": X + 2, "d": X + 3, "b": X + 1}
    for names, expected in (
        ([], "aecdb"),  # without names, in the order of the dict
        (["a"], "abced"),
        (["a", *"cbde"], "acbde"),
        (["i", *"cbde"], "icbde"),
    ):
        program = onnx_aot.export(_weighted, (X,), kwargs=kwargs, input_names=names)
        assert [value.name for value in program.inputs] == list(expected)
        torch.testing.assert_close(program(X, **kwargs)[0], _weighted(X, **kwargs))


def test_a_number_where_a_tensor_was() -> None:
    program = onnx_aot.export(lambda x, n: x * n, (X, torch.tensor(2)))
    torch.testing.assert_close(program(X, 3)[0], X * 3)
    with pytest.raises(InferenceError, match=r"input n is torch\.int64 .*; 2\.5 was given"):
        program(X, 2.5)


def test_a_dynamic_number() -> None:
    program = onnx_aot.export(
        lambda x, n: x + n, (X, 4), dynamic_shapes={"n": torch.export.Dim.DYNAMIC}
    )
    for n in (5, 17):
        torch.testing.assert_close(program(X, n)[0], X + n)
    for other in (2.5, True, None, torch.tensor(2.5)):
        with pytest.raises(InferenceError, match=r"n is a whole number; .* was given"):
            program(X, other)


def test_constants_when_only_strict_capture_succeeds() -> None:
    def model(x: Tensor, mode: Color) -> Tensor:
        if not torch.compiler.is_dynamo_compiling() and torch.compiler.is_exporting():
            raise ValueError("not this way")
        return x + 1 if mode is Color.RED else x

    program = onnx_aot.export(model, (X, Color.RED))
    torch.testing.assert_close(program(X, Color.RED)[0], X + 1)


class ByName(torch.nn.Module):
    def forward(self, x: Tensor, *, mask: Tensor) -> Tensor:
        return x * mask


class Uninitialized(torch.nn.Module):
    def __init__(self) -> None:
        self.size = 3


@pytest.mark.parametrize(
    ("model", "args", "kwargs", "message"),
    [
        (ByName(), (X, X), None, r"args has 2 inputs, and forward takes 1 .*; mask can only be"),
        (ByName(), (X,), {"maks": X}, r"no parameter 'maks' \(did you mean 'mask'\?\)"),
        (ByName(), (X,), None, r"required keyword-only argument: 'mask'|argument: 'mask'"),
        (ByName(), {"x": X}, None, "args is dict; .* Pass inputs by name in kwargs"),
        (ByName(), (X,), (X,), "kwargs is tuple; expected a dict of example inputs by the name"),
        (torch.nn.Linear, (X,), None, r"the class Linear; .* Make an object .*, Linear\(\.\.\.\)"),
        ("model.pt", (X,), None, "model is str; .* Load it first"),
        (ByName().state_dict(), (X,), None, "model is OrderedDict; .* model.load_state_dict"),
        (Uninitialized(), (X,), None, r"Uninitialized that was not .* super\(\).__init__\(\)"),
        ([ByName()], (X,), None, "model is list; expected an nn.Module"),
    ],
)
def test_mistakes_are_named_with_the_edit(model: Any, args: Any, kwargs: Any, message: str) -> None:
    with pytest.raises(InvalidOptionError, match=message):
        onnx_aot.export(model, args, kwargs=kwargs)


def test_a_second_input_in_place_of_the_destination() -> None:
    with pytest.raises(InvalidOptionError, match=r"object of Tensor; .* one tuple, export\(model"):
        onnx_aot.export(torch.add, X, X)  # type: ignore[arg-type]
