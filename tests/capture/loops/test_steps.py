"""What Python loops over dynamic sizes go through while they are captured."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
import torch
from torch import Tensor

import onnx_aot
from tests.capture.loops.models import MODELS, X


def test_report_names_the_loops(tmp_path: Path) -> None:
    model = MODELS["WrittenGru"].eval()
    onnx_aot.export(
        model, (X,), dynamic_shapes=({1: "steps"},), report=True, artifacts_dir=tmp_path
    )
    (report,) = tmp_path.glob("*.md")
    text = report.read_text(encoding="utf-8")
    assert "Python loops over a dynamic size became one loop" in text
    assert "for t in range(steps):" in text


def test_number_of_a_step_in_a_tensor() -> None:
    def forward(x: Tensor) -> Tensor:
        y = x[:, 0]
        for t in range(x.shape[1]):
            y = torch.where(torch.full((), t) == 2, y * 2, y) + x[:, t]
        return y

    program = onnx_aot.export(forward, (X,), dynamic_shapes=({1: "steps"},))
    for steps in (7, 1, 3, 9):
        x = torch.randn(2, steps, 4)
        torch.testing.assert_close(program(x)[0], forward(x), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("step", [1, 2, 3, -1, -2])
def test_range_with_a_step(step: int) -> None:
    def add(x: Tensor) -> Tensor:
        n = x.shape[1]
        y = torch.zeros_like(x[:, 0])
        for t in range(0, n, step) if step > 0 else range(n - 1, -1, step):
            y = 0.5 * y + x[:, t] * t
        return y

    program = onnx_aot.export(add, (X,), dynamic_shapes=({1: "steps"},))
    for steps in (7, 1, 2, 3, 12):
        x = torch.randn(2, steps, 4)
        torch.testing.assert_close(program(x)[0], add(x), rtol=1e-4, atol=1e-5)


def test_models_without_such_loops_do_not_import_this() -> None:
    code = (
        "import sys, torch, onnx_aot\n"
        "onnx_aot.export(torch.nn.Linear(2, 2), (torch.ones(3, 2),), dynamic_shapes=({0: 'n'},))\n"
        "found = [m for m in sys.modules if 'capture.loops' in m or 'loop_marks' in m]\n"
        "assert not found, found\n"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


def test_loop_in_a_package_that_only_forward_names(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    code = (
        "import torch\n\n"
        "def smooth(x):\n"
        "    y, outs = torch.zeros_like(x[:, 0]), []\n"
        "    for t in range(0, x.shape[1]):\n"
        "        y = 0.5 * y + x[:, t]\n"
        "        outs.append(y)\n"
        "    return torch.stack(outs, 1)\n"
    )
    (tmp_path / "smoothing_of_others.py").write_text(code, encoding="utf-8")
    monkeypatch.syspath_prepend(tmp_path)

    def forward(x: Tensor) -> Tensor:
        from smoothing_of_others import smooth  # type: ignore[import-not-found]

        return smooth(x)  # type: ignore[no-any-return]

    program = onnx_aot.export(forward, (X,), dynamic_shapes=({1: "steps"},))
    for steps in (7, 1, 12):
        x = torch.randn(2, steps, 4)
        torch.testing.assert_close(program(x)[0], forward(x), rtol=1e-4, atol=1e-5)
