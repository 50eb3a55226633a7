"""Functions that a model's code has imported by name: ``onnx_aot/torch_compat/namespaces.py``."""

from __future__ import annotations

import sys
import time
import types

import pytest
import torch
from torch import Tensor, as_tensor, nn

import onnx_aot
from onnx_aot.torch_compat import Patch, Settings, applied
from onnx_aot.torch_compat.namespaces import (
    namespaces_of_files,
    namespaces_of_packages,
    reachable_namespaces,
)

OWNER = "def answer():\n    return 1\n"
USER = """
from torch import nn
from onnx_aot_owner import answer as imported
from onnx_aot_helper import helper
class Model(nn.Module):
    def forward(self, x):
        return x * imported() + helper()
"""
HELPER = "from onnx_aot_owner import answer\ndef helper():\n    return 10 * answer()\n"
UNRELATED = "from onnx_aot_owner import answer\n"


@pytest.fixture
def modules(monkeypatch: pytest.MonkeyPatch) -> dict[str, types.ModuleType]:
    made = {}
    texts = {"owner": OWNER, "helper": HELPER, "user": USER, "unrelated": UNRELATED}
    for name, text in texts.items():
        module = made[name] = types.ModuleType(f"onnx_aot_{name}")
        monkeypatch.setitem(sys.modules, module.__name__, module)
        exec(text, vars(module))
    return made


def test_replaced_wherever_the_model_reaches_it(modules: dict[str, types.ModuleType]) -> None:
    row = Patch("onnx_aot_owner:answer", lambda original, settings: lambda: 2, "Nothing.")
    model, x = modules["user"].Model(), torch.ones(2)
    original = modules["owner"].answer
    assert model(x).tolist() == [11, 11]
    with applied([row], Settings(module=model)):
        assert model(x).tolist() == [22, 22]
        assert modules["unrelated"].answer is original
    assert model(x).tolist() == [11, 11]
    assert modules["helper"].answer is original


def test_a_model_of_torch_has_no_namespaces() -> None:
    assert reachable_namespaces(nn.Sequential(nn.Linear(3, 3), nn.ReLU())) == []


def test_modules_that_are_loaded_or_replaced_later_are_found(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    class Model(nn.Module):
        pass

    def names() -> list[dict[str, object]]:
        return namespaces_of_packages(Model())

    before = names()
    assert names() == before
    first, second = types.ModuleType("tests.later"), types.ModuleType("tests.later")
    for module, other in ((first, second), (second, first)):
        monkeypatch.setitem(sys.modules, "tests.later", module)
        found = [id(space) for space in names()]
        assert id(vars(module)) in found
        assert id(vars(other)) not in found
    monkeypatch.delitem(sys.modules, "tests.later")
    assert [id(space) for space in names()] == [id(space) for space in before]


def test_modules_that_import_others_when_they_are_read(monkeypatch: pytest.MonkeyPatch) -> None:
    class Lazy(types.ModuleType):
        def __getattr__(self, name: str) -> object:
            raise ImportError(f"the package that has {name} is not installed")

    lazy, plain = Lazy("onnx_aot_lazy"), types.ModuleType("onnx_aot_plain")
    plain.__file__ = "plain.py"
    for module in (lazy, plain):
        monkeypatch.setitem(sys.modules, module.__name__, module)
    assert namespaces_of_files({"plain.py"}) == [vars(plain)]


def test_the_search_is_short() -> None:
    """It is made in every capture, which takes tens of milliseconds."""

    class Model(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            return x

    model = Model()
    took = []
    for _ in range(20):
        start = time.perf_counter()
        reachable_namespaces(model)
        took.append(time.perf_counter() - start)
    assert min(took) < 0.01


def test_a_function_of_torch_imported_by_name() -> None:
    class Scaled(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            return x * as_tensor(x.shape[0])

    program = onnx_aot.export(Scaled(), (torch.ones(4, 3),), dynamic_shapes=({0: "n"},))
    for size in (4, 7, 1):
        x = torch.randn(size, 3)
        torch.testing.assert_close(program(x)[0], Scaled()(x))
