"""Uses an installed onnx_aot away from the checkout: ``python -I release/smoke.py``.

Every step is what a user does first: export, save, load, verify, view, sweep, and the commands.
"""

from __future__ import annotations

import contextlib
import importlib.metadata
import io
import os
import subprocess
import sys
import tempfile
from pathlib import Path

import torch

import onnx_aot
from onnx_aot import sweep

MODELS = """
import torch


def small():
    return torch.nn.Sequential(torch.nn.Linear(4, 3), torch.nn.ReLU()).eval()


def large():
    return torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.GELU(), torch.nn.Linear(8, 2)).eval()
"""


def main() -> None:
    """Runs all steps in an empty folder."""
    installed = Path(onnx_aot.__file__).resolve()
    assert installed.is_relative_to(Path(sys.prefix).resolve()), installed
    assert (installed.parent / "py.typed").is_file()
    assert importlib.metadata.version("onnx-aot") == onnx_aot.__version__
    with tempfile.TemporaryDirectory() as folder:
        os.chdir(folder)
        _use_a_program()
        _explain()
        _sweep()
        _run_commands()
    print(f"onnx_aot {onnx_aot.__version__} works with torch {torch.__version__} on {sys.version}")


def _use_a_program() -> None:
    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Linear(4, 3), torch.nn.LayerNorm(3)).eval()
    program = onnx_aot.export(
        model, (torch.rand(2, 4),), "model.onnx", dynamic_shapes=({0: "batch"},), verify=True
    )
    x = torch.rand(7, 4)
    for each in (program, onnx_aot.ONNXProgram.load("model.onnx")):
        torch.testing.assert_close(each(x)[0], model(x), rtol=1e-4, atol=1e-5)
    assert onnx_aot.verify("model.onnx", model, (x,)).ok
    program.view("model.html")
    page = Path("model.html").read_text(encoding="utf-8")
    assert "MIT" in page  # the licence of the script that draws it


def _explain() -> None:
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed):
        onnx_aot.explain()
        onnx_aot.explain("OA101")
    assert "# OA101: Branches on data" in printed.getvalue()
    try:
        onnx_aot.export(torch.nn.Linear(4, 3), (torch.rand(2, 4),), opset_version=3)
    except onnx_aot.OnnxExporterError as error:
        onnx_aot.explain(error.code)
    else:
        raise AssertionError("opset 3 was accepted")


def _sweep() -> None:
    Path("models.py").write_text(MODELS, encoding="utf-8")
    entries = [
        {"factory": f"models:{name}", "inputs": ["input:float32[batch,4]"]}
        for name in ("small", "large")
    ]
    found = sweep.run({"models": entries}, "results", progress=False)
    assert found.ok, found.to_markdown()
    assert found.ran == 2


def _run_commands() -> None:
    command = str(Path(sys.executable).with_name("onnx-aot"))
    for arguments, said in (
        (("explain",), "OA101  Branches on data"),
        (("explain", "OA101"), "# OA101"),
        (("inspect", "model.onnx"), "LayerNormalization"),
        (("view", "model.onnx", "-o", "view.html"), ""),
        (("doctor",), "small export"),
    ):
        done = subprocess.run([command, *arguments], capture_output=True, text=True, check=False)
        assert done.returncode == 0, (arguments, done.stdout, done.stderr)
        assert said in done.stdout, (arguments, done.stdout)


if __name__ == "__main__":
    main()
