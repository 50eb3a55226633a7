"""Search in sorted numbers, and counting: ``onnx_aot/ops/core/bucketize.py``."""

from __future__ import annotations

import math

import torch

from onnx_aot.torch_compat import aten
from tests.ops.rows import Row, T, check, floats, given, ints, parametrize

INT32 = torch.int32
NONE_N = ({"n": 0},)
NONE_K = ({"k": 0},)


def in_order(*sizes: int | str, dtype: torch.dtype = torch.float32) -> T:
    """Numbers that increase along the last axis, some of them equal."""
    return T(sizes, dtype, lambda *s: torch.randint(-4, 5, s).sort(-1)[0])


def whole(*sizes: int | str) -> T:
    """Floats that can equal the numbers of ``in_order``."""
    return T(sizes, torch.float32, lambda *s: torch.randint(-5, 6, s))


PLACES = [
    *(
        Row(aten.searchsorted.Tensor, args, kwargs, sizes=sizes, name=name)
        for name, args, kwargs, sizes in (
            ("vector", (in_order(6), whole("n", 3)), {}, NONE_N),
            ("right", (in_order(6), whole("n", 3)), {"right": True}, NONE_N),
            ("side", (in_order(6), whole("n", 3)), {"side": "right"}, ()),
            ("left", (in_order(6), whole("n", 3)), {"side": "left"}, ()),
            ("int32", (in_order(6), whole("n", 3)), {"out_int32": True}, ()),
            ("types", (in_order(6, dtype=torch.int64), floats("n", 3)), {}, NONE_N),
            ("dynamic", (in_order("k"), whole("n", 3)), {}, NONE_N + NONE_K),
            ("dynamic right", (in_order("k"), whole("n", 3)), {"right": True}, NONE_K),
            ("many", (in_order(300), whole("n", 3)), {}, NONE_N),
            ("many, rank0", (in_order(300), whole()), {}, ()),
            ("rows", (in_order("n", 6), whole("n", 4)), {}, NONE_N),
            ("dynamic rows", (in_order("n", "k"), whole("n", 4)), {"right": True}, NONE_K),
            ("many in rows", (in_order(2, "n", 100), whole(2, "n", 4)), {}, NONE_N),
            ("none", (in_order(0), whole("n")), {}, ()),
            ("rank0", (in_order(6), whole()), {}, ()),
            ("int", (in_order(6, dtype=torch.int64), ints("n")), {}, ()),
            ("nan", (in_order(6), given(math.nan, 0.0, math.inf, -math.inf)), {}, ()),
            ("nan in many", (in_order(100), given(math.nan, 0.0, math.inf)), {}, ()),
        )
    ),
    Row(
        aten.searchsorted.Tensor,
        (floats("n", 6), floats("n", 4)),
        call=lambda x, y: torch.searchsorted(x, y, sorter=x.argsort(-1)),
        name="sorter",
    ),
    Row(aten.searchsorted.Scalar, (in_order("k"), 1.0), name="float"),
    Row(aten.searchsorted.Scalar, (in_order(6, dtype=torch.int64), 1.5), name="other type"),
    Row(
        aten.searchsorted.Scalar,
        (in_order(6), 1),
        {"side": "right", "out_int32": True},
        name="right",
    ),
    *(
        Row(aten.bucketize.Tensor, args, kwargs, sizes=sizes, name=name)
        for name, args, kwargs, sizes in (
            ("matrix", (whole("n", 3), in_order(6)), {}, NONE_N),
            ("right", (whole("n", 3), in_order("k")), {"right": True}, NONE_K),
            ("int32", (whole(), in_order(6)), {"out_int32": True}, ()),
            ("other type", (ints("n"), in_order(6)), {}, ()),
        )
    ),
    Row(aten.bucketize.Scalar, (1.0, in_order("k"))),
]

COUNTS = [
    *(
        Row(aten.bincount.default, args, kwargs, sizes=sizes, name=name)
        for name, args, kwargs, sizes in (
            ("numbers", (ints("n", low=0, high=5),), {}, NONE_N),
            ("minlength", (ints("n", low=0, high=5),), {"minlength": 9}, NONE_N),
            ("weights", (ints("n", low=0, high=5), floats("n")), {}, ()),
            ("int weights", (ints("n", low=0, high=5), ints("n")), {"minlength": 2}, ()),
            ("int32", (ints("n", low=0, high=5, dtype=INT32),), {}, ()),
        )
    ),
    *(
        Row(aten.histc.default, args, kwargs, sizes=sizes, name=name)
        for name, args, kwargs, sizes in (
            ("bounds", (floats("n", 3),), {"bins": 4, "min": -2, "max": 2}, NONE_N),
            ("extremes", (floats("n", 3),), {"bins": 7}, ()),
            ("whole", (whole("n", 3),), {"bins": 10, "min": -5, "max": 5}, ()),
            ("equal", (given(2.0, 2.0, 2.0),), {"bins": 4}, ()),
            ("equal bounds", (floats("n"),), {"bins": 4, "min": 1, "max": 1}, ()),
            ("nan", (given(2.0, math.nan, -1.0),), {"bins": 4, "min": -2, "max": 2}, ()),
            ("nothing", (floats(0),), {"bins": 4}, ()),
            ("rank0", (floats(),), {"bins": 3, "min": -3, "max": 3}, ()),
        )
    ),
    # captured with static sizes only
    *(
        Row(aten.histogram.bin_ct, args, kwargs, sizes=sizes, name=name)
        for name, args, kwargs, sizes in (
            ("extremes", (floats(5, 3), 5), {}, ()),
            ("range", (whole(5, 3), 10), {"range": (-5.0, 5.0)}, ()),
            ("empty range", (whole(5), 4), {"range": (1.0, 1.0)}, ()),
            ("weight", (floats(5, 3), 5), {"weight": floats(5, 3)}, ()),
            ("density", (floats(5, 3), 4), {"density": True}, ()),
            ("equal", (given(2.0, 2.0), 4), {}, ()),
            ("nothing", (floats(0), 4), {}, ()),
        )
    ),
    *(
        Row(aten.histogram.bins_tensor, args, kwargs, sizes=sizes, name=name)
        for name, args, kwargs, sizes in (
            ("edges", (whole(5, 3), given(-4.0, -1.0, 0.0, 2.0, 5.0)), {}, ()),
            ("weight", (floats(5), given(-3.0, 0.0, 1.0)), {"weight": floats(5)}, ()),
            ("density", (floats(9), given(-3.0, 0.0, 1.0)), {"density": True}, ()),
        )
    ),
    Row(
        aten.histogramdd.default,
        (floats(5, 2), [3, 4]),
        call=aten.histogramdd.default,
        name="extremes",
    ),
    Row(
        aten.histogramdd.default,
        (floats(5, 3, 2), [3, 4]),
        {"range": [-3.0, 3.0, -2.0, 2.0], "weight": floats(5, 3), "density": True},
        name="weight",
    ),
    Row(aten.histogramdd.int_bins, (floats(5, 2), 4)),
    Row(
        aten.histogramdd.TensorList_bins,
        (floats(5, 2), [given(-3.0, 0.0, 2.0), given(-1.0, 0.0, 1.0, 3.0)]),
    ),
]

ROWS = [*PLACES, *COUNTS]


@parametrize(ROWS)
def test_row(row: Row) -> None:
    check(row)
