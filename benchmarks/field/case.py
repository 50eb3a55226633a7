"""Defines the row of a model of another package, and short forms that the rows share."""

from __future__ import annotations

import dataclasses
import importlib
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from torch import nn

from benchmarks.zoo_models.case import ZooCase

__all__ = [
    "BATCH",
    "BATCHES",
    "IMAGE_SHAPES",
    "LENGTHS",
    "PICTURES",
    "REQUIREMENTS",
    "SEQUENCE",
    "FieldCase",
    "Method",
    "call",
    "find_file",
    "images",
    "noise",
    "read_versions",
    "tokens",
]

REQUIREMENTS = Path(__file__).parent / "requirements.txt"
IMAGE_SHAPES = ({0: "batch", 2: "height", 3: "width"},)
BATCH = ({0: "batch"},)
BATCHES = ({"batch": 1}, {"batch": 3})
SEQUENCE = ({0: "batch", 1: "length"},)
LENGTHS = ({"batch": 1, "length": 12}, {"batch": 3, "length": 19})

Inputs = Callable[..., tuple[tuple[Any, ...], dict[str, Any]]]


@dataclasses.dataclass(frozen=True)
class FieldCase(ZooCase):
    """A model of a package of PyPI.

    Attributes:
        package: Name of the package on PyPI; its version is in ``requirements.txt``.
        weights: True if the package carries the trained weights; they are not changed.
        options: Options of ``onnx_aot.export`` that a user of this model passes.
    """

    package: str = ""
    weights: bool = False
    options: dict[str, Any] = dataclasses.field(default_factory=dict)

    def make(self) -> nn.Module:
        """Returns the module in eval mode, with trained weights or random ones that all matter."""
        random.seed(0)  # hyper-connections choose a stream with it
        if not self.weights:
            return super().make()
        torch.manual_seed(0)
        return self.build().eval()


class Method(nn.Module):
    """Calls a method with one input instead of ``forward``, as the package's users do."""

    def __init__(self, module: nn.Module, name: str) -> None:
        super().__init__()
        self.module = module
        self.name = name

    def forward(self, x: torch.Tensor) -> Any:
        return getattr(self.module, self.name)(x)


def call(path: str, *args: Any, **kwargs: Any) -> Callable[[], Any]:
    """Returns a function that imports ``module:name.name`` and calls it with the arguments."""
    module, _, names = path.partition(":")

    def build() -> Any:
        found = importlib.import_module(module)
        for name in names.split("."):
            found = getattr(found, name)
        return found(*args, **kwargs)

    return build


def find_file(module: str, path: str) -> str:
    """Returns the path of a file that a package carries."""
    return str(Path(importlib.import_module(module).__file__).parent / path)


def images(channels: int = 3) -> Inputs:
    """Returns inputs ``[batch, channels, height, width]`` with values from 0 to 1."""
    return lambda batch, height, width: ((torch.rand(batch, channels, height, width),), {})


def noise(*shape: str | int) -> Inputs:
    """Returns one normally distributed input; a size is a number or the name of a dimension."""
    return lambda **sizes: ((torch.randn([sizes.get(size, size) for size in shape]),), {})


def tokens(vocabulary: int) -> Inputs:
    """Returns inputs ``[batch, length]`` of numbers below ``vocabulary``."""
    return lambda batch, length: ((torch.randint(0, vocabulary, (batch, length)),), {})


def read_versions() -> dict[str, str]:
    """Returns the versions in ``requirements.txt``, by lower-case name."""
    lines = REQUIREMENTS.read_text(encoding="utf-8").splitlines()
    pinned = (line.partition("==") for line in lines if "==" in line)
    return {name.strip().lower(): version.strip() for name, _, version in pinned}


PICTURES: dict[str, Any] = {
    "inputs": images(),
    "dynamic_shapes": IMAGE_SHAPES,
    "sizes": ({"batch": 1, "height": 64, "width": 64}, {"batch": 2, "height": 96, "width": 128}),
}
"""Inputs, shapes and sizes of rows that take a picture."""
