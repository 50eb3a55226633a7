"""Weights that share memory are merged."""

from __future__ import annotations

import torch

import onnx_aot
from onnx_aot.ir_passes.share_initializers import share_initializers


def test_initializers_that_share_memory_are_one() -> None:
    class Tied(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.embedding = torch.nn.Embedding(10, 4)
            self.head = torch.nn.Linear(4, 10, bias=False)
            self.head.weight = self.embedding.weight
            self.register_buffer("same_numbers", self.embedding.weight.detach().clone())

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.head(self.embedding(x)) + self.same_numbers.sum()

    module = Tied()
    x = torch.arange(5)
    program = onnx_aot.export(module, (x,))
    kept, same_numbers = sorted(program.model.graph.initializers)
    assert kept in ("embedding.weight", "head.weight")
    assert same_numbers == "same_numbers"
    torch.testing.assert_close(program(x)[0], module(x))
    assert share_initializers(program.model) == 0
    other = Tied()
    program.apply_weights(other.state_dict())  # accepts both names
    torch.testing.assert_close(program(x)[0], other(x))
    program.apply_weights({"embedding.weight": module.head.weight})
    torch.testing.assert_close(
        program.model.graph.initializers[kept].const_value.raw, module.head.weight.data
    )


def test_parts_of_one_storage_are_different_weights() -> None:
    class Halves(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            whole = torch.randn(8)
            self.register_buffer("first", whole[:4])
            self.register_buffer("second", whole[4:])
            self.register_buffer("shaped", whole[:4].view(2, 2))

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return x * self.first + self.second + self.shaped.sum()

    module = Halves()
    program = onnx_aot.export(module, (torch.ones(4),))
    assert len(program.model.graph.initializers) == 3
    torch.testing.assert_close(program(torch.ones(4))[0], module(torch.ones(4)))
