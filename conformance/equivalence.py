"""Compares the answers of operators that have more than one right answer.

For random values and uninitialized memory, only type and shape are compared. Some factorizations
and orders are not unique by definition: an eigenvector can have either sign, and equal elements can
come in any order. If such answers differ, the properties that the definition fixes are compared.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch

from conformance.samples import Call

__all__ = ["find_flag", "out_of_range", "unique_part"]

Tensors = Sequence[torch.Tensor]
Unique = Callable[[Call, Tensors, Tensors], list[torch.Tensor]]
"""Maps a call, its inputs and its outputs to the values that every right answer shares."""

UNINITIALIZED = frozenset(
    {"empty", "empty_like", "empty_permuted", "empty_strided", "new_empty", "new_empty_strided"}
)
UNIT_RANGE = frozenset(
    {"aten.rand.default", "aten.rand_like.default", "aten.bernoulli.default", "aten.bernoulli.p"}
)
"""Random operators whose values are between 0 and 1."""

SEEDS = range(40)


def find_flag(name: str, captured: torch.export.ExportedProgram, inputs: Tensors) -> str:
    """Returns the reason why values of this program cannot be compared, or an empty string."""
    if name in UNINITIALIZED:
        return "uninitialized"
    draws = any(
        torch.Tag.nondeterministic_seeded in getattr(node.target, "tags", ())
        for module in captured.graph_module.modules()
        if isinstance(module, torch.fx.GraphModule)
        for node in module.graph.nodes
    )
    return "random" if draws and _depends_on_seed(captured, inputs) else ""


def _depends_on_seed(captured: torch.export.ExportedProgram, inputs: Tensors) -> bool:
    """True if the outputs depend on the seed; dropout with a probability of 0 does not."""
    module = captured.module()

    def answer(seed: int) -> list[torch.Tensor]:
        torch.manual_seed(seed)
        with torch.no_grad():
            return [torch.as_tensor(x) for x in module(*(x.clone() for x in inputs))]

    first, *others = SEEDS
    expected = answer(first)
    return any(
        not torch.equal(one.nan_to_num(), other.nan_to_num())
        for seed in others
        for one, other in zip(expected, answer(seed), strict=True)
    )


def out_of_range(targets: Sequence[str], expected: Tensors, actual: Tensors) -> str:
    """Describes an error in random values, as far as a single draw can show one."""
    for i, (one, other) in enumerate(zip(expected, actual, strict=True)):
        if not one.numel():
            continue
        if one.isfinite().all() and not other.isfinite().all():
            return f"output {i} has values that are not finite"
        real = not other.is_complex()
        if UNIT_RANGE.issuperset(targets) and real and not ((other >= 0) & (other <= 1)).all():
            return f"output {i} has values outside of 0 to 1"
    return ""


def unique_part(name: str) -> Unique | None:
    """Returns the function for the parts that the definition fixes, or None if it fixes all."""
    return UNIQUE.get(name)


def _svd(_: Call, inputs: Tensors, outputs: Tensors) -> list[torch.Tensor]:
    """Singular vectors have any phase, and any basis if singular values are equal."""
    u, s, v = outputs
    rank = s.shape[-1]
    product = (u[..., :rank] * s.unsqueeze(-2)) @ v[..., :rank].mH
    return [s, product, u.mH @ u, v.mH @ v]


def _lowrank(call: Call, inputs: Tensors, outputs: Tensors) -> list[torch.Tensor]:
    """The samples have the requested rank, unless ``M`` is subtracted from them.

    At a higher rank, the answer depends on random draws, but the vectors are always orthonormal.
    """
    if call.rebuild_arguments(inputs)[1].get("M") is None:
        return _svd(call, inputs, outputs)
    u, _values, v = outputs
    return [u.mH @ u, v.mH @ v]


def _linalg_svd(call: Call, inputs: Tensors, outputs: Tensors) -> list[torch.Tensor]:
    u, s, vh = outputs
    return _svd(call, inputs, (u, s, vh.mH))


def _qr(_: Call, inputs: Tensors, outputs: Tensors) -> list[torch.Tensor]:
    """Columns of Q have any phase, which the rows of R undo."""
    q, r = outputs
    return [q @ r, q.mH @ q, r.tril(-1), r.abs()] if q.numel() else [q, r.abs()]


def _eigh(_: Call, inputs: Tensors, outputs: Tensors) -> list[torch.Tensor]:
    """Eigenvectors have any phase, and any basis if eigenvalues are equal."""
    values, vectors = outputs
    return [values, (vectors * values.unsqueeze(-2)) @ vectors.mH, vectors.mH @ vectors]


def _eig(call: Call, inputs: Tensors, outputs: Tensors) -> list[torch.Tensor]:
    """Eigenvalues come in any order, and eigenvectors have any phase."""
    values, vectors = outputs
    residual = inputs[0].to(vectors.dtype) @ vectors - vectors * values.unsqueeze(-2)
    return [*_eigvals(call, inputs, [values]), residual, vectors.norm(dim=-2)]


def _eigvals(_: Call, inputs: Tensors, outputs: Tensors) -> list[torch.Tensor]:
    """Eigenvalues come in any order."""
    values = outputs[0]
    by_imaginary = values.imag.mul(1e3).round().argsort(dim=-1, stable=True)
    values = values.gather(-1, by_imaginary)
    by_real = values.real.mul(1e3).round().argsort(dim=-1, stable=True)
    return [values.gather(-1, by_real)]


def _values_at_indices(position: int, last: bool = True) -> Unique:
    """Allows the index of any of equal elements; ``position`` is that of ``dim`` in the call."""

    def compare_unique(call: Call, inputs: Tensors, outputs: Tensors) -> list[torch.Tensor]:
        args, kwargs = call.rebuild_arguments(inputs)
        if kwargs.get("stable"):
            return list(outputs)
        given = kwargs.get("dim", args[position] if len(args) > position else None)
        if given is None and not last:
            return list(outputs)
        dim, source = -1 if given is None else int(given), inputs[0]
        indices = outputs[-1]
        if not source.dim():
            return list(outputs)
        kept = indices if indices.dim() == source.dim() else indices.unsqueeze(dim)
        if ((kept < 0) | (kept >= source.shape[dim])).any():
            return list(outputs)
        found = source.gather(dim, kept)
        distinct = kept.sort(dim).values.diff(dim=dim).ne(0).all()
        return [*outputs[:-1], found, distinct]

    return compare_unique


UNIQUE: dict[str, Unique] = {
    "svd": _svd,
    "linalg.svd": _linalg_svd,
    "svd_lowrank": _lowrank,
    "pca_lowrank": _lowrank,
    "qr": _qr,
    "linalg.qr": _qr,
    "linalg.eigh": _eigh,
    "linalg.eig": _eig,
    "linalg.eigvals": _eigvals,
    "sort": _values_at_indices(1),
    "argsort": _values_at_indices(1),
    "topk": _values_at_indices(2),
    "kthvalue": _values_at_indices(2),
    "mode": _values_at_indices(1),
    "median": _values_at_indices(1, last=False),
    "nanmedian": _values_at_indices(1, last=False),
}
