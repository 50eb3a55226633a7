"""Instructions that compute losses."""

from __future__ import annotations

from tests.properties.choices import Choices
from tests.properties.instruction import Instruction, never

__all__ = ["LOSSES"]


def _distance(c: Choices) -> str:
    x = c.floats()
    y = c.alike(x, lambda v: v.dtype == x.dtype)
    form = c.of(
        "F.mse_loss({x}, {y}{more})",
        "F.l1_loss({x}, {y}{more})",
        "F.smooth_l1_loss({x}, {y}, beta=0.5{more})",
        "F.huber_loss({x}, {y}, delta=2.0{more})",
        "F.kl_div({x}.log_softmax(-1), {y}.softmax(-1){more})",
        "F.poisson_nll_loss({x}.clamp(-2, 2), {y}.abs(){more})",
        "F.soft_margin_loss({x}, {y}.sign(){more})",
        "F.binary_cross_entropy_with_logits({x}, ({y} > 0).to({x}.dtype){more})",
        "F.binary_cross_entropy({x}.sigmoid(), ({y} > 0).to({x}.dtype){more})",
        "F.hinge_embedding_loss({x}, ({y} > 0) * 2 - 1{more})",
        "F.margin_ranking_loss({x}, {y}, ({y} > 0) * 2 - 1{more})",
        "F.multilabel_soft_margin_loss({x}, ({y} > 0).to({x}.dtype){more})",
        "F.gaussian_nll_loss({x}, {y}, {y}.abs() + 1{more})",
    )
    if "({y} > 0)" in form or "sign()" in form:
        y = c.alike(x, lambda v: v.dtype == x.dtype and v.exact)
    return form.format(x=x.name, y=y.name, more=_reduction(c))


def _classes(c: Choices) -> str:
    text, size, x = c.features((2, 3), 1)
    target = (
        f"({text}.argmax(1) + {c.between(0, 2)}) % {size}" if x.exact else f"{text}[:, 0].long()"
    )
    if not x.exact:
        target = f"torch.zeros_like({text}[:, 0], dtype=torch.int64)"
    form = c.of(
        "F.cross_entropy({x}, {target}{more})",
        "F.cross_entropy({x}, {target}, label_smoothing=0.1{more})",
        "F.cross_entropy({x}, {target}, ignore_index=0{more})",
        "F.cross_entropy({x}, {target}, weight=torch.arange(1.0, {size} + 1){more})",
        "F.cross_entropy({x}, {x}.softmax(1){more})",
        "F.nll_loss({x}.log_softmax(1), {target}{more})",
        "F.nll_loss({x}.log_softmax(1), {target}, weight=torch.arange(1.0, {size} + 1){more})",
        # PyTorch's sum of no losses of this kind is whatever the memory holds.
        *(["F.multi_margin_loss({x}, {target}, reduction='none')"] if x.rank == 2 else []),
    )
    return form.format(x=text, target=target, size=size, more=_reduction(c))


def _vectors(c: Choices) -> str:
    text, _, _ = c.features((2,), -1)
    form = c.of(
        "F.triplet_margin_loss({x}, {x} * 2, {x} + 1{more})",
        "F.cosine_embedding_loss({x}, {x} + 1, torch.ones({x}.shape[0]){more})",
        "F.pairwise_distance({x}, {x} + 1)",
        "F.cosine_similarity({x}, {x} + 1, dim=0)",
    )
    return form.format(x=text, more=_reduction(c))


def _reduction(c: Choices) -> str:
    return f", reduction='{c.of('none', 'mean', 'sum', 'mean')}'"


LOSSES = [
    Instruction("distance", _distance, never, computes=True),
    Instruction("classes", _classes, never, computes=True),
    Instruction("vectors", _vectors, never, computes=True),
]
