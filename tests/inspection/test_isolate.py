"""``isolate``: a folder with one value's nodes, inputs and a script."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
import torch
from torch import Tensor

import onnx_aot
from onnx_aot.errors import InvalidOptionError
from onnx_aot.inspection import reproduce
from tests.inspection import one_wrong_layer
from tests.inspection.one_wrong_layer import Tower, X, row_of


def run(folder: Path, monkeypatch: pytest.MonkeyPatch) -> int:
    monkeypatch.setattr(reproduce, "FOLDER", str(folder))
    return reproduce.main()


def test_the_wrong_one_of_64_layers_alone(tmp_path: Path) -> None:
    folder = tmp_path / "isolated"
    assert one_wrong_layer.in_one_of_64().isolate(folder) == str(folder)
    model = onnx.load(folder / "node.onnx")
    onnx.checker.check_model(model, full_check=True)
    assert [node.op_type for node in model.graph.node] == ["Gelu", "Mul"]
    assert [value.name for value in model.graph.input] == ["linear_37"]
    assert [value.name for value in model.graph.output] == ["gelu_37"]
    with np.load(folder / "inputs.npz") as inputs:
        assert inputs["linear_37"].shape == (2, 3)
    command = [sys.executable, str(folder / "reproduce.py")]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 1, done.stderr
    lines = done.stdout.splitlines()
    assert "captured            gelu_37 = aten.gelu.default" in lines
    assert "module              layers.37.act" in lines
    assert sum("gelu_37: 6 of 6 elements differ, max abs 0.0" in line for line in lines) == 2


def test_a_right_value_runs_as_well(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    comparison = onnx_aot.export(Tower(1), (X,)).compare()
    comparison.isolate(tmp_path, row_of(comparison, "linear"))
    assert run(tmp_path, monkeypatch) == 0
    assert "linear: 0 of 6 elements differ, max abs " in capsys.readouterr().out
    stored = onnx.load(tmp_path / "node.onnx").graph.initializer
    assert {tensor.name for tensor in stored} == {
        "layers.0.linear.weight",
        "layers.0.linear.bias",
    }


def test_an_input_of_any_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    comparison = onnx_aot.export(torch.exp, (X,), input_names=["file"]).compare()
    comparison.isolate(tmp_path, comparison.rows[0])
    assert list(reproduce.np.load(tmp_path / "inputs.npz")) == ["file"]
    assert run(tmp_path, monkeypatch) == 0


def of_halves(x: Tensor) -> Tensor:
    return torch.softmax(x.bfloat16(), 1).erf().to(torch.float8_e4m3fn).float()


def of_complex_numbers(x: Tensor) -> Tensor:
    return (torch.complex(x, -x).exp() * 2j).abs()


def of_sizes(x: Tensor) -> Tensor:
    return x.reshape(-1, x.shape[0]).sort().indices > 0


def with_a_branch(x: Tensor) -> Tensor:
    y = x.sin()
    return torch.cond(x.sum() > 0, lambda x: x + y, lambda x: x - y, (x,))


@pytest.mark.parametrize("function", [of_halves, of_complex_numbers, of_sizes, with_a_branch])
def test_every_value_alone(function: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    program = onnx_aot.export(function, (X,), dynamic_shapes=({0: "n"},))
    before = program.hash
    comparison = program.compare()
    assert comparison.ok
    for row in comparison.rows:
        comparison.isolate(tmp_path, row)
        onnx.checker.check_model(str(tmp_path / "node.onnx"))
        assert run(tmp_path, monkeypatch) == 0, row.fx_node
    assert program.hash == before


def test_other_shapes_types_and_not_a_number_differ() -> None:
    one = np.ones((2, 3), np.float32)
    assert reproduce.compare(one[0], one, 1e-3, 1e-4) == (
        True,
        "float32[3], PyTorch's is float32[2, 3]",
    )
    assert reproduce.compare(one.astype(np.float64), one, 1e-3, 1e-4)[0]
    holed = one.copy()
    holed[1, 2] = np.nan
    assert reproduce.compare(holed, holed, 1e-3, 1e-4) == (
        False,
        "0 of 6 elements differ, max abs 0",
    )
    assert "1 of 6 elements differ" in reproduce.compare(holed, one, 1e-3, 1e-4)[1]
    assert not reproduce.compare(one * 1.0005, one, 1e-3, 1e-4)[0]
    assert reproduce.compare(np.array([2]), np.array([1]), 0.0, 0.0)[0]


def test_what_cannot_be_isolated(tmp_path: Path) -> None:
    program = onnx_aot.export(Tower(1), (X,))
    comparison = program.compare()
    with pytest.raises(InvalidOptionError, match="agree; pass one of rows"):
        comparison.isolate(tmp_path)
    other = onnx_aot.export(lambda x: x.exp(), (X,)).compare()
    with pytest.raises(InvalidOptionError, match="exp is not a row"):
        comparison.isolate(tmp_path, other.rows[0])
    row = row_of(comparison, "linear")
    (node,) = [node for node in program.model.graph if node.op_type == "Gemm"]
    node.outputs[0].name = "renamed"
    with pytest.raises(InvalidOptionError, match="no value linear now"):
        comparison.isolate(tmp_path, row)
