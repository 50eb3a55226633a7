"""Tensors made from sizes and numbers: ``onnx_aot/ops/core/creation.py``."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import torch

from onnx_aot.torch_compat import aten
from tests.ops.rows import Row, bools, check, floats, ints, parametrize

INT32 = torch.int32
EMPTY = ({"n": 0},)
DTYPES = (torch.float32, torch.int64, torch.int32, torch.bool)


def shaped(target: Any, *args: Any, **kwargs: Any) -> Callable[..., Any]:
    """Calls a target with the sizes of a tensor and more arguments."""
    return lambda x: target(x.shape, *args, **kwargs)


def without_values(call: Callable[..., torch.Tensor]) -> Callable[..., Any]:
    """Replaces the undefined values that ``call`` returns by zeros of the same shape and type."""
    return lambda *args: torch.zeros_like(call(*args))


FILLED = [
    *(
        Row(aten.full.default, ((2, 3), fill), kwargs, name=f"{fill} {kwargs}")
        for fill, kwargs in (
            (2, {}),
            (0.5, {}),
            (True, {}),
            (-math.inf, {}),
            (math.nan, {}),
            (2.5, {"dtype": torch.int64}),
            (7, {"dtype": torch.float32}),
            (3, {"dtype": torch.bool}),
            (-1.5, {"dtype": torch.int32}),
        )
    ),
    Row(aten.full.default, ((), 3.0), name="rank0"),
    Row(aten.full.default, ((0, 3), 3.0), name="empty"),
    Row(aten.full.default, ((40, 50), 3.0), name="large"),
    *(
        Row(
            aten.full.default,
            (floats("n", 3),),
            call=shaped(aten.full.default, fill, dtype=dtype),
            sizes=EMPTY,
            name=f"sizes {fill} {dtype}",
        )
        for fill in (2, 0.5, True)
        for dtype in (None, *DTYPES)
    ),
    Row(
        aten.full.default,
        (floats("n", "m"),),
        call=lambda x: aten.full.default([x.shape[0] * 2, 1, x.shape[1] + 1], x.shape[0]),
        name="size as number",
    ),
    Row(
        aten.full.default,
        (floats("n"),),
        call=lambda x: aten.full.default([2], x.shape[0] / 2, dtype=torch.float32),
        name="half a size as number",
    ),
    *(
        Row(target, (sizes,), {"dtype": dtype}, name=f"{sizes} {dtype}")
        for target in (aten.zeros.default, aten.ones.default)
        for dtype in (None, *DTYPES)
        for sizes in ((2, 3), (), (0, 2))
    ),
    *(
        Row(
            target,
            (floats("n", 3),),
            call=shaped(target, dtype=dtype),
            sizes=EMPTY,
            name=f"{dtype}",
        )
        for target in (aten.zeros.default, aten.ones.default)
        for dtype in (None, *DTYPES)
    ),
    Row(
        aten.empty.memory_format,
        (floats("n", 3),),
        call=without_values(shaped(aten.empty.memory_format, dtype=torch.int64)),
        sizes=EMPTY,
    ),
    Row(
        aten.empty_permuted.default,
        (floats("n", 3),),
        call=without_values(shaped(aten.empty_permuted.default, (1, 0))),
    ),
    Row(
        aten.empty_strided.default,
        (floats("n", 3),),
        call=without_values(shaped(aten.empty_strided.default, (3, 1))),
    ),
    Row(aten.scalar_tensor.default, (2.5,), name="float"),
    Row(aten.scalar_tensor.default, (2,), {"dtype": torch.int64}, name="int"),
    Row(aten.scalar_tensor.default, (2.5,), {"dtype": INT32}, name="int32"),
    Row(aten.scalar_tensor.default, (True,), {"dtype": torch.bool}, name="bool"),
    *(
        Row(
            aten.scalar_tensor.default,
            (floats("n"),),
            call=lambda x, d=dtype: aten.scalar_tensor.default(x.shape[0], dtype=d),
            sizes=EMPTY,
            name=f"size {dtype}",
        )
        for dtype in (torch.int64, torch.float32)
    ),
]

LIKE = [
    *(
        Row(target, (values, *more), {"dtype": dtype}, sizes=EMPTY, name=f"{name} {dtype}")
        for target, more in (
            (aten.full_like.default, (2.5,)),
            (aten.zeros_like.default, ()),
            (aten.ones_like.default, ()),
        )
        for name, values in (
            ("float", floats("n", 3, "m")),
            ("int", ints("n", 3)),
            ("bool", bools("n")),
            ("static", floats(2, 3)),
            ("rank0", ints()),
        )
        for dtype in (None, torch.float32, torch.int32, torch.bool)
    ),
    Row(
        aten.full_like.default,
        (floats("n", 3),),
        call=lambda x: aten.full_like.default(x, x.shape[0]),
        name="size",
    ),
    Row(
        aten.empty_like.default,
        (floats("n", 3),),
        call=without_values(aten.empty_like.default),
        sizes=EMPTY,
    ),
    *(
        Row(target, (values, (2, 3), *more), {"dtype": dtype}, name=f"{name} {dtype}")
        for target, more in (
            (aten.new_full.default, (2.5,)),
            (aten.new_zeros.default, ()),
            (aten.new_ones.default, ()),
        )
        for name, values in (("float", floats("n")), ("int32", ints("n", dtype=INT32)))
        for dtype in (None, torch.int64, torch.bool)
    ),
    *(
        Row(
            target,
            (floats("n", 3),),
            call=lambda x, t=target, m=more: t(x, [3, x.shape[0]], *m),
            sizes=EMPTY,
            name="sizes",
        )
        for target, more in (
            (aten.new_full.default, (2.5,)),
            (aten.new_zeros.default, ()),
            (aten.new_ones.default, ()),
        )
    ),
    Row(
        aten.new_empty.default,
        (ints("n", 3),),
        call=without_values(lambda x: aten.new_empty.default(x, [3, x.shape[0]])),
        sizes=EMPTY,
    ),
    Row(
        aten.new_empty_strided.default,
        (ints("n", 3),),
        call=without_values(lambda x: aten.new_empty_strided.default(x, [x.shape[0], 3], [3, 1])),
        sizes=EMPTY,
    ),
    *(
        Row(aten.fill.Scalar, (values, 2.5), sizes=EMPTY, name=name)
        for name, values in (
            ("float", floats("n", 3)),
            ("int", ints("n", 3)),
            ("bool", bools("n")),
            ("rank0", floats()),
        )
    ),
    *(
        Row(aten.fill.Tensor, args, sizes=EMPTY, name=name)
        for name, args in (
            ("float", (floats("n", 3), floats())),
            ("float with int", (floats("n", 3), ints())),
            ("int with float", (ints("n", 3), floats())),
            ("bool with int", (bools("n"), ints())),
            ("rank0", (floats(), floats())),
        )
    ),
    *(
        Row(aten.zero.default, (values,), sizes=EMPTY, name=name)
        for name, values in (
            ("float", floats("n", 3)),
            ("bool", bools("n")),
            ("int32 static", ints(2, dtype=INT32)),
            ("rank0", ints()),
        )
    ),
]

ARANGE = [
    *(
        Row(target, args, {"dtype": dtype}, name=f"{args} {dtype}")
        for target, args in (
            (aten.arange.default, (5,)),
            (aten.arange.default, (0,)),
            (aten.arange.default, (4.5,)),
            (aten.arange.start, (2, 7)),
            (aten.arange.start, (-2.5, 3)),
            (aten.arange.start, (3, 3)),
            (aten.arange.start_step, (1, 10, 3)),
            (aten.arange.start_step, (10, 1, -2)),
            (aten.arange.start_step, (0.5, 6.9, 1.5)),
            (aten.arange.start_step, (2.5, 2.5, 1)),
            (aten.arange.start_step, (0, 3000, 2)),
        )
        for dtype in (None, torch.float32, torch.float64, torch.int64, torch.int32)
    ),
    *(
        Row(aten.arange.start_step, args, {"dtype": dtype}, name=f"{args} {dtype}")
        for args in ((0, 1, 0.1), (1.0, -1.0, -0.25))
        for dtype in (None, torch.float64)
    ),
    *(
        Row(
            aten.arange.default,
            (floats("n", 3),),
            call=lambda x, d=dtype: torch.arange(x.shape[0], dtype=d),
            sizes=EMPTY,
            name=f"size {dtype}",
        )
        for dtype in (None, torch.float32, torch.int64, torch.int32)
    ),
    *(
        Row(
            aten.arange.start,
            (floats("n", "m"),),
            call=lambda x, d=dtype: torch.arange(x.shape[0], x.shape[0] + x.shape[1], dtype=d),
            sizes=({"m": 0},),
            name=f"sizes {dtype}",
        )
        for dtype in (None, torch.float32, torch.int32)
    ),
    *(
        Row(
            aten.arange.start_step,
            (floats("n"),),
            call=lambda x, c=call: c(x.shape[0]),
            sizes=EMPTY,
            name=name,
        )
        for name, call in (
            ("backwards", lambda n: torch.arange(n - 1, -1, -1)),
            ("backwards int32", lambda n: torch.arange(n - 1, -1, -1, dtype=INT32)),
            ("every second", lambda n: torch.arange(0, n, 2)),
            ("float step", lambda n: torch.arange(0, n, 0.5)),
            ("float start", lambda n: torch.arange(0.5, n + 0.5, 1)),
            ("float step to int32", lambda n: torch.arange(0, n, 1.5, dtype=INT32)),
            ("float step to int", lambda n: torch.arange(0, n, 1.5, dtype=torch.int64)),
            ("negative float step", lambda n: torch.arange(n, 0, -0.25)),
            ("half a size", lambda n: torch.arange(0, n / 2, 1, dtype=torch.float32)),
            ("size as step", lambda n: torch.arange(0, 12, n + 1)),
        )
    ),
]

LINSPACE = [
    *(
        Row(aten.linspace.default, args, {"dtype": dtype}, name=f"{args} {dtype}")
        for args in (
            (0, 1, 5),
            (0.1, 0.9, 6),
            (3.0, -2.0, 7),
            (1, 1, 3),
            (2.5, 7, 1),
            (0, 1, 0),
            (0.5, 7.9, 5),
            (-7.9, 10.9, 4),
            (0, 10, 3000),
        )
        for dtype in (None, torch.float64, torch.int64, torch.int32)
    ),
    *(
        Row(
            aten.linspace.default,
            (floats("n"),),
            call=lambda x, n=steps, d=dtype: torch.linspace(0.5, x.shape[0], n, dtype=d),
            name=f"size {steps} {dtype}",
        )
        for steps in (0, 1, 2, 7, 2000)
        for dtype in (None, torch.float64, torch.int64, torch.int32)
    ),
    Row(
        aten.linspace.default,
        (floats("n"),),
        call=lambda x: torch.linspace(x.shape[0], -x.shape[0] / 3, 6),
        name="sizes",
    ),
    *(
        Row(target, args, {"dtype": dtype}, name=f"{name} {dtype}")
        for dtype in (None, torch.int64)
        for name, target, args in (
            ("float", aten.linspace.Tensor_Tensor, (floats(), floats(), 5)),
            ("int", aten.linspace.Tensor_Tensor, (ints(), ints(low=5, high=9), 6)),
            ("float", aten.linspace.Tensor_Scalar, (floats(), 1.5, 5)),
            ("float", aten.linspace.Scalar_Tensor, (-1, floats(), 1)),
        )
    ),
]

EYE = [
    *(
        Row(target, args, {"dtype": dtype}, name=f"{args} {dtype}")
        for target, args in (
            (aten.eye.default, (3,)),
            (aten.eye.default, (0,)),
            (aten.eye.default, (40,)),
            (aten.eye.m, (2, 4)),
            (aten.eye.m, (4, 1)),
            (aten.eye.m, (50, 30)),
        )
        for dtype in (None, *DTYPES)
    ),
    *(
        Row(
            aten.eye.default,
            (floats("n"),),
            call=lambda x, d=dtype: torch.eye(x.shape[0], dtype=d),
            sizes=EMPTY,
            name=f"size {dtype}",
        )
        for dtype in (None, *DTYPES)
    ),
    Row(
        aten.eye.m,
        (floats("n", "m"),),
        call=lambda x: torch.eye(x.shape[0], x.shape[1] + 1),
        sizes=EMPTY,
        name="sizes",
    ),
]

TRIANGLES = [
    *(
        Row(target, (values, diagonal), sizes=sizes, name=f"{name} {diagonal}")
        for target in (aten.tril.default, aten.triu.default)
        for diagonal in (0, 1, -1, 2, -3, 20, -20)
        for name, values, sizes in (
            ("matrix", floats("n", "m"), ({"n": 0}, {"m": 0})),
            ("batch", floats(2, "n", 4), ()),
        )
    ),
    *(
        Row(target, (values, 1), name=name)
        for target in (aten.tril.default, aten.triu.default)
        for name, values in (
            ("int", ints("n", 4)),
            ("int32", ints("n", 4, dtype=INT32)),
            ("bool", bools("n", 4)),
            ("rank4", floats(2, "n", 3, 4)),
            ("size1", floats("n", 1, 1)),
            ("static", floats(3, 3)),
        )
    ),
    *(
        Row(
            target,
            (floats("n", "m"),),
            call=lambda x, t=target: t(x, x.shape[1] - x.shape[0]),
            name="size as diagonal",
        )
        for target in (aten.tril.default, aten.triu.default)
    ),
]

ROWS = [*FILLED, *LIKE, *ARANGE, *LINSPACE, *EYE, *TRIANGLES]


@parametrize(ROWS)
def test_row(row: Row) -> None:
    check(row)
