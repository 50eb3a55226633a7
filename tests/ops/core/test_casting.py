"""Changes of element type, and copies: ``onnx_aot/ops/core/casting.py``."""

from __future__ import annotations

import torch

from onnx_aot.torch_compat import aten
from tests.ops.rows import Row, T, bools, check, floats, ints, parametrize

CPU = torch.device("cpu")
EMPTY = ({"n": 0},)


def _boundaries(size: int) -> torch.Tensor:
    """Numbers that INT32 cannot represent, and the largest that it can."""
    values = torch.tensor([2**31, -(2**31), 2**31 - 1, 2**40 + 7, -1, 0])
    return values.repeat(size)[:size]


SOURCES = (
    ("float", floats("n", 3)),
    ("int", ints("n", 3)),
    ("int32", ints("n", 3, dtype=torch.int32)),
    ("bool", bools("n", 3)),
)
DTYPES = (torch.float32, torch.int64, torch.int32, torch.bool)

CASTS = [
    *(
        Row(aten.to.dtype, (values, dtype), sizes=EMPTY, name=f"{name} {dtype}")
        for name, values in SOURCES
        for dtype in (*DTYPES, torch.float64)
    ),
    *(
        Row(aten._to_copy.default, (values,), {"dtype": dtype}, name=f"{name} {dtype}")
        for name, values in SOURCES
        for dtype in DTYPES
    ),
    Row(aten._to_copy.default, (floats("n"),), name="no dtype"),
    *(
        Row(aten.to.device, (values, CPU, dtype), name=f"{name} {dtype}")
        for name, values in SOURCES
        for dtype in (torch.float32, torch.bool)
    ),
    *(
        Row(
            aten.to.dtype_layout, (values,), {"dtype": dtype, "device": CPU}, name=f"{name} {dtype}"
        )
        for name, values in SOURCES
        for dtype in (torch.int64, torch.float32)
    ),
    *(
        Row(target, (values, other), name=f"{name} as {other_name}")
        for target in (aten.to.other, aten.type_as.default)
        for name, values in SOURCES
        for other_name, other in (("float rank0", floats()), ("int", ints("n")), ("bool", bools(2)))
    ),
    Row(aten.to.dtype, (floats(), torch.int64), name="rank0"),
    Row(aten.to.dtype, (T(("m",), torch.int64, _boundaries), torch.int32), name="wraps"),
    Row(aten.to.dtype, (T(("m",), torch.int64, _boundaries), torch.bool), name="large bool"),
    Row(aten.to.dtype, (floats("n", low=-0.9, high=0.9), torch.bool), name="fractions bool"),
    Row(aten.to.dtype, (floats("n", low=-0.9, high=0.9), torch.int64), name="fractions int"),
    Row(
        aten.to.dtype,
        (floats("n", 3),),
        call=lambda x: (x > 0).to(torch.int32).to(torch.float32),
        name="twice",
    ),
]

COPIES = [
    *(
        Row(target, (values,), sizes=sizes, name=name)
        for target in (
            aten.alias.default,
            aten.clone.default,
            aten.contiguous.default,
            aten.detach.default,
            aten.detach_copy.default,
            aten.lift_fresh_copy.default,
        )
        for name, values, sizes in (
            ("float", floats("n", 3), EMPTY),
            ("bool", bools("n"), ()),
            ("rank0", ints(), ()),
        )
    ),
    Row(aten.clone.default, (floats("n", 3),), {"memory_format": torch.contiguous_format}),
    Row(aten.contiguous.default, (floats("n", 3),), call=lambda x: x.t().contiguous(), name="view"),
    *(
        Row(aten.copy.default, args, sizes=EMPTY, name=name)
        for name, args in (
            ("same shape", (floats("n", 3), floats("n", 3))),
            ("same static shape", (floats(2, 3), floats(2, 3))),
            ("broadcast", (floats("n", 3), floats(3))),
            ("broadcast both", (floats("n", 3, "m"), floats(3, 1))),
            ("from rank0", (floats("n", 3), floats())),
            ("rank0", (floats(), floats())),
            ("static broadcast", (floats(2, 3), floats(1))),
            ("int to float", (floats("n", 3), ints("n", 1))),
            ("float to int", (ints("n", 3), floats("n", 3))),
            ("int to int32", (ints("n", dtype=torch.int32), ints("n"))),
            ("float to bool", (bools("n", 3), floats("n", 1, low=-0.9, high=0.9))),
            ("bool to float", (floats("n", 3), bools("n", 3))),
        )
    ),
    Row(
        aten.copy.default,
        (floats("n", 3), ints(3)),
        call=lambda x, y: aten.copy_.default(x.clone(), y) + x,
        name="in place",
    ),
]

ROWS = [*CASTS, *COPIES]


@parametrize(ROWS)
def test_row(row: Row) -> None:
    check(row)
