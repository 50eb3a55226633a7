"""Sorting: ``onnx_aot/ops/core/sorting.py``."""

from __future__ import annotations

from typing import Any

import torch

from onnx_aot.torch_compat import aten
from tests.ops.rows import Row, T, bools, check, floats, ints, parametrize

INT32 = torch.int32
NONE_N = ({"n": 0},)


def different(*sizes: int | str, dtype: torch.dtype = torch.int64) -> T:
    """Distinct integers, since torch does not define the order of equal ones."""
    return T(sizes, dtype, lambda *s: torch.randperm(torch.Size(s).numel()).view(s) - 5)


def one_nan(*_: int) -> torch.Tensor:
    return torch.tensor([3.0, 1.0, torch.nan, 2.0, 5.0])


def all_nan(*sizes: int) -> torch.Tensor:
    return torch.full(sizes, torch.nan)


def top_values(*args: Any, **kwargs: Any) -> torch.Tensor:
    """Values without positions, because eager does not define the order of equal elements."""
    values: torch.Tensor = aten.topk.default(*args, **kwargs)[0]
    return values


TOPK = [
    *(
        Row(aten.topk.default, args, kwargs, sizes=sizes, name=name)
        for name, args, kwargs, sizes in (
            ("last", (floats("n", 6), 3), {}, NONE_N),
            ("negative dim", (floats(6, "n"), 3, -2), {}, NONE_N),
            ("smallest", (floats("n", 6), 3, -1, False), {}, NONE_N),
            ("unsorted", (floats("n", 6), 1, 1, True, False), {}, ()),
            ("all", (floats("n", 6), 6), {}, NONE_N),
            ("none", (floats("n", 6), 0), {}, NONE_N),
            ("dynamic", (floats("n", 3), 1, 0), {}, ()),
            ("int", (different("n", 6), 3), {}, NONE_N),
            ("int smallest", (different("n", 6), 3), {"largest": False}, ()),
            ("int32", (different(6, "n", dtype=INT32), 2, 0), {}, ()),
            ("rank0", (floats(), 1), {}, ()),
            ("rank0 dim", (ints(), 1, 0), {}, ()),
            ("rank0 none", (ints(), 0), {}, ()),
        )
    ),
    *(
        Row(
            aten.topk.default,
            (floats("h", 3), floats("n")),
            call=call,
            sizes=NONE_N,
            name=f"symbolic {name}",
        )
        for name, call in (
            ("k", lambda x, y: x.topk(y.shape[0], 0)),
            ("own size", lambda x, y: x.topk(x.shape[0], 0, largest=False)),
            ("half", lambda x, y: x.topk(x.shape[0] // 2, 0)),
        )
    ),
]

SORTS = [
    *(
        Row(aten.sort.default, args, sizes=sizes, name=name)
        for name, args, sizes in (
            ("last", (floats("n", 6),), NONE_N),
            ("descending", (floats("n", 6), -1, True), NONE_N),
            ("dynamic", (floats("n", 3), 0), NONE_N),
            ("negative dim", (floats("m", "n", 2), -2, True), NONE_N),
            ("one", (floats("n", 1),), ()),
            ("empty", (floats("n", 0), 1), NONE_N),
            ("equal ones", (ints("n", 6, low=0, high=2),), ()),
            ("equal ones descending", (ints("n", 6, low=0, high=2), 1, True), ()),
            ("int32", (ints("n", 6, dtype=INT32),), ()),
            ("bool", (bools("n", 6),), NONE_N),
            ("bool descending", (bools("n", 6), -1, True), ()),
            ("rank0", (floats(),), ()),
            ("rank0 bool", (bools(), 0, True), ()),
        )
    ),
    *(
        Row(target, args, kwargs, sizes=sizes, name=name)
        for target in (aten.sort.stable, aten.argsort.stable)
        for name, args, kwargs, sizes in (
            ("last", (ints("n", 9, low=0, high=3),), {"stable": True}, NONE_N),
            (
                "descending",
                (ints("n", 9, low=0, high=3),),
                {"stable": True, "dim": 0, "descending": True},
                NONE_N,
            ),
            ("not asked for", (floats("n", 4),), {"stable": False}, ()),
            ("rank0", (floats(),), {"stable": True}, ()),
        )
    ),
    *(
        Row(aten.argsort.default, args, sizes=sizes, name=name)
        for name, args, sizes in (
            ("last", (floats("n", 6),), NONE_N),
            ("descending", (floats("n", 6), 0, True), NONE_N),
            ("bool", (bools("n", 6),), ()),
            ("rank0", (floats(),), ()),
        )
    ),
]


def mixed(*sizes: int | str) -> T:
    """Numbers, infinities and NaN."""
    values = torch.tensor([torch.nan, torch.inf, -torch.inf, 1.0, 2.0, 3.0, -1.0])
    return T(sizes, torch.float32, lambda *s: values[torch.randint(0, 7, s)])


def few(*sizes: int | str, dtype: torch.dtype = torch.int64) -> T:
    """Numbers of only three kinds, so that some are equal."""
    return T(sizes, dtype, lambda *s: torch.randint(0, 3, s))


NANS = [
    *(
        Row(target, (mixed("n", 9),), kwargs, name=name)
        for target in (aten.sort.stable, aten.argsort.stable)
        for name, kwargs in (
            ("nan", {"stable": True}),
            ("nan descending", {"stable": True, "descending": True}),
        )
    ),
    *(
        Row(
            aten.topk.default,
            (mixed("n", 9), 5),
            {"largest": largest},
            call=top_values,
            name=f"nan {name}",
        )
        for name, largest in (("largest", True), ("smallest", False))
    ),
]


MIDDLE = [
    *(
        Row(aten.kthvalue.default, args, kwargs, sizes=sizes, name=name)
        for name, args, kwargs, sizes in (
            ("last", (floats("n", 6), 3), {}, NONE_N),
            ("keepdim", (floats(6, "n"), 2, 0), {"keepdim": True}, NONE_N),
            ("int", (different("n", 6), 1, -1), {}, ()),
            ("dynamic", (floats("n", 3), 1, 0), {}, ()),
            ("rank0", (floats(), 1), {}, ()),
        )
    ),
    *(
        Row(target, args, sizes=sizes, name=name)
        for target in (aten.median.default, aten.nanmedian.default)
        for name, args, sizes in (
            ("numbers", (floats("n", 3),), ()),
            ("nan", (mixed("n", 5),), ()),
            ("int", (ints("n", 3),), ()),
            ("rank0", (floats(),), ()),
            ("nothing", (floats(0, 3),), ()),
        )
    ),
    *(
        Row(target, args, kwargs, sizes=sizes, name=name)
        for target in (aten.median.dim, aten.nanmedian.dim)
        for name, args, kwargs, sizes in (
            ("last", (floats("n", 6), 1), {}, NONE_N),
            ("odd", (floats("n", 5), -1), {"keepdim": True}, NONE_N),
            ("dynamic", (floats("n", 3), 0), {}, ()),
            ("int", (different("n", 6), 1), {}, NONE_N),
            ("dynamic int", (different("n", 3), 0), {"keepdim": True}, ()),
            ("one nan", (T((5,), torch.float32, one_nan), 0), {}, ()),
            ("all nan", (T((2, 3), torch.float32, all_nan), 1), {}, ()),
            ("rank0", (floats(), 0), {}, ()),
        )
    ),
    *(
        Row(aten.mode.default, args, kwargs, sizes=sizes, name=name)
        for name, args, kwargs, sizes in (
            ("last", (few("n", 9),), {}, NONE_N),
            ("floats", (few("n", 9, dtype=torch.float32), 1), {"keepdim": True}, NONE_N),
            ("dynamic", (few("n", 3), 0), {}, ()),
            ("negative dim", (few(3, 9, "n"), -2), {}, NONE_N),
            ("bool", (bools("n", 9),), {}, ()),
            ("different", (different("n", 6),), {}, ()),
            ("rank0", (floats(), 0), {}, ()),
        )
    ),
]

ROWS = [*TOPK, *SORTS, *NANS, *MIDDLE]


@parametrize(ROWS)
def test_row(row: Row) -> None:
    check(row)
