"""Models and inputs, as named on the command line."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from onnx_aot.errors import InvalidOptionError
from onnx_aot.integrations.subjects import InputSpec, build_model, example_inputs, parse_input


def test_parse_input() -> None:
    assert parse_input("ids:int64[batch, 128]") == InputSpec("ids", "int64", ("batch", 128), 0, 1)
    assert parse_input("x:float32[]").sizes == ()
    assert parse_input("ids:int64[n]=-3..9")[3:] == (-3, 9)
    for wrong in ("ids", "ids:int64", "ids:int64[n]=3", "ids int64[n]"):
        with pytest.raises(InvalidOptionError, match="is not understood"):
            parse_input(wrong)
    with pytest.raises(InvalidOptionError, match=r"the range 5\.\.2 is empty"):
        parse_input("ids:int64[n]=5..2")


def test_example_inputs() -> None:
    specs = [parse_input(t) for t in ("a:float32[n,m,4]", "b:int32[m]=5..9", "c:bool[k,n]")]
    tensors = example_inputs(specs)
    assert {name: tuple(t.shape) for name, t in tensors.items()} == {
        "a": (2, 3, 4),
        "b": (3,),
        "c": (5, 2),
    }
    assert tensors["b"].dtype == torch.int32
    assert 5 <= int(tensors["b"].min()) <= int(tensors["b"].max()) <= 9
    with pytest.raises(InvalidOptionError, match="torch has no type 'flot32'"):
        example_inputs([parse_input("x:flot32[2]")])


def test_an_import_error_inside_the_user_s_module_is_shown(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "needs_more.py").write_text("import not_installed_here", encoding="utf-8")
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(ModuleNotFoundError, match="not_installed_here"):
        build_model("needs_more:factory")


@pytest.mark.parametrize(
    ("reference", "message"),
    [
        ("os:system", r"cannot be called without arguments: .*'command'.* A factory is a function"),
        ("torch:ones", "cannot be called without arguments"),
        ("os:getcwd", "returns str; expected a module"),
        ("..:x", "is not of the form package.module:factory"),
        (":x", "is not of the form"),
    ],
)
def test_what_is_not_a_factory(reference: str, message: str) -> None:
    with pytest.raises(InvalidOptionError, match=message):
        build_model(reference)


def test_an_error_inside_a_factory_is_shown(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    text = "def make():\n    return len(5)\n"
    (tmp_path / "raises_here.py").write_text(text, encoding="utf-8")
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(TypeError, match="has no len"):
        build_model("raises_here:make")


def test_an_input_that_no_memory_holds() -> None:
    for text in ("x:float32[1000000,1000000,1000000]", "x:int64[99999999999999999999]"):
        with pytest.raises(InvalidOptionError, match="input x: no tensor of"):
            example_inputs([parse_input(text)])
