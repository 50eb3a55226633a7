"""Fractional max pooling: ``onnx_aot/ops/nn/fractional_pooling.py``."""

from __future__ import annotations

import torch

from onnx_aot.torch_compat import aten
from tests.ops.rows import Row, check, floats, parametrize

ROWS = [
    Row(
        aten.fractional_max_pool2d.default,
        (image, [2, 3], wanted, samples),
        name=f"{image.sizes}, {wanted}",
    )
    for image, samples in (
        (floats("n", 2, "h", "w"), floats("n", 2, 2, low=0, high=1)),
        (floats(2, "h", "w"), floats(1, 2, 2, low=0, high=1)),
    )
    for wanted in ([4, 3], [1, 5])
] + [
    Row(
        aten.fractional_max_pool2d.default,
        (
            floats("n", 2, 9, 8, dtype=torch.float64),
            [2, 2],
            [4, 5],
            floats("n", 2, 2, low=0, high=1, dtype=torch.float64),
        ),
        name="float64",
        sizes=({"n": 0},),
    ),
    Row(
        aten.fractional_max_pool3d.default,
        (
            floats(3, 2, 9, 8, 5),
            [2, 3, 2],
            [4, 3, 2],
            floats(3, 2, 3, low=0, high=1),
        ),
    ),
    Row(
        aten.fractional_max_pool3d.default,
        (floats(2, 9, 8, 5), [2, 3, 2], [4, 1, 2], floats(2, 2, 3, low=0, high=1)),
        name="unbatched",
    ),
]


@parametrize(ROWS)
def test_row(row: Row) -> None:
    check(row)
