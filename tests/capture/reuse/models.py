"""Models with layers that repeat."""

from __future__ import annotations

from collections.abc import Callable

import torch


class Block(torch.nn.Module):
    """A layer with an index, a flag and a scale of its own.

    Args:
        index: Its position in the model.
        width: The number of features.
    """

    def __init__(self, index: int, width: int = 8) -> None:
        super().__init__()
        self.index = index
        self.scale = 0.5
        self.norm = torch.nn.LayerNorm(width)
        self.up, self.down = torch.nn.Linear(width, 16), torch.nn.Linear(16, width)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Returns ``x`` with an update."""
        return x + self.down(torch.relu(self.up(self.norm(x)))) * self.scale


class Stack(torch.nn.Module):
    """Blocks one after the other.

    Args:
        kind: The class of the blocks.
        depth: Their number.
    """

    def __init__(self, kind: Callable[[int], torch.nn.Module] = Block, depth: int = 6) -> None:
        super().__init__()
        self.layers = torch.nn.ModuleList([kind(i) for i in range(depth)])

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Applies all blocks."""
        for layer in self.layers:
            x = layer(x)
        return x
