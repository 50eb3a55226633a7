"""Weights that are stored once more, as products read them."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn

import onnx_aot
from onnx_aot.ir_passes import names_of_passes
from onnx_aot.ir_passes.cleanups import fold_constants
from tests.tolerances import assert_close

NAMES = set(names_of_passes()) - {"gemm_of_shared_weight"}


class Tied(nn.Module):
    """An embedding that is also the output layer."""

    def __init__(self) -> None:
        super().__init__()
        self.table = nn.Embedding(12, 6)
        self.head = nn.Linear(6, 12, bias=False)
        self.head.weight = self.table.weight

    def forward(self, ids: Tensor) -> Tensor:
        logits: Tensor = self.head(torch.tanh(self.table(ids)))
        return logits


class Scores(nn.Module):
    """A transposed weight that is not multiplied alone."""

    def __init__(self) -> None:
        super().__init__()
        self.table = nn.Embedding(12, 6)

    def forward(self, ids: Tensor) -> tuple[Tensor, Tensor]:
        turned = self.table.weight.t()
        return self.table(ids) @ turned, turned


def export(model: nn.Module, names: set[str]) -> onnx_aot.ONNXProgram:
    ids = torch.tensor([[1, 2, 3], [4, 5, 6]])
    axes = ({0: "batch", 1: "rows"},)
    return onnx_aot.export(model.eval(), (ids,), dynamic_shapes=axes, optimize=names)


def stored(program: onnx_aot.ONNXProgram) -> bool:
    """Returns whether the factor of the product is stored."""
    (product,) = (node for node in program.model.graph if node.op_type == "MatMul")
    return bool(product.inputs[1] is not None and product.inputs[1].is_initializer())


def test_an_embedding_that_is_the_output_layer() -> None:
    model = Tied()
    before, program = export(model, NAMES), export(model, {*NAMES, "stored_factors"})
    assert (stored(before), stored(program)) == (False, True)
    ids = torch.tensor([[7, 8, 9, 0]])
    assert_close(program(ids)[0], model(ids))
    other = Tied()
    program.apply_weights(other.state_dict())
    assert_close(program(ids)[0], other(ids))


def test_weights_of_any_size(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fold_constants, "SMALL_RESULT", 0)
    monkeypatch.setattr(fold_constants, "LARGEST", 8)
    model = nn.Sequential(nn.Embedding(12, 6), nn.Linear(6, 5, bias=False))
    before, program = export(model, NAMES), export(model, {*NAMES, "stored_factors"})
    assert (stored(before), stored(program)) == (False, True)
    ids = torch.tensor([[7, 8, 9, 0]])
    assert_close(program(ids)[0], model(ids))


def test_other_readers_of_the_transposed_weight() -> None:
    program = export(Scores(), {*NAMES, "stored_factors"})
    assert not stored(program)
