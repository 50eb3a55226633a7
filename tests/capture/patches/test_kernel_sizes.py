"""Derivatives of operators whose kernels give only shapes: ``capture/patches/kernel_sizes.py``.

What the replaced kernels give hides from autograd what it depends on: gradients would be zeros.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.export import Dim
from torch.func import grad, jvp, vjp

import onnx_aot
from onnx_aot.capture.patches.kernel_sizes import KERNELS
from onnx_aot.errors import CaptureError
from onnx_aot.torch_compat import aten
from tests.tolerances import assert_close

GENERATOR = torch.Generator().manual_seed(0)
X = torch.randn(3, 6, generator=GENERATOR)
SEQUENCE = torch.randn(2, 4, 6, generator=GENERATOR)


def recurrent(kind: type[nn.RNNBase], **options: Any) -> Callable[[Tensor], Tensor]:
    torch.manual_seed(0)
    layer = kind(6, 5, **options)

    def compute(x: Tensor) -> Tensor:
        result: Tensor = layer(x)[0]
        return result

    return compute


# By operator of the table: functions that have a derivative by it, and their input.
CASES: dict[Any, tuple[Callable[[Tensor], Tensor], Tensor]] = {
    aten.cdist.default: (lambda x: torch.cdist(x, x[:2] + 1), X),
    aten.combinations.default: (lambda x: torch.combinations(x[0]), X),
    aten.cov.default: (torch.cov, X),
    aten.fake_quantize_per_tensor_affine.default: (
        lambda x: torch.fake_quantize_per_tensor_affine(x, 0.1, 0, -8, 7),
        X,
    ),
    aten.gradient.scalarint: (lambda x: torch.gradient(x, dim=1)[0], X),
    aten.kron.default: (lambda x: torch.kron(x, x[:1]), X),
    aten.linalg_matrix_norm.default: (torch.linalg.matrix_norm, X),
    aten.linalg_multi_dot.default: (lambda x: torch.linalg.multi_dot([x, x.T, x]), X),
    aten.max_pool1d.default: (lambda x: nn.functional.max_pool1d(x, 2), X),
    aten.take_along_dim.default: (lambda x: x.take_along_dim(x.argsort(1), 1).cumsum(1), X),
    aten.lstm.input: (recurrent(nn.LSTM), SEQUENCE),
    aten.gru.input: (recurrent(nn.GRU), SEQUENCE),
    aten.rnn_tanh.input: (recurrent(nn.RNN), SEQUENCE),
    aten.rnn_relu.input: (recurrent(nn.RNN, nonlinearity="relu"), SEQUENCE),
}
TRANSFORMS: dict[str, Callable[[Callable[[Tensor], Tensor], Tensor], Tensor]] = {
    "grad": lambda compute, x: grad(lambda y: compute(y).sin().sum())(x),
    "vjp": lambda compute, x: vjp(lambda y: compute(y).sin(), x)[1](compute(x))[0],
    "jvp": lambda compute, x: jvp(lambda y: compute(y).sin(), (x,), (x * 2,))[1],
}


ONLY_BACKWARDS = {  # torch has no derivative forwards, or of the one backwards
    aten.cdist.default,
    aten.fake_quantize_per_tensor_affine.default,
    aten.lstm.input,
}


@pytest.mark.parametrize(
    ("operator", "transform"),
    [
        (operator, transform)
        for operator in CASES
        for transform in TRANSFORMS
        if transform != "jvp" or operator not in ONLY_BACKWARDS
    ],
    ids=str,
)
def test_derivatives(operator: Any, transform: str) -> None:
    compute, x = CASES[operator]
    assert operator in KERNELS

    def differentiate(x: Tensor) -> Tensor:
        return TRANSFORMS[transform](compute, x)

    program = onnx_aot.export(differentiate, (x,))
    assert differentiate(x).abs().max() > 0
    assert_close(program(x)[0], differentiate(x))


WEIGHT = torch.randn(6, 5, generator=GENERATOR)
PRODUCTS: dict[str, Callable[[Tensor], Tensor]] = {
    "linear": lambda x: nn.functional.linear(x[:, 1:], WEIGHT.T, WEIGHT[0]),
    "linear of a slice on both sides": lambda x: nn.functional.linear(x[:, 1:-1], WEIGHT.T),
    "matmul": lambda x: x[:, :-1] @ WEIGHT,
    "transposed": lambda x: torch.matmul(x.transpose(0, 1), WEIGHT),
    "derivative": grad(lambda y: (y[:, 1:] @ WEIGHT).sin().sum()),
}
REQUESTS: dict[str, Callable[[str], Any]] = {
    "name": str,
    "Dim": Dim,
    "DYNAMIC": lambda name: Dim.DYNAMIC,
    "AUTO": lambda name: Dim.AUTO,
}


@pytest.mark.parametrize(
    ("name", "request_"),
    [
        (name, request_)
        for name in PRODUCTS
        for request_ in REQUESTS
        if (name, request_) != ("derivative", "AUTO")  # expanded by torch, which fixes the batch
    ],
)
@pytest.mark.parametrize("batch", [1, 2])
def test_products_of_slices_hold_for_all_sizes(name: str, request_: str, batch: int) -> None:
    """A slice lies in one piece if the batch is 1, for which torch asks."""
    compute, make = PRODUCTS[name], REQUESTS[request_]
    shapes = ({0: make("batch"), 1: make("rows")},)
    program = onnx_aot.export(compute, (torch.randn(batch, 3, 6),), dynamic_shapes=shapes)
    for sizes in ((1, 3), (2, 3), (3, 7), (1, 4)):
        x = torch.randn(*sizes, 6)
        assert_close(program(x)[0], compute(x))


PIECES: dict[str, Callable[[Tensor], Tensor]] = {
    "sums": lambda x: torch.stack([piece.sum(1) for piece in x.tensor_split(4, 1)], 1),
    "joined": lambda x: x + torch.cat([p * i for i, p in enumerate(x.tensor_split(3, 1))], 1),
    "written": lambda x: [y := x.clone(), *(p.mul_(2) for p in y.tensor_split(2, -1)[1:])][0],
    "derivative": grad(
        lambda x: sum(p.sin().sum() * i for i, p in enumerate(x.tensor_split(3, 1)))
    ),
}


@pytest.mark.parametrize("name", PIECES)
@pytest.mark.parametrize("length", [16, 12, 13])
def test_pieces_that_differ_by_one_hold_for_all_sizes(name: str, length: int) -> None:
    """All are of one size if the example's can be divided, and others at other sizes."""
    compute = PIECES[name]
    program = onnx_aot.export(compute, (torch.randn(2, length),), dynamic_shapes=({1: "n"},))
    for other in (16, 13, 9, 6, 5, 2):
        x = torch.randn(2, other)
        assert_close(program(x)[0], compute(x))


def test_what_torch_does_not_expand_is_refused() -> None:
    def solve(x: Tensor) -> Tensor:
        return grad(lambda y: torch.linalg.lstsq(y, torch.ones(3, 1))[0].sum())(x)

    with pytest.raises(CaptureError, match=r"derivative of torch\.linalg\.lstsq[\s\S]*lstsq\(y"):
        onnx_aot.export(solve, (X[:, :3],))
