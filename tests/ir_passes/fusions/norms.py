"""Modules that apply a function to the input, a weight and a bias."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

WIDTH = 6


def states(batch: int, length: int) -> tuple[Tensor, ...]:
    return (torch.randn(batch, length, WIDTH),)


class Norm(nn.Module):
    """Applies a function to the input, a weight and a bias."""

    def __init__(self, function: Callable[..., Any], *, half: bool = False) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.randn(WIDTH))
        self.bias = nn.Parameter(torch.randn(WIDTH))
        self.function = function
        if half:
            self.half()

    def forward(self, x: Tensor) -> Any:
        return self.function(x, self.weight, self.bias)
