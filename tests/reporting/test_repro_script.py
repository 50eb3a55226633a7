"""The report's script, which repeats the export."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import onnx_aot
from onnx_aot.reporting.repro_script import inputs_as_python
from tests.inspection.broken_models import UnknownOperator
from tests.reporting.reported_models import X, exported

# --- the script ----------------------------------------------------------------------------------


def script_of(text: str) -> str:
    found = re.search(r"^## Repeat it\n.*?^```python\n(.*?)^```", text, re.MULTILINE | re.DOTALL)
    assert found is not None
    return found[1]


def run(code: str, folder: Path) -> subprocess.CompletedProcess[str]:
    path = folder / "repeat.py"
    path.write_text(code, encoding="utf-8")
    command = [sys.executable, str(path)]
    return subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)


def test_the_script_of_a_success_runs(tmp_path: Path) -> None:
    report = exported(opset_version=21).report
    assert report is not None
    assert "picked = torch.export.Dim('picked', max=64)" in report.script
    done = run(script_of(report.to_markdown()), tmp_path)
    assert done.returncode == 0, done.stderr
    assert "ONNXProgram(opset 21" in done.stdout
    assert "in   index: INT64[picked]" in done.stdout


def test_the_script_of_a_failure_fails_alike(tmp_path: Path) -> None:
    with pytest.raises(onnx_aot.errors.UnsupportedOperatorError):
        onnx_aot.export(UnknownOperator(), (X,), artifacts_dir=tmp_path)
    (path,) = tmp_path.iterdir()
    with pytest.raises(onnx_aot.errors.UnsupportedOperatorError, match=r"broken\.sharpen"):
        exec(script_of(path.read_text(encoding="utf-8")), {})


def test_layers_of_torch_are_made_by_what_they_print() -> None:
    report = onnx_aot.export(nn.Linear(4, 3).train(), (X,)).report
    assert report is not None
    assert "model = torch.nn.Linear(in_features=4, out_features=3, bias=True).train()\n" in (
        report.script
    )


def test_a_model_that_cannot_be_made_is_to_be_filled_in() -> None:
    class Local(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            return x + 1

    for model, says in (
        (Local(), f"it is {Local.__qualname__}, defined at {__file__}:"),
        (nn.Sequential(nn.ReLU()), "write here how the model is made: Sequential(*args"),
        (torch.export.export(Local(), (X,)), "it is an object of ExportedProgram"),
        (NeedsSize(3), "NeedsSize(size: 'int', bias: 'bool' = True)"),
    ):
        report = onnx_aot.export(model, (X,)).report
        assert report is not None
        assert says in report.script
        (line,) = [line for line in report.script.splitlines() if line.startswith("raise")]
        assert line.startswith("raise SystemExit(")
        assert "It stops at what is to be filled in." in report.to_markdown()


class NeedsSize(nn.Module):
    def __init__(self, size: int, bias: bool = True) -> None:
        super().__init__()

    def forward(self, x: Tensor) -> Tensor:
        return x + 1


def test_inputs_as_python() -> None:
    args = (
        torch.rand(2, 3),
        [torch.rand(1).half(), torch.tensor([3, 7])],
        {"mask": torch.zeros(2, dtype=torch.bool), "z": torch.zeros(1, dtype=torch.complex64)},
        (2.5, None, "text", True, float("inf")),
        torch.zeros(2, dtype=torch.uint16),
        torch.zeros(0, dtype=torch.int32),
    )
    code = inputs_as_python(args, {"key": torch.float16})
    made: dict[str, Any] = {"torch": torch}
    exec(code, made)
    assert made["kwargs"] == {"key": torch.float16}

    def described(value: Any) -> Any:
        return (value.dtype, value.shape) if isinstance(value, Tensor) else value

    leaves = torch.utils._pytree.tree_leaves
    assert [described(v) for v in leaves(made["args"])] == [described(v) for v in leaves(args)]
    assert set(made["args"][1][1].tolist()) <= {3, 4, 5, 6, 7}
    assert "write here how args are made: " in (inputs_as_python((object(),), None))
