"""Norms of matrices: ``onnx_aot/ops/linalg/matrix_norms.py``."""

from __future__ import annotations

import math
from typing import Any

import torch

from onnx_aot.torch_compat import aten
from tests.ops.rows import Row, T, check, floats, parametrize

ORDERS = (1, -1, 2, -2, math.inf, -math.inf, "fro", "nuc")

NAN = T((3, 3), torch.float32, lambda *_: torch.eye(3).fill_diagonal_(torch.nan))


def _make_regular(*sizes: int) -> torch.Tensor:
    return torch.rand(sizes) + 3 * torch.eye(sizes[-1])


def _overload(operator: str, order: object) -> Any:
    packet = getattr(aten, operator)
    if isinstance(order, str):
        return packet.str_ord if operator == "linalg_matrix_norm" else packet.ord_str
    return packet.default


ROWS = [
    Row(
        _overload("linalg_matrix_norm", order),
        (floats(*sizes), order, dims),
        {"keepdim": keepdim},
        name=f"{order} {dims} {keepdim}",
    )
    for order in ORDERS
    for sizes, dims, keepdim in (
        (("n", "m"), (-2, -1), False),
        (("n", "m"), (-1, 0), True),
        (("n", 3, "m", 2), (2, 0), False),
        ((2, 3, 2, 2), (0, 3), True),
    )
] + [
    Row(_overload("linalg_norm", order), (floats("n", "m"), order), name=f"{order}")
    for order in ORDERS
]
ROWS += [
    Row(
        aten.linalg_cond.p_str if isinstance(order, str) else aten.linalg_cond.default,
        (make, *((order,) if order else ())),
        name=f"{order}, {name}",
    )
    for order in (None, *ORDERS)
    for name, make in (
        ("square", T(("n", "n"), torch.float32, _make_regular)),
        ("batch", T(("l", 3, 3), torch.float32, _make_regular)),
        ("singular", T((3, 3), torch.float32, lambda *_: torch.ones(3, 3).triu(1))),
    )
    if name != "singular" or order not in (None, 2, -2, "nuc")  # rounding decides
]
ROWS += [
    Row(aten.linalg_norm.default, args, keywords, name=name)
    for name, args, keywords in (
        ("all", (floats("n", 3, "m"),), {}),
        ("vector", (floats("n"), 1), {}),
        ("axis", (floats("n", "m"), 3, [1]), {"keepdim": True}),
        ("axes", (floats("n", "m", 2), 2, [2, 0]), {}),
        ("no order", (floats("n", "m"), None, [0, 1]), {}),
        ("scalar", (floats(),), {}),
        ("type", (floats("n", "m"), 1), {"dtype": torch.float64}),
    )
] + [
    Row(aten.linalg_matrix_norm.str_ord, (floats(0, 3),), name="empty"),
    Row(aten.linalg_matrix_norm.default, (NAN, 1), name="NaN"),
]


@parametrize(ROWS)
def test_norms(row: Row) -> None:
    check(row)
