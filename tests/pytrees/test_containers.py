"""Classes of inputs that the export registers as pytrees for the user."""

from __future__ import annotations

import collections
import dataclasses
import datetime
import types
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.utils import _pytree as pytree

import onnx_aot
from onnx_aot.errors import InferenceError, InvalidOptionError
from onnx_aot.pytrees.containers import Rest, register_containers, same_constant

X, Y = torch.tensor([1.0, 2.0]), torch.tensor([10.0, 20.0])
NAN = float("nan")


@dataclasses.dataclass
class Batch:
    x: Tensor
    y: Any = None
    scale: float = 2.0
    created: datetime.date = datetime.date(2020, 1, 1)


@dataclasses.dataclass(frozen=True)
class Frozen:
    x: Tensor
    y: Tensor
    total: Tensor = dataclasses.field(init=False)

    def __post_init__(self) -> None:
        assert self.x.dim() == 1  # also while torch maps over the fields
        object.__setattr__(self, "total", self.x.sum() + self.y.sum())


@dataclasses.dataclass
class Slotted:
    __slots__ = ("x", "y")
    x: Tensor
    y: Tensor


class Attributes(dict[str, Tensor]):
    """A dict with attribute access, as often used for configurations."""

    def __getattr__(self, name: str) -> Tensor:
        return self[name]


class Holder(collections.UserDict[str, Tensor]):
    x: Tensor = property(lambda self: self["x"])  # type: ignore[assignment]
    y: Tensor = property(lambda self: self["y"])  # type: ignore[assignment]


class Points(list[Tensor]):
    x: Tensor = property(lambda self: self[0])  # type: ignore[assignment]
    y: Tensor = property(lambda self: self[1])  # type: ignore[assignment]


class Fixed(tuple[Tensor, ...]):
    x: Tensor = property(lambda self: self[0])  # type: ignore[assignment]
    y: Tensor = property(lambda self: self[1])  # type: ignore[assignment]


def difference(batch: Any) -> Tensor:
    return batch.y - 2 * batch.x


MAKERS = {
    "dataclass": Batch,
    "frozen, with a field that is worked out": Frozen,
    "slots": Slotted,
    "dict": lambda x, y: Attributes(x=x, y=y),
    "UserDict": lambda x, y: Holder(x=x, y=y),
    "list": lambda x, y: Points([x, y]),
    "tuple": lambda x, y: Fixed([x, y]),
    "namespace": lambda x, y: types.SimpleNamespace(x=x, y=y),
}


@pytest.mark.parametrize("nested", [False, True])
@pytest.mark.parametrize("name", MAKERS)
def test_classes_that_nobody_registered(name: str, nested: bool) -> None:
    make: Any = MAKERS[name]
    model = (lambda batches: difference(batches["deep"][0])) if nested else difference
    wrapped = (lambda batch: {"deep": [batch]}) if nested else (lambda batch: batch)
    program = onnx_aot.export(model, (wrapped(make(X, Y)),), verify=True)
    given = wrapped(make(Y, X))
    torch.testing.assert_close(program(given)[0], X - 2 * Y)


def test_names_and_dynamic_shapes_go_by_attribute() -> None:
    program = onnx_aot.export(
        difference,
        (Batch(X, Y),),
        dynamic_shapes={"batch": {"x": {0: "n"}, "y": {0: "n"}}},
    )
    assert [value.name for value in program.model.graph.inputs] == ["batch_x", "batch_y"]
    ones = torch.ones(5)
    torch.testing.assert_close(program(Batch(ones, ones))[0], -ones)


@pytest.mark.parametrize(
    ("given", "message"),
    [
        (Batch(X, Y, scale=3.0), r"batch.scale was 2.0 when the model .*; 3.0 was given"),
        (Batch(X), r"batch.y was a tensor .*; None was given"),
        (Batch(X, Y, created=datetime.date(2021, 1, 1)), "batch.created was datetime.date"),
        (X, r"Tensor was given, it was Batch of 4|structured differently"),
    ],
)
def test_fields_that_are_constants(given: Any, message: str) -> None:
    program = onnx_aot.export(lambda batch: batch.x * batch.scale + batch.y, (Batch(X, Y),))
    torch.testing.assert_close(program(Batch(Y, X))[0], Y * 2 + X)
    with pytest.raises(InferenceError, match=message):
        program(given)


class Box:
    def __init__(self, content: Tensor) -> None:
        self.content = content


def test_a_class_that_is_not_understood() -> None:
    with pytest.raises(InvalidOptionError) as caught:
        onnx_aot.export(lambda batch: batch["boxes"][1].content, ({"boxes": [X, Box(X)]},))
    message = caught.value.message
    assert f"batch['boxes'][1] of the example inputs is a {__name__}.Box" in message
    code = message.partition("rebuild it:\n\n")[2]
    lines = "\n".join(line.removeprefix("    ") for line in code.splitlines())

    class Own(Box):
        pass

    exec(lines.replace("Box", "Own"), {"Own": Own})  # can be pasted as is
    program = onnx_aot.export(lambda box: box.content * 2, (Own(X),))
    torch.testing.assert_close(program(Own(Y))[0], Y * 2)


def test_an_output_of_a_class_that_is_not_understood() -> None:
    with pytest.raises(InvalidOptionError, match=r"^the result\['box'\] of forward is"):
        onnx_aot.export(lambda x: {"box": Box(x)}, (X,))


@pytest.mark.parametrize(
    ("model", "said", "fix"),
    [
        (lambda x: {x + 1, x * 2}, "the result of forward is a set", "Return a list, a tuple"),
        (lambda x: [frozenset([x])], "the result[0] of forward is a frozenset", "Return a list"),
        (lambda x: (x * i for i in (1, 2)), "is a generator", "Return a list of them, list(...)"),
        (lambda x: map(torch.abs, [x]), "is a map", "list(...)"),
        (lambda x: {"a": {"b": x}.values()}, "['a'] of forward is a dict_values", "list(...)"),
    ],
)
def test_containers_without_order_or_elements(model: Any, said: str, fix: str) -> None:
    with pytest.raises(InvalidOptionError) as caught:
        onnx_aot.export(model, (X,))
    assert said in caught.value.message
    assert fix in caught.value.message
    assert "register" not in caught.value.message
    with pytest.raises(InvalidOptionError, match=r"^x of the example inputs is a set; .* Pass a"):
        onnx_aot.export(lambda x: x, ({X},))


def test_classes_that_are_registered_are_left_alone() -> None:
    @dataclasses.dataclass
    class Mine:
        a: Tensor

    pytree.register_pytree_node(Mine, lambda m: ([m.a], "mine"), lambda c, _: Mine(*c))
    node = pytree.SUPPORTED_NODES[Mine]
    register_containers([Mine(X)], "the result", "outputs")
    assert pytree.SUPPORTED_NODES[Mine] is node
    with pytest.raises(
        InvalidOptionError, match=r"m\[0\] of .*Mine, which .* without flatten_with"
    ):
        onnx_aot.export(lambda m: m[0].a, ([Mine(X)],))


def test_an_argument_that_gets_a_tensor_is_named() -> None:
    def model(batch: Batch) -> Tensor:
        batch.y = batch.x + 1
        return batch.x * 2

    with pytest.warns(onnx_aot.OnnxExporterWarning, match=r"puts a new tensor .* at args\[0\].y"):
        onnx_aot.export(model, (Batch(X, Y),))
    given = Batch(X, Y)
    assert given.y is Y

    def returning(batch: Batch) -> Any:
        batch.y = batch.x + 1
        return batch

    program = onnx_aot.export(returning, (given,))
    assert given.y is Y
    torch.testing.assert_close(program(given, structured=True).y, X + 1)


class Remembering(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.batch = Batch(X.clone(), created=datetime.date(2021, 1, 1))
        self.deep = [types.SimpleNamespace(batch=Batch(X.clone(), scale=1.0))]

    def forward(self, x: Tensor) -> Tensor:
        self.batch.y = self.batch.x + x
        self.deep[0].batch.scale += 1
        self.deep[0].more = x
        return self.batch.y * self.deep[0].batch.scale


def test_objects_that_a_module_holds_are_as_before() -> None:
    model = Remembering()
    program = onnx_aot.export(model, (Y,), verify=True)
    torch.testing.assert_close(program(Y)[0], (X + Y) * 2)
    assert model.batch.y is None
    assert model.deep[0].batch.scale == 1.0
    assert not hasattr(model.deep[0], "more")


def test_the_rest_of_an_object() -> None:
    assert Rest(("a",), {"n": 1}, {"_h": 2}) == Rest(("a",), {"n": 1})
    assert Rest(("a",), {"n": 1}) != Rest(("a",), {"n": True})
    assert Rest(("a",)) != Rest(("b",))
    assert Rest(("a",)) != ("a",)


@pytest.mark.parametrize(
    ("left", "right", "same"),
    [
        (1, 1, True),
        (1, True, False),
        (1, 1.0, False),
        (0.0, -0.0, False),
        (NAN, float("nan"), True),
        (1.5, 2.5, False),
        ("a", "a", True),
        (None, 0, False),
        (torch.float32, torch.float64, False),
        (X, X.clone(), False),
        ([1, {"a": NAN}], [1, {"a": NAN}], True),
        ([1], (1,), False),
        ({"a": 1}, {"a": 1.0}, False),
    ],
)
def test_same_constant(left: Any, right: Any, same: bool) -> None:
    assert same_constant(left, right) is same
    assert same_constant(right, left) is same
