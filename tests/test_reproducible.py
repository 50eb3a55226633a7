"""Equal models, inputs and versions give equal bytes."""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import torch

import onnx_aot

SOURCE = """
import torch


class Block(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.attention = torch.nn.MultiheadAttention(32, 4, batch_first=True)
        self.linear = torch.nn.Linear(32, 32)

    def forward(self, x, scales):
        y, _ = self.attention(x, x, x)
        y = torch.cond(x.sum() > 0, lambda y: y.sin(), lambda y: y.cos(), (y,))
        z = torch.special.bessel_j0(self.linear(y))
        return {"y": y * scales["b"], "z": torch.logaddexp(z, y) + scales["a"]}


torch.manual_seed(0)
model = Block().eval()
x = torch.randn(2, 5, 32)
scales = {"a": torch.ones(32), "b": torch.ones(32)}
"""

SCRIPT = """
import sys

import onnx_aot

sys.path.insert(0, sys.argv[1])  # where the package of the model is on this machine
from family.block import model, scales, x

shapes = {"x": {0: "batch", 1: "time"}, "scales": {"a": {}, "b": {}}}
for external in (False, True):
    program = onnx_aot.export(model, (x, scales), dynamic_shapes=shapes, seed=3)
    program.save(f"{sys.argv[1]}/{external}.onnx", external_data=external)
print(program.hash)
"""


def test_bytes_are_the_same_in_other_processes_and_folders(tmp_path: Path) -> None:
    """Hash seeds of strings and the current directory differ."""
    folders = [tmp_path / "ann" / "project", tmp_path / "b"]
    hashes = []
    for number, folder in enumerate(folders):
        (folder / "family").mkdir(parents=True)
        (folder / "family" / "block.py").write_text(SOURCE)
        script = folder / f"run_{number}.py"
        script.write_text(SCRIPT)
        done = subprocess.run(
            [sys.executable, str(script), str(folder)],
            capture_output=True,
            text=True,
            check=False,
            cwd=folder if number else tmp_path,
            env={
                **os.environ,
                "PYTHONPATH": os.pathsep.join(sys.path),
                "PYTHONHASHSEED": str(number),
            },
        )
        assert done.returncode == 0, done.stderr
        hashes.append(done.stdout.strip())
        shutil.rmtree(folder / "family")
    names = ["False.onnx", "True.onnx", "True.onnx.data"]
    for name in names:
        first, second = (folder / name for folder in folders)
        assert first.read_bytes() == second.read_bytes(), name
    assert b'File "family/block.py", line 14, in forward' in first.with_name(names[0]).read_bytes()
    assert hashes[0] == hashes[1]
    whole = (folders[0] / "False.onnx").read_bytes()
    assert hashlib.sha256(whole).hexdigest() == hashes[0]


def test_no_file_is_named_with_a_folder_of_this_machine(tmp_path: Path) -> None:
    model = torch.nn.TransformerEncoderLayer(16, 2, 16, batch_first=True).eval()
    program = onnx_aot.export(model, (torch.randn(2, 3, 16),), dynamic_shapes=({0: "batch"},))
    written = program.model_proto.SerializeToString()
    assert b'File "torch/nn/modules/transformer.py"' in written
    for folder in (os.path.dirname(torch.__file__), str(Path(__file__).parents[2])):
        assert folder.encode() not in written


@pytest.mark.parametrize("report", [False, True])
def test_the_hash(report: bool, tmp_path: Path) -> None:
    torch.manual_seed(0)
    model = torch.nn.Linear(64, 64)
    x = torch.randn(2, 64)
    program = onnx_aot.export(model, (x,), report=report, artifacts_dir=tmp_path)
    if report:
        (page,) = tmp_path.glob("*.md")
        assert f"SHA-256 `{program.hash}`" in page.read_text()
    program.save(tmp_path / "model.onnx")
    assert hashlib.sha256((tmp_path / "model.onnx").read_bytes()).hexdigest() == program.hash
    assert onnx_aot.export(model, (x,)).hash == program.hash
    before = program.hash
    program.apply_weights({"weight": torch.zeros(64, 64)})
    assert program.hash != before
    with onnx_aot.enable_fake_mode():
        empty = torch.nn.Linear(64, 64)
    weightless = onnx_aot.export(empty, (x,))
    weightless.save(tmp_path / "empty.onnx", include_initializers=False)
    written = (tmp_path / "empty.onnx").read_bytes()
    assert hashlib.sha256(written).hexdigest() == weightless.hash
    weightless.apply_weights(model.state_dict())
    assert weightless.hash == onnx_aot.export(model, (x,)).hash
