"""Captures of functions with ``torch.export``."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

Tensor = torch.Tensor


class Call(torch.nn.Module):
    def __init__(self, function: Callable[..., Any]) -> None:
        super().__init__()
        self._function = function

    def forward(self, *inputs: Tensor) -> Any:
        return self._function(*inputs)


def captured(function: Callable[..., Any], *inputs: Tensor) -> torch.export.ExportedProgram:
    return torch.export.export(Call(function), inputs)
