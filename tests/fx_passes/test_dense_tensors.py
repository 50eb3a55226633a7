"""Sparse tensors, which become dense ones."""

from __future__ import annotations

import subprocess
import sys
import textwrap
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import onnx_aot
from onnx_aot.errors import ConversionError
from onnx_aot.fx_passes import dense_tensors

X = torch.randn(4, 3)
MATRIX = torch.tensor([[0.0, 2, 0, 0], [0, 0, 0, 3], [1, 0, 0, 0], [0, 0, 0, 0]])


class Held(nn.Module):
    def __init__(self, adjacency: Tensor, compute: Callable[..., Tensor]) -> None:
        super().__init__()
        if isinstance(adjacency, nn.Parameter):
            self.adjacency = adjacency
        else:
            self.register_buffer("adjacency", adjacency)
        self.compute = compute

    def forward(self, x: Tensor) -> Tensor:
        return self.compute(self.adjacency, x)


@pytest.mark.filterwarnings("ignore:Sparse")
@pytest.mark.parametrize(
    "make",
    [
        lambda m: m.to_sparse(),
        lambda m: m.to_sparse_csr(),
        lambda m: nn.Parameter(m.to_sparse()),
    ],
)
@pytest.mark.parametrize(
    "compute",
    [
        torch.sparse.mm,
        lambda a, x: a @ x,
        lambda a, x: torch.mv(a, x[:, 0]),
        lambda a, x: torch.sparse.addmm(x, a, x, beta=0.5),
        lambda a, x: torch.sparse.mm(a, x.relu()) + x,
    ],
)
def test_products_of_sparse_weights(make: Any, compute: Any) -> None:
    model = Held(make(MATRIX), compute).eval()
    program = onnx_aot.export(model, (X,), verify=True)
    torch.testing.assert_close(program(X + 1)[0], model(X + 1))
    (weight,) = [v for n, v in program.model.graph.initializers.items() if "adjacency" in n]
    assert list(weight.shape) == [4, 4]


def from_edges(edges: Tensor, weights: Tensor, x: Tensor) -> Tensor:
    adjacency = torch.sparse_coo_tensor(edges, weights, (4, 4))
    return torch.sparse.mm(adjacency.t(), x)


@pytest.mark.filterwarnings("ignore:Sparse")
def test_a_matrix_of_edges() -> None:
    """Elements at one place are added."""
    edges, weights = torch.tensor([[0, 1, 1, 3], [2, 0, 0, 3]]), torch.randn(4)
    shapes = ({1: "edges"}, {0: "edges"}, None)
    program = onnx_aot.export(from_edges, (edges, weights, X), dynamic_shapes=shapes)
    for count in (4, 1, 9):
        given = torch.randint(0, 4, (2, count)), torch.randn(count), X
        torch.testing.assert_close(program(*given)[0], from_edges(*given))


@pytest.mark.parametrize(
    "function",
    [
        lambda x: x.to_sparse().to_dense(),
        lambda x: torch.sparse.mm(x.to_sparse(), x.T),
        lambda x: (x.to_sparse() * 2).coalesce().to_dense(),
    ],
)
def test_tensors_that_are_made_sparse(function: Callable[[Tensor], Tensor]) -> None:
    program = onnx_aot.export(function, (X,))
    for x in (X + 1, X.relu()):
        torch.testing.assert_close(program(x)[0], function(x))


def softmax(x: Tensor) -> Tensor:
    y = x.to_sparse()
    return torch.sparse.softmax(y, 1).to_dense()  # over the elements


def test_other_operators_are_refused_with_their_line() -> None:
    with pytest.raises(ConversionError, match=r"softmax\(y, 1\).to_dense\(\)  # over") as raised:
        onnx_aot.export(softmax, (X,))
    assert f"{__file__}:" in raised.value.message
    assert raised.value.code == "OA006"
    with pytest.raises(ConversionError, match="a result of forward is sparse"):
        onnx_aot.export(lambda x: (x, x.to_sparse()), (X,))


def test_torch_makes_no_sparse_tensors_of_dynamic_sizes() -> None:
    # In a process of its own, since torch refuses static sizes after this.
    code = """
        import torch, onnx_aot
        function = lambda x: x.to_sparse().to_dense()
        onnx_aot.export(function, (torch.ones(2, 3),), dynamic_shapes=({0: "n"},))
    """
    command = [sys.executable, "-c", textwrap.dedent(code)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert "it computes with sparse tensors" in done.stderr
    assert "fix: compute with dense tensors there" in done.stderr


def test_a_weight_that_would_be_too_large(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(dense_tensors, "_LARGEST", 60)
    with pytest.raises(ConversionError, match="weight adjacency is sparse, and ONNX has dense"):
        onnx_aot.export(Held(MATRIX.to_sparse(), torch.sparse.mm), (X,))


def without_loops(adjacency: Tensor, x: Tensor) -> Tensor:
    dense = adjacency.to_dense()
    dense.fill_diagonal_(0)
    return dense @ x + adjacency.to_dense() @ x


def written_afterwards(adjacency: Tensor, x: Tensor) -> Tensor:
    y = x.clone()
    sparse = y.to_sparse()
    y.mul_(0)
    return sparse.to_dense() + y + adjacency.float() @ x


@pytest.mark.filterwarnings("ignore:Sparse")
@pytest.mark.parametrize(
    "compute", [without_loops, written_afterwards, lambda a, x: x.to_sparse().to_dense().relu_()]
)
def test_changes_of_the_layout_copy(compute: Callable[..., Tensor]) -> None:
    module = Held(torch.eye(4).to_sparse(), compute)
    program = onnx_aot.export(module, (X.clone(),))
    assert len(program.model.graph.outputs) == 1
    x = torch.randn(4, 3)
    torch.testing.assert_close(program(x.clone())[0], module(x.clone()))
