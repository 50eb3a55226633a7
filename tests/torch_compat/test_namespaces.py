"""Functions that a model's code has imported by name: ``onnx_aot/torch_compat/namespaces.py``."""

from __future__ import annotations

import importlib.util
import sys
import time
import types
import warnings
from pathlib import Path

import pytest
import torch
from torch import Tensor, as_tensor, nn

import onnx_aot
from onnx_aot.errors import OnnxExporterWarning
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


LOOPS = """
import math
import torch
class Recurrence(torch.nn.Module):
    def forward(self, x):
        state, states = torch.zeros_like(x[:, 0]), []
        for i in range(x.shape[1]):
            state = 0.5 * state + x[:, i]
            states.append(state)
        return torch.stack(states, 1)
class Square(torch.nn.Module):
    def forward(self, x):
        side = int(math.sqrt(x.shape[1]))
        return x.reshape(x.shape[0], side, side)
"""


def test_code_that_is_no_listed_module(tmp_path: Path) -> None:
    """``importlib.util.module_from_spec`` does not add to ``sys.modules``."""
    path = tmp_path / "onnx_aot_unlisted.py"
    path.write_text(LOOPS, encoding="utf-8")
    spec = importlib.util.spec_from_file_location(path.stem, path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    for model, sizes in ((module.Recurrence(), (5, 9, 2)), (module.Square(), (9, 16, 25))):
        program = onnx_aot.export(
            model, (torch.randn(2, sizes[0]),), dynamic_shapes=({0: "n", 1: "t"},)
        )
        for size in sizes:
            x = torch.randn(3, size)
            torch.testing.assert_close(program(x)[0], model(x))


def test_a_module_that_is_no_longer_listed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "onnx_aot_unlisted.py"
    path.write_text(LOOPS, encoding="utf-8")
    for is_listed in (True, False):
        module = types.ModuleType(path.stem)
        module.__file__ = str(path)
        if is_listed:
            monkeypatch.setitem(sys.modules, path.stem, module)
        else:
            monkeypatch.delitem(sys.modules, path.stem)
        exec(compile(LOOPS, str(path), "exec"), vars(module))
        with warnings.catch_warnings():
            warnings.simplefilter("error", OnnxExporterWarning)
            onnx_aot.export(
                module.Square(), (torch.randn(2, 9),), dynamic_shapes=({0: "n", 1: "t"},)
            )
