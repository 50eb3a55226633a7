"""A folder with models, and the command line run in it."""

from __future__ import annotations

import subprocess
import sys
import textwrap
from pathlib import Path

import pytest
import torch
from torch.export import Dim
from typer.testing import CliRunner, Result

import onnx_aot
from onnx_aot.cli.application import application

__all__ = ["call", "run"]

MODELS = """
    import torch

    class Encoder(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.embedding = torch.nn.Embedding(100, 8)

        def forward(self, ids, mask=None):
            x = self.embedding(ids)
            return x if mask is None else x * mask.unsqueeze(-1)

    def encoder():
        torch.manual_seed(0)
        return Encoder()

    def with_inputs():
        return encoder(), (torch.zeros(2, 3, dtype=torch.int64),)

    def with_keywords():
        return encoder(), (), {"ids": torch.zeros(2, 3, dtype=torch.int64)}

    def nothing():
        return 3

    class Branches(torch.nn.Module):
        def forward(self, x):
            return x.long() if x.sum() > 0 else x

    branches = Branches()

    class Counter(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.register_buffer("count", torch.zeros(()))
            self.scale = torch.nn.Parameter(torch.ones(3))

        def forward(self, x):
            self.count += 1
            y = x * self.scale + self.count
            return y + 1 if x.shape[0] == 2 else y

    def counter():
        return Counter(), (torch.zeros(4, 3),)
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "my_models.py").write_text(textwrap.dedent(MODELS), encoding="utf-8")
    return tmp_path


def run(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "onnx_aot", *arguments]
    return subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)


def call(*arguments: str) -> Result:
    """Runs the command line in this process, which avoids importing torch again."""
    return CliRunner().invoke(application, arguments)


@pytest.fixture(scope="session")
def saved(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Saves a small encoder with two dynamic dimensions."""
    torch.manual_seed(0)
    layer = torch.nn.TransformerEncoderLayer(16, 2, 32, batch_first=True)
    model = torch.nn.TransformerEncoder(layer, 2, enable_nested_tensor=False).eval()
    path = tmp_path_factory.mktemp("saved") / "encoder.onnx"
    shapes = ({0: "batch", 1: Dim("seq", max=64)},)
    onnx_aot.export(model, (torch.randn(2, 5, 16),), path, dynamic_shapes=shapes)
    return path
