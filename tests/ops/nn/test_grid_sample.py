"""Sampling at the points of a grid: ``onnx_aot/ops/nn/grid_sample.py``."""

from __future__ import annotations

import torch

from onnx_aot.torch_compat import aten
from tests.ops.rows import Row, check, floats, parametrize

DOUBLE = {"dtype": torch.float64}

MODES = [
    (mode, padding, align) for mode in (0, 1) for padding in (0, 1, 2) for align in (False, True)
]


def _samples_cubic_volumes() -> bool:
    """True if torch does, which starts with version 2.15."""
    try:
        aten.grid_sampler(torch.ones(1, 1, 2, 2, 2), torch.zeros(1, 1, 1, 1, 3), 2, 0, False)
    except RuntimeError:
        return False
    return True


CUBIC_VOLUMES = (
    [(2, padding, align) for padding in (0, 1, 2) for align in (False, True)]
    if _samples_cubic_volumes()
    else []
)

ROWS = (
    [
        Row(
            aten.grid_sampler.default,
            (image, grid, mode, padding, align),
            name=f"{image.dtype}, {mode}, {padding}, {align}",
        )
        for image, grid in (
            (floats("n", 2, "h", "w"), floats("n", "m", "k", 2, low=-1.6, high=1.6)),
            (floats("n", 2, "h", "w", **DOUBLE), floats("n", 3, "k", 2, low=-4, high=4, **DOUBLE)),
        )
        for mode, padding, align in [*MODES, *((2, p, a) for p in (0, 1, 2) for a in (False, True))]
    ]
    + [
        Row(
            aten.grid_sampler_3d.default,
            (floats("n", 2, "h", "w", 3), floats("n", "m", 3, "k", 3, low=-2, high=2), *how),
            name=f"{how}",
        )
        for how in (*MODES, *CUBIC_VOLUMES)
    ]
    + [
        Row(
            aten.grid_sampler_2d.default,
            (floats("n", 2, 1, "w"), floats("n", 2, 3, 2, low=-2, high=2), 0, 2, True),
            name="one row",
            sizes=({"n": 0},),
        ),
        Row(
            aten.grid_sampler_3d.default,
            (
                floats(2, 2, 3, 4, 3, dtype=torch.float16),
                floats(2, 2, 3, 3, 3, dtype=torch.float16),
                0,
                0,
                False,
            ),
            name="float16",
        ),
    ]
)


@parametrize(ROWS)
def test_row(row: Row) -> None:
    check(row)
