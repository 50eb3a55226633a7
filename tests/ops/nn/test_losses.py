"""Losses: ``onnx_aot/ops/nn/losses.py``."""

from __future__ import annotations

import torch

from onnx_aot.torch_compat import aten
from tests.ops.rows import Row, T, check, floats, ints, parametrize

HALF = {"dtype": torch.bfloat16}


def signs(*sizes: int | str, dtype: torch.dtype = torch.float32) -> T:
    return T(sizes, dtype, lambda *s: torch.randint(0, 2, s) * 2 - 1)


RANKING = [
    Row(
        aten.margin_ranking_loss.default,
        (first, second, target, 0.5, reduction),
        name=f"{first.dtype}, {reduction}",
    )
    for first, second, target in (
        (floats("n", "m"), floats("n", "m"), signs("n", "m")),
        (floats("n", "m", **HALF), floats("n", "m", **HALF), signs("n", "m", **HALF)),
        (ints("n", 3), ints("n", 3), signs("n", 3, dtype=torch.int64)),
        (
            ints("n", low=0, dtype=torch.uint8),
            ints("n", low=0, dtype=torch.uint8),
            ints("n", low=0, dtype=torch.uint8),
        ),
    )
    for reduction in (0, 1, 2)
]

HINGE = [
    Row(
        aten.hinge_embedding_loss.default,
        (values, target, 2.0, reduction),
        name=f"{values.dtype}, {target.dtype}, {reduction}",
        sizes=({"n": 0},),
    )
    for values, target in (
        (floats("n", "m"), signs("n", "m")),
        (floats("n", "m"), ints("n", "m", low=-1, high=3)),
        (floats("n", **HALF), signs("n", **HALF)),
    )
    for reduction in (0, 1, 2)
]


def labels(*sizes: int | str) -> T:
    """Two classes, then none, then an ignored one."""
    return T(
        sizes, torch.int64, lambda *s: torch.tensor([2, 0, -1, 1, 3]).expand(*s[:-1], 5).clone()
    )


LABELS = [
    Row(
        aten.multilabel_margin_loss.default,
        (values, target, reduction),
        name=f"{values.sizes}, {values.dtype}, {reduction}",
    )
    for values, target in (
        (floats("n", 5), labels("n", 5)),
        (floats("n", 5, dtype=torch.float64), labels("n", 5)),
        (floats(5), labels(5)),
    )
    for reduction in (0, 1, 2)
] + [
    Row(aten.multilabel_margin_loss_forward.default, (floats("n", 5), labels("n", 5), 0)),
]

LOGITS = [
    Row(
        aten.binary_cross_entropy_with_logits.default,
        (x, floats(*x.sizes, low=0, high=1, dtype=x.dtype), weight, positive, reduction),
        name=f"{x.dtype}, {reduction}",
        sizes=({"n": 0},),
    )
    for x, weight, positive, reduction in (
        (floats("n", 3, low=-90, high=90), None, None, 1),
        (floats("n", 3), floats(3), floats(3), 0),
        (floats("n", 3, dtype=torch.float64), None, floats(3, dtype=torch.float64), 2),
        (floats("n", 3, **HALF), floats(3, **HALF), floats(3, **HALF), 1),
    )
]

PROBABILITIES = [
    Row(
        aten.cross_entropy_loss.default,
        (x, floats(*x.sizes, low=0, high=1, dtype=x.dtype), weight, reduction, -100, smoothing),
        name=f"probabilities, {x.sizes}, {reduction}, {smoothing}",
    )
    for x, weight, smoothing in (
        (floats("n", 3), floats(3, low=0, high=1), 0.0),
        (floats("n", 3, "m"), None, 0.1),
        (floats("n", 3, **HALF), floats(3, **HALF), 0.1),
        (floats("m"), floats("m"), 0.2),
    )
    for reduction in (0, 1, 2)
]

ROWS = [*LOGITS, *RANKING, *HINGE, *LABELS, *PROBABILITIES]


@parametrize(ROWS)
def test_row(row: Row) -> None:
    check(row)
