"""``onnx-aot compare``."""

from __future__ import annotations

import json
from pathlib import Path

import onnx
from onnx import numpy_helper

import onnx_aot
from tests.cli.conftest import call, run
from tests.inspection.one_wrong_layer import Tower, X


def tower() -> tuple[Tower, tuple[object]]:
    """What ``--against`` names: the weights are the same each time."""
    import torch

    torch.manual_seed(0)
    return Tower(2), (X,)


def test_a_file_with_another_weight(tmp_path: Path) -> None:
    model, args = tower()
    path = tmp_path / "model.onnx"
    onnx_aot.export(model, args, path)
    against = ("--against", "tests.cli.test_compare:tower")
    right = call("compare", str(path), *against)
    assert right.exit_code == 0, right.output
    assert right.stdout.startswith("8 values compared: all agree\n")

    stored = onnx.load(path)
    (bias,) = [w for w in stored.graph.initializer if w.name == "layers.1.linear.bias"]
    bias.CopyFrom(numpy_helper.from_array(numpy_helper.to_array(bias) + 1, bias.name))
    onnx.save(stored, path)
    isolated = tmp_path / "isolated"
    wrong = call("compare", str(path), *against, "--isolate", str(isolated), "--json")
    assert wrong.exit_code == 1
    found = json.loads(wrong.stdout)
    assert found["rows"][found["first"]]["fx_node"] == "linear_1"
    assert f"the node is in {isolated}" in wrong.stderr
    assert (isolated / "reproduce.py").exists()


def test_without_a_file(folder: Path) -> None:
    done = run(folder, "compare", "none.onnx", "--against", "my_models:with_inputs")
    assert done.returncode == 2
    assert "none.onnx" in done.stderr
    assert "Traceback" not in done.stderr
