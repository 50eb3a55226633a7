"""Writes by index: ``onnx_aot/ops/core/scatter.py``."""

from __future__ import annotations

import warnings
from typing import Any

import torch

from onnx_aot.torch_compat import aten
from tests.ops.core.test_indexing import alternating, below, none_true, positions
from tests.ops.rows import Row, T, bools, check, floats, ints, parametrize

INT32 = torch.int32
NONE_N = ({"n": 0},)
NONE_K = ({"k": 0},)


def write_to_no_rows(x: torch.Tensor) -> torch.Tensor:
    return aten.index_put.default(x[2:1], [None, torch.tensor([0])], torch.tensor(3.0))


def distinct(size: int, *sizes: int | str) -> T:
    """Different positions in an axis, some counted from its end."""

    def make(*concrete: int) -> torch.Tensor:
        count = torch.Size(concrete).numel()
        order = torch.randperm(size)[:count].view(concrete)
        return torch.where(torch.rand(concrete) < 0.5, order, order - size)

    return T(sizes, torch.int64, make)


def distinct_along(size: int, *sizes: int | str) -> T:
    """Different positions in every row of the last axis."""
    return T(
        sizes,
        torch.int64,
        lambda *s: torch.rand(*s[:-1], size).argsort(-1)[..., : s[-1]],
    )


def reduced(x: torch.Tensor, dim: int, index: torch.Tensor, source: Any, reduce: str) -> Any:
    """The old form of ``scatter_reduce``, for which torch gives a warning."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return torch.scatter(x, dim, index, source, reduce=reduce)


ELEMENTS = [
    *(
        Row(aten.scatter.src, args, sizes=sizes, name=name)
        for name, args, sizes in (
            ("last", (floats("n", 8), 1, distinct_along(8, "n", 3), floats("n", 3)), NONE_N),
            ("negative dim", (floats("n", 8), -1, distinct_along(8, "n", 3), floats("n", 3)), ()),
            ("larger source", (floats(4, 8), 1, distinct_along(8, 2, 3), floats(5, 6)), ()),
            (
                "larger source, dynamic",
                (floats("h", 8), 1, distinct_along(8, "n", "k"), floats("h", 8)),
                NONE_N + NONE_K,
            ),
            ("first", (floats(1, "h"), 0, positions(1, 1, "n"), floats(1, "h")), NONE_N),
            ("int", (ints("n", 8), 1, distinct_along(8, "n", 3), ints("n", 3)), ()),
            ("int32", (ints(8, dtype=INT32), 0, distinct_along(8, 3), ints(3, dtype=INT32)), ()),
            ("bool", (bools("n", 8), 1, distinct_along(8, "n", 3), bools("n", 3)), ()),
            ("no index", (floats("n", 8), 1, positions(8, "n", 0), floats("n", 3)), ()),
            ("no index of another rank", (floats("n", 8), 1, positions(8, 0), floats("n", 3)), ()),
            ("rank0", (floats(), 0, positions(1), floats()), ()),
            ("rank0, vectors", (floats(), -1, positions(1, 1), floats(1)), ()),
            ("index of rank0", (floats(4), 0, positions(4), floats(3)), ()),
            ("source of rank0", (ints(4), 0, positions(4, 1), ints()), ()),
        )
    ),
    *(
        Row(aten.scatter.value, args, sizes=sizes, name=name)
        for name, args, sizes in (
            ("last", (floats("n", 8), 1, positions(8, "n", 3), 1.5), NONE_N),
            ("smaller index", (floats("h", 8), -1, positions(8, "n", 2), -1), NONE_N),
            ("int, float value", (ints("n", 8), 1, positions(8, "n", 3), 2.7), ()),
            ("int32", (ints(8, dtype=INT32), 0, positions(8, 3), 7), ()),
            ("bool", (bools("n", 8), 1, positions(8, "n", 3), True), ()),
            ("no index", (floats("n", 8), 1, positions(8, "n", 0), 1.0), ()),
            ("rank0", (floats(), 0, positions(1), 2.5), ()),
            ("rank0, vector", (floats(), 0, positions(1, 1), 2.5), ()),
            ("index of rank0", (floats(4), 0, positions(4), 2.5), ()),
        )
    ),
    Row(
        aten.scatter.value,
        (floats("n", 8), positions(8, "n", 3)),
        call=lambda x, i: x.scatter(1, i, x.shape[0]),
        sizes=NONE_N,
        name="symbolic",
    ),
    *(
        Row(aten.scatter_add.default, args, sizes=sizes, name=name)
        for name, args, sizes in (
            ("last", (floats("n", 4), 1, positions(4, "n", 6), floats("n", 6)), NONE_N),
            (
                "first",
                (floats(3, "n"), 0, positions(3, "k", "n"), floats("k", "n")),
                NONE_N + NONE_K,
            ),
            ("smaller index", (floats("h", 4), -1, positions(4, "n", 2), floats("h", 9)), NONE_N),
            ("int", (ints("n", 4), 1, positions(4, "n", 6), ints("n", 6)), ()),
            ("int32", (ints(4, dtype=INT32), 0, positions(4, 6), ints(6, dtype=INT32)), ()),
            ("bool", (bools(4), 0, positions(4, 6), bools(6)), ()),
            ("rank0", (floats(), 0, positions(1), floats()), ()),
            ("index of rank0", (floats(4), 0, positions(4), floats()), ()),
        )
    ),
    *(
        Row(
            aten.scatter_reduce.two,
            (values, -1, positions(4, "n", 3), source, reduce),
            {"include_self": include_self},
            since=18 if reduce in {"amax", "amin"} else 17,
            sizes=NONE_N,
            name=f"{reduce} {name}{'' if include_self else ' without self'}",
        )
        for reduce in ("sum", "prod", "mean", "amax", "amin")
        for include_self in (True, False)
        for name, values, source in (
            ("float", floats("n", 4), floats("n", 6)),
            ("int", ints("n", 4), ints("n", 3)),
            ("int32", ints("n", 4, dtype=INT32), ints("n", 3, dtype=INT32)),
        )
    ),
    Row(aten.scatter_reduce.two, (floats(), 0, positions(1), floats(), "mean"), name="rank0"),
    *(
        Row(target, args, call=reduced, sizes=NONE_N, name=name)
        for target, source in (
            (aten.scatter.reduce, floats("n", 3)),
            (aten.scatter.value_reduce, 2.5),
        )
        for name, args in (
            ("add", (floats("n", 4), 1, positions(4, "n", 3), source, "add")),
            ("multiply", (floats("n", 4), -1, positions(4, "n", 3), source, "multiply")),
        )
    ),
    *(
        Row(aten.masked_scatter.default, args, sizes=sizes, name=name)
        for name, args, sizes in (
            ("same", (floats("n", 3), bools("n", 3), floats("n", 3)), NONE_N),
            ("longer source", (floats("n", 3), bools("n", 3), floats("n", 5)), ()),
            ("mask of fewer axes", (floats("n", 3), bools(3), floats("n", 3)), NONE_N),
            ("mask of one", (floats("n", 3), bools("n", 1), floats("n", 3)), NONE_N),
            ("mask of more axes", (floats(3), bools("n", 3), floats("n", 3)), NONE_N),
            ("none true", (ints("n", 3), none_true("n", 3), ints(0)), ()),
            ("bool", (bools("n", 3), bools("n", 3), bools("n", 3)), ()),
            ("rank0", (floats(), bools(), floats(1)), ()),
        )
    ),
    *(
        Row(aten.masked_scatter_backward.default, args, sizes=sizes, name=name)
        for name, args, sizes in (
            ("same", (floats(4, 3), bools(4, 3), [4, 3]), ()),
            ("longer source", (floats("n", 3), bools("n", 3), [30, 3]), NONE_N),
            ("mask of fewer axes", (floats("n", 3), bools(3), [30]), NONE_N),
        )
    ),
]

BOUNDS = (
    (None, None),
    (0, 3),
    (2, None),
    (1, 4),
    (2, 2),
    (4, 2),
    (-2, None),
    (-4, -1),
    (-3, -5),
    (-100, 3),
    (-100, -4),
    (0, -2),
    (3, 100),
    (100, 200),
    (-1, 0),
)


def written(start: int | None, end: int | None, step: int = 1) -> Any:
    """``x`` with a slice replaced by that of ``y``, along the first axis."""

    def call(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        return torch.slice_scatter(x, y[start:end:step], 0, start, end, step)

    return call


def written_last(start: int | None, end: int | None, step: int = 1) -> Any:
    """``x`` with a slice replaced by that of ``y``, along the last axis."""

    def call(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        part = y[..., start:end:step]
        return torch.slice_scatter(x, part, -1, start, end, step)

    return call


SLICES = [
    *(
        Row(
            aten.slice_scatter.default,
            (values, values),
            call=make(*bounds),
            sizes=sizes,
            name=f"{name} {bounds}",
        )
        for bounds in (*BOUNDS, (None, None, 2), (1, 5, 3), (-5, -1, 2), (-100, 100, 4), (4, 1, 2))
        for name, values, make, sizes in (
            ("static", floats(6, "n"), written, NONE_N),
            ("dynamic", floats("h", 3), written, ({"h": 6},)),
            ("last", ints(2, 6), written_last, ()),
            ("dynamic last", floats("n", "h"), written_last, ({"h": 6, "n": 0},)),
        )
    ),
    Row(aten.slice_scatter.default, (bools(6), bools(2), 0, 1, 3), name="bool"),
    Row(
        aten.slice_scatter.default,
        (ints(6, dtype=INT32), ints(2, dtype=INT32), 0, 1, 3),
        name="int32",
    ),
    Row(aten.slice_scatter.default, (floats(6), ints(2), 0, 1, 3), name="casts"),
    Row(aten.slice_scatter.default, (floats(6), ints(6)), name="casts all"),
    *(
        Row(
            aten.slice_scatter.default,
            (floats("h", 3), floats("n", 3)),
            call=call,
            sizes=NONE_N,
            name=f"symbolic {name}",
        )
        for name, call in (
            ("end", lambda x, y: torch.slice_scatter(x, y, 0, 0, y.shape[0])),
            ("both", lambda x, y: torch.slice_scatter(x, y, 0, 1, y.shape[0] + 1)),
            (
                "start",
                lambda x, y: torch.slice_scatter(x, x[y.shape[0] :] + 1, 0, y.shape[0]),
            ),
            (
                "start and end",
                lambda x, y: torch.slice_scatter(
                    x, x[y.shape[0] : y.shape[0] + 1] + 1, 0, y.shape[0], y.shape[0] + 1
                ),
            ),
            (
                "negative start",
                lambda x, y: torch.slice_scatter(
                    x, x[-1 - y.shape[0] : -1] + 1, 0, -1 - y.shape[0], -1
                ),
            ),
            (
                "step",
                lambda x, y: torch.slice_scatter(x, x[y.shape[0] :: 2] + 1, 0, y.shape[0], None, 2),
            ),
        )
    ),
    *(
        Row(aten.select_scatter.default, args, sizes=sizes, name=name)
        for name, args, sizes in (
            ("first", (floats(4, "n"), floats("n"), 0, 2), NONE_N),
            ("first negative", (floats(4, "n"), floats("n"), 0, -1), NONE_N),
            ("dynamic", (floats("n", 3), floats(3), 0, 0), ()),
            ("last", (floats("n", 4), floats("n"), 1, 2), NONE_N),
            ("last of all", (floats("n", 4), floats("n"), -1, 3), ()),
            ("last, first", (floats("n", 4), floats("n"), -1, 0), ()),
            ("last, negative", (floats("n", 4), floats("n"), 1, -2), ()),
            ("last, -1", (floats("n", 4), floats("n"), 1, -1), ()),
            ("middle dynamic", (floats(2, "n", 3), floats(2, 3), 1, 0), ()),
            ("middle dynamic negative", (floats(2, "h", 3), floats(2, 3), -2, -3), ()),
            ("middle dynamic -1", (floats(2, "n", 3), floats(2, 3), -2, -1), ()),
            ("bool", (bools("n", 4), bools("n"), 1, 2), ()),
            ("int32", (ints("n", 4, dtype=INT32), ints("n", dtype=INT32), 1, 2), ()),
            ("casts", (floats("n", 4), ints("n"), 1, 2), ()),
            ("of rank0", (floats(4), floats(), 0, -3), ()),
        )
    ),
    *(
        Row(
            aten.select_scatter.default,
            (values, source, floats("n")),
            call=call,
            sizes=NONE_N,
            name=f"symbolic {name}",
        )
        for name, values, source, call in (
            (
                "first",
                floats("h", 3),
                floats(3),
                lambda x, y, z: torch.select_scatter(x, y, 0, z.shape[0]),
            ),
            (
                "last",
                floats(3, "h"),
                floats(3),
                lambda x, y, z: torch.select_scatter(x, y, 1, z.shape[0]),
            ),
        )
    ),
    *(
        Row(target, args, sizes=sizes, name=name)
        for target, fill in (
            (aten.index_fill.int_Scalar, 2),
            (aten.index_fill.int_Tensor, floats()),
        )
        for name, args, sizes in (
            ("first", (floats(4, "n"), 0, below(4, "k"), fill), NONE_N + NONE_K),
            ("last", (floats("n", 4), -1, below(4, "k"), fill), NONE_N + NONE_K),
            ("dynamic", (floats("n", "m"), 0, below(1, "k"), fill), NONE_K),
            ("middle", (floats(2, "n", 3), 1, below(1, 2), fill), ()),
            ("rank0", (floats(), 0, below(1, 1), fill), ()),
            ("rank0, no index", (floats(), 0, below(1, 0), fill), ()),
            ("index of rank0", (floats("n", 4), 1, below(4), fill), ()),
        )
    ),
    Row(aten.index_fill.int_Scalar, (ints("n", 4), 1, below(4, "k"), 2.7), name="int"),
    Row(aten.index_fill.int_Scalar, (ints(4, dtype=INT32), 0, below(4, "k"), 2), name="int32"),
    Row(aten.index_fill.int_Scalar, (bools("n", 4), 1, below(4, "k"), True), name="bool"),
    Row(aten.index_fill.int_Tensor, (ints("n", 4), 1, below(4, "k"), ints()), name="int"),
]


def put(
    values: T,
    indices: list[T | None],
    source: T,
    *,
    sizes: tuple[dict[str, int], ...] = (),
    name: str,
) -> list[Row]:
    """Rows for overwriting and for accumulating."""
    return [
        Row(
            aten.index_put.default,
            (values, indices, source, accumulate),
            sizes=sizes,
            name=f"{name}{' add' if accumulate else ''}",
        )
        for accumulate in (False, True)
    ]


PUTS = [
    *put(floats(8, "n"), [distinct(8, "k")], floats("k", "n"), sizes=NONE_N + NONE_K, name="first"),
    *put(floats(8, "n"), [distinct(8, "k")], floats("n"), sizes=NONE_N + NONE_K, name="one row"),
    *put(floats(8, "n"), [distinct(8, "k")], floats(), sizes=NONE_K, name="one number"),
    *put(floats(8, "n"), [distinct(8, "k")], floats("k", 1), sizes=NONE_N, name="one column"),
    *put(floats(8, 3), [distinct(8, 2)], floats(2, 3), name="static"),
    *put(floats("n", 8), [None, distinct(8, "k")], floats("n", "k"), sizes=NONE_N, name="last"),
    *put(floats("n", 8), [None, distinct(8, "k")], floats("k"), sizes=NONE_N, name="last row"),
    *put(floats(2, 8, 3), [None, distinct(8, 4)], floats(2, 4, 3), name="middle static"),
    *put(floats("n", 8, 3), [None, distinct(8, "k")], floats("k", 1), name="middle"),
    *put(floats(8, 3), [distinct(8, 2, 3)], floats(2, 3, 3), name="rank2"),
    *put(floats(8, "n"), [distinct(8, 2, "k")], floats("k", "n"), sizes=NONE_N, name="rank2 rows")[
        :0
    ],
    *put(
        floats("n", 8),
        [None, distinct(8, 2, 3)],
        floats("n", 2, 3),
        sizes=NONE_N,
        name="rank2 last",
    ),
    *put(floats("n", 8, "m"), [None, distinct(8, 2, 3)], floats(3, 1), name="rank2 middle"),
    *put(floats(8, "n"), [distinct(8)], floats("n"), sizes=NONE_N, name="rank0"),
    *put(floats("n", 8), [None, distinct(8)], floats("n"), sizes=NONE_N, name="rank0 last"),
    *put(floats("n", 8), [None, distinct(8)], floats(1), name="rank0 last, one number"),
    *put(floats(8, "n"), [distinct(8, 0)], floats(0, "n"), name="no elements"),
    *put(floats(8), [distinct(8, "k")], floats("k"), sizes=NONE_K, name="vector"),
    *put(ints(8, "n"), [distinct(8, "k")], ints("k", "n"), name="int"),
    *put(ints(8, 3, dtype=INT32), [distinct(8, 2)], ints(2, 3, dtype=INT32), name="int32"),
    *put(bools(8, "n"), [distinct(8, "k")], bools("k", "n"), name="bool"),
    *put(bools("n", 8), [None, distinct(8, "k")], bools("n", "k"), name="bool last"),
    *put(
        floats(8, 3), [T(("k",), INT32, distinct(8, "k").make)], floats("k", 3), name="int32 index"
    ),
    *put(
        floats(8, 3, "n"),
        [distinct(8, "k"), below(3, "k")],
        floats("k", "n"),
        sizes=NONE_N + NONE_K,
        name="two",
    ),
    *put(floats(8, 3), [distinct(8, 4), below(3, 4)], floats(4), name="two static"),
    *put(floats(8, 3, 2), [distinct(8, 4), below(3, 4)], floats(2), name="two, one row"),
    *put(floats(8, 3), [distinct(8, 4), below(3, 4)], floats(), name="two, one number"),
    *put(
        floats(8, 3, "n"),
        [distinct(8, 4, 1), distinct(3, 2)],
        floats(4, 2, "n"),
        sizes=NONE_N,
        name="two broadcast",
    ),
    *put(
        floats(8, "n", 3),
        [distinct(8, "k", 1), None, distinct(3, 2)],
        floats("k", 2, "n"),
        sizes=NONE_N,
        name="apart",
    ),
    *put(
        floats("n", 8, 3, 2),
        [None, distinct(8, "k"), below(3, "k")],
        floats("n", "k", 2),
        sizes=NONE_N + NONE_K,
        name="adjacent",
    ),
    *put(
        floats("n", 8, 3, 2),
        [None, distinct(8, "k"), below(3, "k")],
        floats("k", 1),
        name="adjacent, fewer axes",
    ),
    *put(ints(8, 3, 2), [distinct(8, 4), None, below(2, 4)], ints(4, 3), name="apart int"),
    *put(bools(8, 3), [distinct(8, 4), below(3, 4)], bools(4), name="two bool"),
    *put(floats("n", 3), [bools("n")], floats(), sizes=NONE_N, name="mask, one number"),
    *put(floats("n", 3), [bools("n")], floats(1), sizes=NONE_N, name="mask, a vector of one"),
    *put(floats("n", 3), [bools("n")], floats(3), sizes=NONE_N, name="mask, one row"),
    *put(
        floats("n", 3), [bools("n")], floats(1, 3), sizes=NONE_N, name="mask, a matrix of one row"
    ),
    *put(floats(5, 3), [alternating(5)], floats(3, 3), name="mask, rows"),
    *put(floats(5, 3), [alternating(5)], floats(3, 1), name="mask, a column"),
    *put(floats(5, "n"), [alternating(5)], floats(3, "n"), sizes=NONE_N, name="mask, dynamic rows"),
    *put(floats("n", 5), [None, alternating(5)], floats(3), name="mask, last"),
    *put(floats("n", 5, 2), [None, alternating(5)], floats(2), name="mask, middle row"),
    *put(floats("n", 5, 2), [None, alternating(5)], floats("n", 3, 2), name="mask, middle"),
    *put(floats("n", "m"), [bools("n", "m")], floats(), sizes=NONE_N, name="mask of rank2, one"),
    *put(floats(2, 3), [alternating(2, 3)], floats(3), name="mask of rank2"),
    *put(floats(2, 3, 2), [alternating(2, 3)], floats(3, 2), name="mask of rank2, rows"),
    *put(floats(4, 2, 3), [None, alternating(2, 3)], floats(4, 3), name="mask of rank2, last"),
    *put(ints("n", 3), [bools("n")], ints(), name="mask int"),
    *put(ints("n", 3, dtype=INT32), [bools("n")], ints(dtype=INT32), name="mask int32"),
    *put(bools("n", 3), [bools("n")], bools(), name="mask bool"),
    *put(floats(5, 4, "n"), [alternating(5), below(4, 1)], floats("n"), name="mask, index"),
    *put(floats(5, 4), [alternating(5), below(4, 1)], floats(1), name="mask, index, one number"),
    Row(
        aten.index_put.default,
        (floats("n", 3), bools("n", 3), ints()),
        call=lambda x, m, v: x.index_put((m,), v),
        name="mask, a number of another type",
    ),
    Row(
        aten.index_put.default,
        (floats(4, 5),),
        call=write_to_no_rows,
        name="nothing",
    ),
    Row(
        aten.index_put.default,
        (floats("n", 3), bools("n")),
        call=lambda x, m: x.index_put((m,), x[m] * 2),
        sizes=NONE_N,
        name="mask, its own rows",
    ),
    Row(
        aten.index_put.default,
        (floats(3, "n"), below(3, "k"), floats("k", "n")),
        call=lambda x, i, y: x.index_put((i,), y, accumulate=True),
        sizes=NONE_N + NONE_K,
        name="duplicates",
    ),
    Row(
        aten.index_put.default,
        (floats(3, 2, "n"), below(3, "k"), below(2, "k"), floats("k", "n")),
        call=lambda x, i, j, y: x.index_put((i, j), y, accumulate=True),
        sizes=NONE_N + NONE_K,
        name="two with duplicates",
    ),
    Row(
        aten.index_put.default,
        (T((3,), torch.float32, torch.zeros), T(("n",), torch.int64, torch.zeros)),
        call=lambda x, i: x.index_put((i,), torch.ones_like(i, dtype=x.dtype), accumulate=True),
        sizes=({"n": 1_000_000},),
        name="many duplicates",
    ),
    Row(
        aten.index_put.default,
        (floats(3, "n"), ints("n", low=0, high=1)),
        call=lambda x, i: x.index_put((i, i), i.to(x.dtype), accumulate=True),
        sizes=NONE_N,
        name="two, of nothing",
    ),
]

DIAGONALS = [
    Row(aten.diagonal_scatter.default, args, sizes=sizes, name=name)
    for name, args, sizes in (
        ("square", (floats(4, 4), floats(4)), ()),
        ("wide", (floats(3, 5), floats(3)), ()),
        ("tall", (ints(5, 3), ints(3)), ()),
        ("above", (floats(4, 5), floats(3), 2), ()),
        ("below", (floats(4, 5), floats(3), -1), ()),
        ("above, none", (floats(4, 5), floats(0), 7), ()),
        ("below, none", (floats(4, 5), floats(0), -4), ()),
        ("bool", (bools(4, 4), bools(4)), ()),
        ("int32", (ints(4, 4, dtype=INT32), ints(4, dtype=INT32)), ()),
        ("batch", (floats("n", 4, 5), floats("n", 4), 1, 1, 2), NONE_N),
        ("negative dims", (floats("n", 4, 5), floats("n", 3), -1, -2, -1), NONE_N),
        ("dims exchanged", (floats("n", 4, 5), floats("n", 3), 1, -1, -2), NONE_N),
        ("dims apart", (floats(4, "n", 5), floats("n", 2), -2, 0, 2), NONE_N),
        ("dims backwards", (floats(4, "n", 2, 5), floats("n", 2, 3), 1, 3, 0), NONE_N),
        ("dynamic square", (floats("n", "n"), floats("n")), NONE_N),
        ("casts", (floats(4, 4), ints(4)), ()),
    )
] + [
    Row(
        aten.diagonal_scatter.default,
        (floats("n", "m"),),
        call=lambda x, o=offset: torch.diagonal_scatter(x, x.diagonal(o) + 1, o),
        name=f"dynamic {offset}",
        sizes=NONE_N,
    )
    for offset in (0, 2, -1)
]

REDUCED = [
    *(
        Row(
            aten.index_reduce.default,
            args,
            kwargs,
            since=18 if reduce.startswith("a") else 17,
            sizes=sizes,
            name=f"{name} {reduce}",
        )
        for reduce in ("prod", "mean", "amax", "amin")
        for name, args, kwargs, sizes in (
            ("first", (floats("n", 3), 0, positions(1, "k"), floats("k", 3), reduce), {}, NONE_K),
            (
                "without",
                (floats("n", 4), 1, positions(4, 6), floats("n", 6), reduce),
                {"include_self": False},
                NONE_N,
            ),
            ("rank0", (floats(), 0, positions(1, 1), floats(), reduce), {}, ()),
            ("int", (ints(4), 0, positions(4, 6), ints(6), reduce), {}, ()),
        )
    ),
    *(
        Row(aten.put.default, args, sizes=sizes, name=name)
        for name, args, sizes in (
            ("places", (floats("n", 4), distinct(4, 3), floats(3)), ()),
            ("added", (floats("n", 4), positions(4, "k", 2), floats("k", 2), True), NONE_K),
            ("negative", (ints(4), ints(1, low=-4, high=0), ints(1)), ()),
            ("nothing", (floats(3), positions(1, 0), floats(0)), ()),
            ("rank0", (floats(), positions(1), floats(), True), ()),
        )
    ),
    *(
        Row(aten._unsafe_masked_index_put_accumulate.default, args, name=name)
        for name, args in (
            ("one", (floats("n", 4), bools(6), [None, positions(9, 6)], floats("n", 6))),
            (
                "two",
                (floats(5, 4), bools(7, 3), [positions(9, 7, 1), positions(9, 3)], floats(7, 3)),
            ),
            ("nothing", (floats(0, 4), bools(7, 4), [positions(9, 7)], floats(7, 4))),
        )
    ),
    *(
        Row(
            aten.scatter_reduce.two,
            (bools(5), 0, positions(5, 9), bools(9), reduce),
            {"include_self": include},
            since=18 if reduce.startswith("a") else 17,
            name=f"bool {reduce} {include}",
        )
        for reduce in ("sum", "prod", "amax", "amin")
        for include in (True, False)
    ),
    *(
        Row(aten.scatter_add.default, (values, 0, positions(5, 9), more), name=f"{values.dtype}")
        for values, more in (
            (floats(5, dtype=torch.float16), floats(9, dtype=torch.float16)),
            (floats(5, dtype=torch.bfloat16), floats(9, dtype=torch.bfloat16)),
        )
    ),
]

ROWS = [*REDUCED, *ELEMENTS, *SLICES, *PUTS, *DIAGONALS]


@parametrize(ROWS)
def test_row(row: Row) -> None:
    check(row)
