"""Operators with more than one right answer, and what is compared of theirs.

Three kinds: drawn at random; memory that nobody has written; and factorizations and orders whose
definition leaves something open, such as the sign of an eigenvector or the order of equal
elements. Of the last, only what the definition fixes is compared, and only where the answers differ
as they are.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch

__all__ = ["flag", "out_of_range", "unique_part"]

Tensors = Sequence[torch.Tensor]
Unique = Callable[[Tensors, Tensors], list[torch.Tensor]]

UNINITIALIZED = frozenset(
    {"empty", "empty_like", "empty_permuted", "empty_strided", "new_empty", "new_empty_strided"}
)
UNIT_RANGE = frozenset({"rand", "rand_like", "bernoulli"})
"""Random operators whose values are from 0 to 1."""


def flag(name: str, captured: torch.export.ExportedProgram) -> str:
    """Why values of this program cannot be compared, or an empty string."""
    if name in UNINITIALIZED:
        return "uninitialized"
    for module in captured.graph_module.modules():
        if not isinstance(module, torch.fx.GraphModule):
            continue
        for node in module.graph.nodes:
            if torch.Tag.nondeterministic_seeded in getattr(node.target, "tags", ()):
                return "random"
    return ""


def out_of_range(name: str, expected: Tensors, actual: Tensors) -> str:
    """What is wrong with random values, as far as one drawing can show."""
    for i, (one, other) in enumerate(zip(expected, actual, strict=True)):
        if not one.numel():
            continue
        if one.isfinite().all() and not other.isfinite().all():
            return f"output {i} has values that are not finite"
        real = not other.is_complex()
        if name in UNIT_RANGE and real and not ((other >= 0) & (other <= 1)).all():
            return f"output {i} has values outside of 0 to 1"
    return ""


def unique_part(name: str) -> Unique | None:
    """What the operator's definition fixes of its answer, given inputs and outputs."""
    return UNIQUE.get(name.partition(".")[0] if not name.startswith("linalg.") else name)


def _svd(_: Tensors, outputs: Tensors) -> list[torch.Tensor]:
    """Singular vectors come with any phase, and any basis where singular values are equal."""
    u, s, v = outputs
    rank = s.shape[-1]
    product = (u[..., :rank] * s.unsqueeze(-2)) @ v[..., :rank].mH
    return [s, product, u.mH @ u, v.mH @ v]


def _linalg_svd(inputs: Tensors, outputs: Tensors) -> list[torch.Tensor]:
    u, s, vh = outputs
    return _svd(inputs, (u, s, vh.mH))


def _qr(_: Tensors, outputs: Tensors) -> list[torch.Tensor]:
    """Columns of Q come with any phase, which the rows of R undo."""
    q, r = outputs
    return [q @ r, q.mH @ q, r.tril(-1), r.abs()] if q.numel() else [q, r.abs()]


def _eigh(_: Tensors, outputs: Tensors) -> list[torch.Tensor]:
    """Eigenvectors come with any phase, and any basis where eigenvalues are equal."""
    values, vectors = outputs
    return [values, (vectors * values.unsqueeze(-2)) @ vectors.mH, vectors.mH @ vectors]


def _eig(inputs: Tensors, outputs: Tensors) -> list[torch.Tensor]:
    """Eigenvalues come in any order, eigenvectors with any phase."""
    values, vectors = outputs
    residual = inputs[0].to(vectors.dtype) @ vectors - vectors * values.unsqueeze(-2)
    return [*_eigvals(inputs, [values]), residual, vectors.norm(dim=-2)]


def _eigvals(_: Tensors, outputs: Tensors) -> list[torch.Tensor]:
    """Eigenvalues come in any order."""
    values = outputs[0]
    by_imaginary = values.imag.mul(1e3).round().argsort(dim=-1, stable=True)
    values = values.gather(-1, by_imaginary)
    by_real = values.real.mul(1e3).round().argsort(dim=-1, stable=True)
    return [values.gather(-1, by_real)]


UNIQUE: dict[str, Unique] = {
    "svd": _svd,
    "linalg.svd": _linalg_svd,
    "qr": _qr,
    "linalg.qr": _qr,
    "linalg.eigh": _eigh,
    "linalg.eig": _eig,
    "linalg.eigvals": _eigvals,
}
