"""A model with a low-rank adapter."""

from __future__ import annotations

import torch

Tensor = torch.Tensor
X = torch.randn(2, 32)


class Lora(torch.nn.Module):
    """A linear layer with a low-rank adapter."""

    def __init__(self) -> None:
        super().__init__()
        self.base = torch.nn.Linear(32, 32)
        self.lora_a = torch.nn.Linear(32, 4, bias=False)
        self.lora_b = torch.nn.Linear(4, 32, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        return self.base(x) + self.lora_b(self.lora_a(x))
