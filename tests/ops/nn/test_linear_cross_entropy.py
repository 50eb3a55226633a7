"""The cross entropy of a linear layer: ``onnx_aot/ops/nn/linear_cross_entropy.py``."""

from __future__ import annotations

import pytest
import torch

pytest.importorskip("torch.nn.modules.linear_cross_entropy")

from tests.ops.rows import Row, check, floats, ints, parametrize, positive

namespace = torch.ops.torch_nn
HALF = {"dtype": torch.bfloat16}

ROWS = [
    Row(
        namespace._linear_cross_entropy_batch_chunked.default,
        (x, table, labels, bias, weight, reduction, 2, 0.0, 3, "balanced", torch.float32)
        + (False,) * 4,
        name=f"{x.dtype}, {reduction}",
    )
    for x, table, labels, bias, weight in (
        (floats("n", 3), floats(5, 3), ints("n", low=0, high=5), floats(5), positive(5)),
        (floats("n", 3, **HALF), floats(5, 3, **HALF), ints("n", low=3, high=5), None, None),
    )
    for reduction in ("mean", "sum")
] + [
    Row(
        namespace._linear_cross_entropy_batch_chunked_no_reduction.default,
        (
            floats("n", 3),
            floats(5, 3),
            ints("n", low=0, high=5),
            None,
            positive(5),
            2,
            3,
            "balanced",
            torch.float32,
        ),
    ),
]


@parametrize(ROWS)
def test_row(row: Row) -> None:
    check(row)
