"""``onnx-aot verify``, ``compare``, ``view`` and ``report``."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import onnx
import pytest
import torch
from onnx import numpy_helper

import onnx_aot
from tests.cli.conftest import call, run
from tests.inspection.one_wrong_layer import Tower, X

INPUT = ("--input", "ids:int64[batch,seq]=0..99")
CHANGED = """
import torch
from my_models import encoder


def changed():
    model = encoder()
    with torch.no_grad():
        model.embedding.weight[7] += 1
    return model
"""


@pytest.fixture
def model(folder: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Exports ``my_models:encoder`` beside a changed model; changes to their folder."""
    monkeypatch.chdir(folder)
    monkeypatch.syspath_prepend(folder)
    for name in ("my_models", "changed_models"):
        monkeypatch.delitem(sys.modules, name, raising=False)
    (folder / "changed_models.py").write_text(CHANGED, encoding="utf-8")
    done = call("export", "my_models:encoder", *INPUT, "-o", "m.onnx")
    assert done.exit_code == 0, done.output
    return folder / "m.onnx"


def test_verify(model: Path) -> None:
    right = call("verify", "m.onnx", "--against", "my_models:encoder", *INPUT)
    assert right.exit_code == 0, right.output
    assert right.stdout.isascii()
    wrong = call(
        "verify", "m.onnx", "--against", "changed_models:changed",
        "--input", "ids:int64[batch,seq]=7..7", "--json",
    )  # fmt: skip
    assert wrong.exit_code == 1
    assert json.loads(wrong.stdout)["ok"] is False


def test_a_factory_that_draws_its_weights_anew(model: Path) -> None:
    code = "from my_models import Encoder\n\n\ndef drawn():\n    return Encoder()\n"
    (model.parent / "changed_models.py").write_text(code, encoding="utf-8")
    done = call("verify", "m.onnx", "--against", "changed_models:drawn", *INPUT)
    assert done.exit_code == 1
    assert "1 of 1 weights have other values" in done.stdout
    assert done.stdout.count("embedding.weight") == 1
    assert "FAIL" not in done.stdout
    assert "torch.manual_seed(0)" in done.stdout


def test_verify_with_the_reference_at_the_example_only(model: Path) -> None:
    done = call(
        "verify", "m.onnx", "--against", "my_models:encoder", *INPUT,
        "--runtime", "reference", "--no-sizes", "--json",
    )  # fmt: skip
    assert done.exit_code == 0, done.output
    assert len(json.loads(done.stdout)["results"]) == 1


def test_a_factory_that_is_not_there(model: Path) -> None:
    for command in ("verify", "compare"):
        done = call(command, "m.onnx", "--against", "my_models:decoder")
        assert done.exit_code == 2
        assert "has no 'decoder'" in done.stderr


def test_view(model: Path) -> None:
    done = call("view", "m.onnx", "-o", "graph.html")
    assert done.exit_code == 0, done.output
    assert done.stdout == "saved to graph.html\n"
    assert "<html" in (model.parent / "graph.html").read_text(encoding="utf-8")


def test_report_of_an_export(model: Path) -> None:
    done = call("report", "my_models:encoder", *INPUT)
    assert done.exit_code == 0, done.output
    assert done.stdout.startswith("# ONNX export of my_models.Encoder: succeeded")
    assert not list(model.parent.glob("*.md"))
    as_file = call("report", "my_models:encoder", *INPUT, "-o", "reports")
    (written,) = (model.parent / "reports").iterdir()
    assert as_file.stdout.strip() == str(Path("reports") / written.name)


def test_report_of_a_failure(model: Path) -> None:
    done = call("report", "my_models:branches", "--input", "x:float32[3]")
    assert done.exit_code == 1
    first = done.stdout.splitlines()[:12]
    assert first[0] == "# ONNX export of my_models.Branches: failed"
    assert any("compute the same on both sides" in line for line in first)
    refused = call("report", "my_models:encoder", *INPUT, "--opset", "3")
    assert refused.exit_code == 2
    assert "11 to 28" in refused.stdout


def test_export_as_json(model: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    done = call("export", "my_models:encoder", *INPUT, "-o", "again.onnx", "--json")
    assert done.exit_code == 0, done.output
    found: dict[str, Any] = json.loads(done.stdout)
    assert found["saved"] == "again.onnx"
    program = onnx_aot.ONNXProgram.load("again.onnx")
    ids = torch.randint(0, 99, (3, 4))
    assert program(ids)[0].shape == (3, 4, 8)


# --- compare -------------------------------------------------------------------------------------


def tower() -> tuple[Tower, tuple[object]]:
    """Model for ``--against``, with the same weights on each call."""
    torch.manual_seed(0)
    return Tower(2), (X,)


def test_compare_a_file_with_another_weight(tmp_path: Path) -> None:
    model, args = tower()
    path = tmp_path / "model.onnx"
    onnx_aot.export(model, args, path)
    against = ("--against", "tests.cli.test_checking:tower")
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


def test_compare_without_a_file(folder: Path) -> None:
    done = run(folder, "compare", "none.onnx", "--against", "my_models:with_inputs")
    assert done.returncode == 2
    assert "none.onnx" in done.stderr
    assert "Traceback" not in done.stderr
