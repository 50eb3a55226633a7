from __future__ import annotations

import pytest
import torch

from onnx_aot.torch_compat import aten
from tests.ops.rows import Row, check, floats, given, parametrize

LENGTHS = given(2, 0, 3, dtype=torch.int64)
OFFSETS = given(0, 2, 2, 5, dtype=torch.int64)

ROWS = [
    *(
        Row(aten.segment_reduce.default, (floats(5, "m"), name), {**bounds, "unsafe": True})
        for name in ("max", "mean", "min", "prod", "sum")
        for bounds in (
            {"lengths": LENGTHS},
            {"offsets": OFFSETS},
            {"lengths": LENGTHS, "initial": 0.5},
        )
    ),
    Row(aten.segment_reduce.default, (floats(5), "sum"), {"lengths": LENGTHS}),
    Row(
        aten.segment_reduce.default,
        (floats(3, 5, 2), "mean"),
        {"lengths": given(1, 4, 2, 3, 0, 5, dtype=torch.int64), "axis": 1},
        call=lambda x, name, lengths, axis: torch.segment_reduce(
            x, name, lengths=lengths.reshape(3, 2), axis=axis
        ),
        name="per row",
    ),
]


@parametrize(ROWS)
@pytest.mark.filterwarnings("ignore:segment_reduce")
def test_rows(row: Row) -> None:
    check(row)
