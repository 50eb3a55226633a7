"""Connectionist temporal classification: ``onnx_aot/ops/nn/ctc_loss.py``."""

from __future__ import annotations

import pytest
import torch
from torch import nn

import onnx_aot
from onnx_aot.torch_compat import aten
from tests.ops.rows import Row, check, floats, given, ints, parametrize

Tensors = tuple[torch.Tensor, ...]

SIZES = ((12, 3, 4), (5, 1, 2), (1, 2, 1), (30, 5, 7), (3, 2, 5), (6, 2, 0))
"""Steps, sequences, labels of the longest target; the first is the example."""


def examples(steps: int, batch: int, labels: int, joined: bool, dtype: torch.dtype) -> Tensors:
    """Sequences and targets of random lengths, some empty; what follows a target is padding."""
    steps_of = torch.randint(0, steps + 1, (batch,))
    labels_of = torch.randint(0, labels + 1, (batch,))
    steps_of[0], labels_of[0] = steps, labels
    targets = torch.randint(1, 6, (batch, labels))
    if joined:
        targets = torch.cat([row[:n] for row, n in zip(targets, labels_of, strict=True)])
    else:
        targets = targets.where(torch.arange(labels) < labels_of[:, None], -1)
    return torch.randn(steps, batch, 6, dtype=dtype), targets, steps_of, labels_of


class Loss(nn.Module):
    def __init__(self, reduction: str, zero_infinity: bool) -> None:
        super().__init__()
        self.loss = nn.CTCLoss(reduction=reduction, zero_infinity=zero_infinity)

    def forward(self, x: torch.Tensor, *rest: torch.Tensor) -> torch.Tensor:
        loss: torch.Tensor = self.loss(x.log_softmax(-1), *rest)
        return loss


@pytest.mark.parametrize("joined", [False, True])
@pytest.mark.parametrize("zero_infinity", [False, True])
@pytest.mark.parametrize("reduction", ["none", "mean", "sum"])
def test_every_length(reduction: str, zero_infinity: bool, joined: bool) -> None:
    torch.manual_seed(0)
    model = Loss(reduction, zero_infinity)
    targets = {0: "all"} if joined else {0: "n", 1: "labels"}
    sizes = ({0: "t", 1: "n"}, (targets, {0: "n"}, {0: "n"}))
    for dtype in (torch.float32, torch.float64):
        program = onnx_aot.export(
            model, examples(*SIZES[0], joined, dtype), dynamic_shapes=sizes, verify=True
        )
        for steps, batch, labels in SIZES:
            given = examples(steps, batch, labels, joined, dtype)
            torch.testing.assert_close(program(*given)[0], model(*given), rtol=1e-4, atol=1e-5)


LOG_PROBS = floats("l", "n", 6, low=-4.0, high=-1.0)
LENGTHS = ints("n", low=1, high=2), ints("n", low=0, high=3)
ROWS = [
    Row(aten.ctc_loss.Tensor, (LOG_PROBS, ints("n", 2, low=0, high=5), *LENGTHS, 5), refused=True),
    Row(
        aten.ctc_loss.Tensor,
        (LOG_PROBS, ints("n", 2, low=1, high=6, dtype=torch.int32), *LENGTHS, 0, 0),
        name="int32",
        refused=True,
    ),
    Row(
        aten.ctc_loss.Tensor,
        (floats(7, 6), given(1, 2, 2, dtype=torch.int64), ints(low=6, high=8), ints(low=2, high=4)),
        name="one sequence",
        refused=True,
    ),
    Row(
        aten.ctc_loss.IntList,
        (floats(7, 6), given(1, 2, 2, dtype=torch.int64), [7], [3], 0, 0),
        name="one sequence",
        refused=True,
    ),
    Row(
        aten.ctc_loss.IntList,
        (floats("m", 2, 6), ints(5, low=1, high=6), [2, 3], [3, 2], 0, 2, True),
        name="joined",
        refused=True,
    ),
]


@parametrize(ROWS)
def test_rows(row: Row) -> None:
    check(row)
