"""Derivatives from samples: ``onnx_aot/ops/core/gradient.py``."""

from __future__ import annotations

from onnx_aot.torch_compat import aten
from tests.ops.rows import Row, check, floats, given, ints, parametrize

POINTS = given(0.0, 1.0, 3.0, 3.5, 5.0, 7.0)

ROWS = [
    *(
        Row(aten.gradient.scalarint, (floats("h", "w"),), {"edge_order": order, **more}, name=name)
        for name, order, more in (
            ("all", 1, {}),
            ("all, second order", 2, {}),
            ("one", 1, {"dim": 0, "spacing": 0.5}),
            ("one, second order", 2, {"dim": -1, "spacing": 2}),
        )
    ),
    Row(aten.gradient.scalarint, (ints("h", "w"),), name="int"),
    Row(aten.gradient.scalararray, (floats("h", "w"),), {"spacing": 2.0, "dim": [1, 0]}),
    Row(aten.gradient.array, (floats("l", "h", "w"),), {"dim": [2, 1], "edge_order": 2}),
    Row(aten.gradient.scalarrayint, (floats("h", "w"),), {"spacing": [0.5, 3.0]}),
    Row(aten.gradient.scalarrayarray, (floats("h", "w"),), {"spacing": [0.5, 3.0], "dim": [1, 0]}),
    *(
        Row(
            aten.gradient.tensorarrayint,
            (floats(6, 6),),
            {"spacing": [POINTS, POINTS], "edge_order": order},
            name=f"order {order}",
        )
        for order in (1, 2)
    ),
    *(
        Row(
            aten.gradient.tensorarray,
            (floats(6, "m"),),
            {"spacing": [POINTS], "dim": [0], "edge_order": order},
            name=f"order {order}",
        )
        for order in (1, 2)
    ),
]


@parametrize(ROWS)
def test_row(row: Row) -> None:
    check(row)
