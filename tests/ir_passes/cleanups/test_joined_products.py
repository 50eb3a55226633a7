"""Products of one value with several weights."""

from __future__ import annotations

import collections

import torch
from torch import Tensor, nn

import onnx_aot
from tests.tolerances import assert_close


class Layers(nn.Module):
    """Layers of different widths that read one value, with and without a bias."""

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Linear(6, 4, bias=False)
        self.second = nn.Linear(6, 3)
        self.third = nn.Linear(6, 4, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        first = torch.relu(self.first(x))  # stands before the second product
        return torch.cat([first * self.third(x), torch.tanh(self.second(x))], -1)


class Again(Layers):
    """Layers of which one reads another value too."""

    def forward(self, x: Tensor) -> Tensor:
        return torch.cat([super().forward(x), torch.relu(self.first(x * 2))], -1)


class Returned(Layers):
    """Layers of which one is a result of the model as it is."""

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor, Tensor]:  # type: ignore[override]
        return torch.relu(self.first(x)), self.second(x), self.third(x)


class OfTwo(Layers):
    """Layers that read different values."""

    def forward(self, x: Tensor) -> Tensor:
        first = torch.relu(self.first(x))
        return torch.cat([first * self.third(x + 1), torch.tanh(self.second(x * 2))], -1)


def export(model: nn.Module) -> onnx_aot.ONNXProgram:
    torch.manual_seed(0)
    x = torch.randn(2, 3, 6)
    axes = ({0: "batch", 1: "rows"},)
    return onnx_aot.export(model.eval(), (x,), dynamic_shapes=axes)


def check(model: nn.Module, program: onnx_aot.ONNXProgram) -> None:
    for shape in ((2, 3, 6), (1, 1, 6), (3, 5, 6)):
        x = torch.randn(shape)
        wanted = model(x)
        wanted = wanted if isinstance(wanted, tuple) else (wanted,)
        for found, value in zip(program(x), wanted, strict=True):
            assert_close(found, value)


def operators(program: onnx_aot.ONNXProgram) -> collections.Counter[str]:
    return collections.Counter(node.op_type for node in program.model.graph)


def test_layers_become_one_product() -> None:
    model = Layers()
    program = export(model)
    assert operators(program)["MatMul"] == 3
    assert program.optimize({"joined_products"}) == {"joined_products": 1}
    found = operators(program)
    assert (found["MatMul"], found["Add"], found["Split"]) == (1, 1, 1)
    check(model, program)
    other = Layers()
    program.apply_weights(other.state_dict())
    check(other, program)


def test_what_is_not_joined() -> None:
    for made, left in ((Again, 3), (Returned, 2), (OfTwo, 3)):
        model = made()
        program = export(model)
        program.optimize({"joined_products"})
        assert operators(program)["MatMul"] == left, made
        check(model, program)
