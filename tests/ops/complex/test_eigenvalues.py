"""Eigenvalues of any square matrix: ``onnx_aot/ops/complex/eigenvalues.py``."""

from __future__ import annotations

from collections.abc import Callable

import torch

from onnx_aot.torch_compat import aten
from tests.ops.complex.complex_numbers import numbers
from tests.ops.rows import Row, T, check, parametrize

DOUBLE = torch.float64
EMPTY = ({"n": 0},)


def sort(values: torch.Tensor) -> torch.Tensor:
    """Sorts eigenvalues, whose order is not defined, by a direction that separates conjugates."""
    return values.gather(-1, (values.real + 0.3 * values.imag).argsort(-1))


def sorted_values(matrix: torch.Tensor) -> torch.Tensor:
    return sort(torch.linalg.eigvals(matrix))


def inner_values(matrix: torch.Tensor) -> torch.Tensor:
    return sort(aten._linalg_eigvals.default(matrix))


def decompose(matrix: torch.Tensor) -> tuple[torch.Tensor, ...]:
    """Returns what does not depend on the order of eigenvalues and the phase of eigenvectors."""
    values, vectors = torch.linalg.eig(matrix)
    residual = matrix.to(vectors.dtype) @ vectors - vectors * values.unsqueeze(-2)
    share = residual.abs().sum((-2, -1)) / matrix.abs().sum((-2, -1)).clamp(min=1e-35)
    return sort(values), share, vectors.abs().square().sum(-2)


def real(*sizes: int | str, dtype: torch.dtype = torch.float32) -> T:
    return T(sizes, dtype, lambda *s: torch.randn(s, dtype=DOUBLE))


def fixed(make: Callable[[], torch.Tensor], dtype: torch.dtype = torch.float32) -> T:
    """A matrix with a property that random ones do not have."""
    matrix = make()
    return T(tuple(matrix.shape), dtype, lambda *_: matrix)


SPECIAL = {
    "zeros": lambda: torch.zeros(3, 3),
    "identity": lambda: torch.eye(4),
    "multiple": lambda: torch.diag(torch.tensor([1.0, 1.0, 2.0, 2.0, 3.0])),
    "Jordan": lambda: 2 * torch.eye(4) + torch.diag(torch.ones(3), 1),
    "rotation": lambda: torch.tensor([[0.0, 1.0], [-1.0, 0.0]]),
    "companion": lambda: torch.eye(5).roll(1, 0),
    "blocks": lambda: torch.kron(torch.eye(2), torch.tensor([[0.0, 2.0], [-2.0, 0.0]])),
    "triangle": lambda: torch.arange(16.0).reshape(4, 4).triu(),
    "large": lambda: 1e30 * torch.tensor([[1.0, 2.0], [3.0, 4.0]]),
    "small": lambda: 1e-30 * torch.tensor([[1.0, 2.0], [3.0, 4.0]]),
}

VALUES = [
    Row(target, (matrix,), call=call, name=name, sizes=more)
    for target, call in (
        (aten.linalg_eigvals.default, sorted_values),
        (aten._linalg_eigvals.default, inner_values),
    )
    for name, matrix, more in (
        ("real", real("n", "n"), EMPTY),
        ("double", real("n", "n", dtype=DOUBLE), ()),
        ("complex", numbers("n", "n"), EMPTY),
        ("batch", real("m", 2, 5, 5), ({"m": 0},)),
        ("1 x 1", real(1, 1), ()),
        *((name, fixed(make), ()) for name, make in SPECIAL.items()),
    )
]

VECTORS = [
    Row(aten.linalg_eig.default, (matrix,), call=decompose, name=name, sizes=more)
    for name, matrix, more in (
        ("real", real("n", "n"), ()),
        ("double", real("n", "n", dtype=DOUBLE), ()),
        ("complex", numbers("n", "n"), ()),
        ("batch", real("m", 2, 5, 5), ()),
        ("many", real(24, 24), ()),
        ("none", real(0, 0), ()),
        *((name, fixed(make), ()) for name, make in SPECIAL.items()),
    )
]


@parametrize(VALUES)
def test_eigenvalues(row: Row) -> None:
    check(row)


@parametrize(VECTORS)
def test_eigenvectors(row: Row) -> None:
    check(row)


def test_real_eigenvalues_of_a_real_matrix_have_no_imaginary_part() -> None:
    """As torch gives them, up to their order; models test ``eigenvalues.imag == 0``."""
    check(
        Row(
            aten.linalg_eigvals.default,
            (fixed(lambda: torch.tensor([[1.0, 2.0, 0.0], [2.0, 1.0, 0.0], [0.0, 3.0, 5.0]])),),
            call=lambda x: (torch.linalg.eigvals(x).imag == 0).all(),
        )
    )


def test_conjugates_stand_beside_each_other_with_the_upper_one_first() -> None:
    def differences(x: torch.Tensor) -> torch.Tensor:
        values = torch.linalg.eigvals(x)
        return torch.stack([values[0].conj() - values[1], values[0].imag.sign() + 0j])

    check(
        Row(
            aten.linalg_eigvals.default,
            (fixed(lambda: torch.tensor([[1.0, -2.0], [2.0, 1.0]])),),
            call=differences,
        )
    )
