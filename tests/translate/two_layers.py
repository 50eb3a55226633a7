"""Two layers with a normalization, a tied and an unused weight; names of a graph."""

from __future__ import annotations

from typing import Any

import torch

import onnx_aot

Tensor = torch.Tensor


def names(values: Any) -> list[str]:
    return [str(value.name) for value in values]


def inputs_of(program: onnx_aot.ONNXProgram) -> list[str]:
    return names(program.model.graph.inputs)


# --- names beyond the user's inputs --------------------------------------------------------------


class TwoLayers(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first = torch.nn.Linear(3, 4)
        self.norm = torch.nn.BatchNorm1d(4)
        self.second = torch.nn.Linear(4, 4)
        self.second.weight = torch.nn.Parameter(torch.randn(4, 4))
        self.third = torch.nn.Linear(4, 4, bias=False)
        self.third.weight = self.second.weight
        self.unused = torch.nn.Parameter(torch.ones(2))

    def forward(self, x: Tensor) -> Tensor:
        return self.third(self.second(self.norm(self.first(x)).relu())) * 2.5


X = torch.randn(5, 3)


def two_layers() -> TwoLayers:
    model = TwoLayers().eval()
    for tensor in (model.norm.running_mean, model.norm.running_var):
        assert tensor is not None
        torch.nn.init.uniform_(tensor, 0.5, 2)
    return model
