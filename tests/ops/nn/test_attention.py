"""Scaled dot-product attention: ``onnx_aot/ops/nn/attention.py``."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import onnx
import pytest
import torch
import torch.nn.functional as F  # noqa: N812

import onnx_aot
from tests.ops.rows import Row, T, bools, check, floats, parametrize

target = torch.ops.aten.scaled_dot_product_attention.default

EMPTY = ({"n": 0},)


def qkv(*batch: int | str, rows: int | str = "m", keys: int | str = "k") -> tuple[T, T, T]:
    """Queries, keys and values of a batch; the values are wider."""
    return floats(*batch, rows, 4), floats(*batch, keys, 4), floats(*batch, keys, 5)


def first_row_masked(*sizes: int | str, none: float, some: float) -> T:
    """A mask whose first row admits no key."""

    def make(*concrete: int) -> torch.Tensor:
        mask = torch.where(torch.rand(concrete) > 0.5, some, none)
        mask[..., 0, :] = none
        return mask

    return T(sizes, torch.float32 if some == 0 else torch.bool, make)


def minus_infinities(*sizes: int | str) -> T:
    return first_row_masked(*sizes, none=-math.inf, some=0.0)


def booleans(*sizes: int | str) -> T:
    return first_row_masked(*sizes, none=0.0, some=1.0)


def gqa(queries: int | str, groups: int, *, values: int | None = None) -> tuple[T, T, T]:
    return (
        floats("n", queries, "m", 4),
        floats("n", groups, "k", 4),
        floats("n", values or groups, "k", 4),
    )


def heads_in_groups_of(groups: int) -> Any:
    """The number of query heads is ``groups`` times a dynamic size."""

    def call(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
        q = torch.cat([q] * groups, dim=1)
        return torch.nn.functional.scaled_dot_product_attention(q, k, v, enable_gqa=True)

    return call


ROWS = [
    Row(target, qkv("n", 3), name="rank 4", sizes=EMPTY),
    Row(target, qkv("n"), name="rank 3", sizes=EMPTY),
    Row(target, qkv(), name="rank 2"),
    Row(target, qkv("n", 2, 3), name="rank 5", sizes=EMPTY),
    Row(target, qkv(2, 3, rows=6, keys=5), name="static"),
    Row(target, qkv("n", "h"), name="dynamic heads", sizes=({"n": 0}, {"h": 0})),
    Row(target, qkv("n", 3), name="lengths", sizes=({"m": 1, "k": 1}, {"m": 0}, {"k": 0})),
    Row(target, (floats("n", 3, "m", "k"),) * 2 + (floats("n", 3, "m", 2),), name="dynamic width"),
    Row(target, qkv("n", 3), {"scale": 0.3}, name="scale"),
    Row(
        target,
        (floats("n", 2, "m", 4), floats(1, 2, "k", 4), floats(1, 2, "k", 4)),
        name="keys without batch",
    ),
    Row(target, qkv("n", 3), {"is_causal": True}, name="causal", sizes=({"m": 1},)),
    Row(target, qkv(2, 3, rows=6, keys=4), {"is_causal": True}, name="causal, more queries"),
    Row(target, qkv(2, 3, rows=4, keys=6), {"is_causal": True}, name="causal, more keys"),
    Row(target, qkv("n"), {"is_causal": True, "scale": 2.0}, name="causal, scale, rank 3"),
    *(
        Row(target, (*qkv("n", 3), make(*sizes)), name=f"{name} mask, {shape}")
        for name, make in (
            ("bool", bools),
            ("float", floats),
            ("masked bool", booleans),
            ("masked float", minus_infinities),
        )
        for shape, sizes in (
            ("full", ("n", 3, "m", "k")),
            ("heads share", ("n", 1, "m", "k")),
            ("all share", ("m", "k")),
            ("keys only", ("n", 1, 1, "k")),
        )
    ),
    Row(target, (*qkv("n"), booleans("n", "m", "k")), name="masked bool mask, rank 3"),
    Row(
        target,
        (*qkv("n", 3), bools("n", 1, "m", "k")),
        name="bool mask, lengths",
        sizes=({"n": 0}, {"m": 0}, {"k": 0}),
    ),
    Row(target, (*qkv("n", 2, 2), minus_infinities("m", "k")), name="masked float mask, rank 5"),
    Row(target, gqa(6, 2), {"enable_gqa": True}, name="grouped"),
    Row(target, gqa(6, 6), {"enable_gqa": True}, name="grouped, one each"),
    Row(target, gqa(6, 1), {"enable_gqa": True, "is_causal": True}, name="grouped, causal"),
    Row(target, gqa(6, 2, values=3), {"enable_gqa": True}, name="grouped, other values"),
    Row(
        target,
        (*gqa(6, 2), booleans("m", "k")),
        {"enable_gqa": True, "scale": 0.2},
        name="grouped, mask",
    ),
    Row(
        target,
        (floats(4, "m", 4), floats(2, "k", 4), floats(2, "k", 4)),
        {"enable_gqa": True},
        name="grouped, rank 3",
    ),
    Row(target, gqa("h", 2), call=heads_in_groups_of(2), name="grouped, dynamic queries"),
    Row(
        target,
        (floats(2, "h", "m", 4), floats(2, "h", "k", 4), floats(2, "h", "k", 4)),
        call=heads_in_groups_of(3),
        name="grouped, dynamic groups",
    ),
]


@parametrize(ROWS)
def test_row(row: Row) -> None:
    check(row)


@pytest.mark.parametrize("dtype", [torch.bool, torch.float32])
def test_symbolic_shape_inference_of_onnx_runtime(dtype: torch.dtype, tmp_path: Path) -> None:
    """Its quantizers and optimizers begin with it; it knows neither ReduceMax nor its results."""
    from onnxruntime.tools.symbolic_shape_infer import SymbolicShapeInference

    def attend(x: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
        return F.scaled_dot_product_attention(x, x, x, attn_mask=mask) + x

    given = torch.rand(2, 3, 5, 8), torch.ones(2, 1, 1, 5).to(dtype)
    sizes = ({0: "batch", 2: "length"}, {0: "batch", 3: "length"})
    program = onnx_aot.export(attend, given, dynamic_shapes=sizes)
    program.save(tmp_path / "model.onnx")
    inferred = SymbolicShapeInference.infer_shapes(
        onnx.load(tmp_path / "model.onnx"), auto_merge=True
    )
    known = {value.name for value in inferred.graph.value_info if value.type.tensor_type.shape.dim}
    known |= {value.name for value in inferred.graph.output}
    assert known >= {name for node in inferred.graph.node for name in node.output}
