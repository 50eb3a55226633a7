"""Pooling: ``onnx_aot/ops/nn/pooling.py``."""

from __future__ import annotations

import math

import torch

import onnx_aot
from onnx_aot.torch_compat import aten
from tests.ops.rows import Row, T, check, floats, ints, parametrize

EMPTY = ({"n": 0},)

# Sizes at which the last window of ceil mode is complete, cut off, or dropped.
MANY = tuple({"h": h, "w": w} for h, w in ((6, 7), (7, 6), (9, 10), (10, 9), (11, 8), (13, 13)))

MAX_POOL = {1: aten.max_pool1d.default, 2: aten.max_pool2d.default, 3: aten.max_pool3d.default}
MAX_POOL_WITH_INDICES = {
    1: aten.max_pool1d_with_indices.default,
    2: aten.max_pool2d_with_indices.default,
    3: aten.max_pool3d_with_indices.default,
}
AVG_POOL = {1: aten.avg_pool1d.default, 2: aten.avg_pool2d.default, 3: aten.avg_pool3d.default}
ADAPTIVE_AVG_POOL = {
    1: aten.adaptive_avg_pool1d.default,
    2: aten.adaptive_avg_pool2d.default,
    3: aten.adaptive_avg_pool3d.default,
}


def image(spatial: int) -> T:
    """A batch of images; the first two spatial sizes are dynamic."""
    return floats("n", 2, *("h", "w", 6)[:spatial])


def unbatched(spatial: int) -> T:
    return floats(2, *("h", "w", 6)[:spatial])


LARGEST = [
    Row(
        targets[spatial],
        (make(spatial), *args),
        kwargs,
        name=name,
        sizes=sizes,
    )
    for spatial in (1, 2, 3)
    for targets in (MAX_POOL, MAX_POOL_WITH_INDICES)
    for name, make, args, kwargs, sizes in (
        ("plain", image, ([2],), {}, EMPTY),
        ("per axis", image, ([3, 2, 4][:spatial], [1, 2, 3][:spatial]), {}, ()),
        ("padding", image, ([3], [2], [1]), {}, ()),
        ("dilation", image, ([2], [1], [0], [2, 3, 1][:spatial]), {}, ()),
        ("dilation, padding", image, ([3], [2], [1], [2]), {}, ()),
        ("ceil", image, ([2], [2], [0], [1], True), {}, MANY),
        ("ceil, padding", image, ([3], [2], [1]), {"ceil_mode": True}, MANY),
        ("ceil, window in padding", image, ([2], [3], [1]), {"ceil_mode": True}, MANY),
        ("ceil, dilation", image, ([2], [3], [1], [2]), {"ceil_mode": True}, MANY),
        ("unbatched", unbatched, ([3], [2], [1]), {"ceil_mode": True}, MANY),
    )
] + [
    Row(aten.max_pool2d.default, (ints("n", 2, "h", 5), [2]), name="int"),
    Row(aten.max_pool2d.default, (ints(2, 2, 4, 5, dtype=torch.int32), [2]), name="int32"),
    Row(aten.max_pool2d_with_indices.default, (ints("n", 1, "h", 5), [2]), name="int"),
    Row(
        aten.max_pool2d_with_indices.default,
        (ints("n", 1, "h", 5, low=0, high=2), [3]),
        {"stride": [1]},
        name="ties",
    ),
]

AVERAGE = [
    Row(AVG_POOL[spatial], (make(spatial), *args), kwargs, name=name, sizes=sizes)
    for spatial in (1, 2, 3)
    for name, make, args, kwargs, sizes in (
        ("plain", image, ([2],), {}, EMPTY),
        ("per axis", image, ([3, 2, 4][:spatial], [1, 2, 3][:spatial]), {}, ()),
        ("padding", image, ([3], [2], [1]), {}, ()),
        ("padding not counted", image, ([3], [2], [1]), {"count_include_pad": False}, ()),
        ("ceil", image, ([2], [2], [0], True), {}, MANY),
        ("ceil, padding", image, ([3], [2], [1], True), {}, MANY),
        ("ceil, padding not counted", image, ([3], [2], [1], True, False), {}, MANY),
        ("ceil, window in padding", image, ([2], [3], [1], True), {}, MANY),
        ("unbatched", unbatched, ([3], [2], [1], True), {}, MANY),
    )
] + [
    Row(
        AVG_POOL[spatial],
        (make(spatial), *args),
        {"divisor_override": divisor, **kwargs},
        name=f"divisor, {name}",
        sizes=sizes,
    )
    for spatial in (2, 3)
    for name, make, args, divisor, kwargs, sizes in (
        ("plain", image, ([2],), 3, {}, ()),
        ("padding", image, ([3, 2, 4][:spatial], [2], [1]), 7, {}, ()),
        ("padding not counted", image, ([3], [2], [1]), 2, {"count_include_pad": False}, ()),
        ("ceil", image, ([2], [2], [0], True), 3, {}, MANY),
        ("ceil, padding", image, ([3], [2], [1], True), 5, {}, MANY),
        ("ceil, window in padding", image, ([2], [3], [1], True), 1, {}, MANY),
        ("ceil, unbatched", unbatched, ([3], [2], [1], True), 5, {}, MANY),
    )
]

ADAPTIVE_MAX_POOL = {
    1: aten.adaptive_max_pool1d.default,
    2: aten.adaptive_max_pool2d.default,
    3: aten.adaptive_max_pool3d.default,
}

ADAPTIVE = [
    Row(
        targets[spatial],
        (make, wanted[:spatial]),
        name=f"{name} of {make.sizes}",
    )
    for spatial in (1, 2, 3)
    for targets in (ADAPTIVE_AVG_POOL, ADAPTIVE_MAX_POOL)
    for name, wanted in (
        ("1", [1, 1, 1]),
        ("uneven", [3, 5, 4]),
        ("larger", [17, 20, 7]),
        ("mixed", [1, 3, 6]),
    )
    for make in (
        floats("n", 2, *("h", "w", 6)[:spatial]),
        floats(2, 3, *(9, 8, 6)[:spatial]),
        floats(2, *("h", "w", 6)[:spatial]),
        floats(2, *(9, 8, 6)[:spatial]),
    )
] + [
    Row(aten.adaptive_avg_pool2d.default, (floats("n", 2, 6, 8), [3, 2]), name="even", sizes=EMPTY),
    Row(aten.adaptive_avg_pool2d.default, (floats(2, 6, 8), [3, 8]), name="even, unbatched"),
    Row(aten.adaptive_avg_pool2d.default, (floats("n", 2, 6, 8), [6, 8]), name="same"),
    Row(aten.adaptive_avg_pool1d.default, (floats("n", 2, 7, dtype=torch.float64), [3]), name="64"),
    Row(
        aten.adaptive_avg_pool2d.default,
        (floats("n", 2, "h", "w"),),
        call=lambda x: torch.nn.functional.adaptive_avg_pool2d(x, (None, 3)),
        name="one axis kept",
    ),
    Row(aten.adaptive_max_pool2d.default, (floats("n", 2, 6, 8), [3, 2]), name="even", sizes=EMPTY),
    Row(aten.adaptive_max_pool2d.default, (floats(2, 6, 8), [3, 8]), name="even, unbatched"),
    Row(
        aten.adaptive_max_pool2d.default,
        (T(("n", 2, "h", 7), torch.float32, lambda *s: torch.randint(0, 2, s)), [3, 4]),
        name="ties",
    ),
    Row(
        aten.adaptive_avg_pool2d.default,
        (floats(2, 2, "h", "w"), floats("m", "k")),
        call=lambda x, y: torch.nn.functional.adaptive_avg_pool2d(x, y.shape),
        name="dynamic",
    ),
]

DOUBLE = {"dtype": torch.float64}
HALF = {"dtype": torch.bfloat16}

# Types without pooling in ONNX or ONNX Runtime.
BY_WINDOWS = [
    Row(
        AVG_POOL[spatial],
        (make, [3, 2, 2][:spatial], [2, 3, 1][:spatial], [1, 1, 0][:spatial]),
        {"ceil_mode": ceil_mode, "count_include_pad": count, "divisor_override": divisor},
        name=f"{make.dtype}, {ceil_mode}, {count}, {divisor}",
        sizes=(*MANY, *EMPTY),
    )
    for spatial in (2, 3)
    for ceil_mode, count, divisor in (
        (False, True, None),
        (True, True, None),
        (True, False, None),
        (True, False, 5),
    )
    for make in (
        floats("n", 2, *("h", "w", 5)[:spatial], **DOUBLE),
        ints(2, *("h", "w", 5)[:spatial], low=-90, high=90),
    )
] + [
    Row(AVG_POOL[1], (ints("n", 2, "h"), [3]), {"padding": [1]}, name="int64"),
    Row(
        AVG_POOL[2],
        (floats("n", 2, "h", 30, **DOUBLE), [6, 29], [1, 3], [3, 5], True, False),
        name="wide, float64",
        sizes=MANY,
    ),
    Row(AVG_POOL[1], (floats(2, "h", **DOUBLE), [3]), {"padding": [1]}, name="float64"),
    Row(
        MAX_POOL[2],
        (
            ints("n", 2, "h", "w", low=2**62, high=2**62 + 9),
            [3, 2],
            [2, 2],
            [1, 1],
            [2, 1],
            True,
        ),
        name="large int64",
        sizes=MANY,
    ),
    Row(
        MAX_POOL_WITH_INDICES[2],
        (ints(2, "h", "w", low=2**62, high=2**62 + 9), [3, 2], [2, 2], [1, 1], [2, 1], True),
        name="large int64",
        sizes=MANY,
    ),
    Row(ADAPTIVE_AVG_POOL[2], (floats("n", 2, "h", "w", **HALF), [3, 5]), name="bfloat16"),
    Row(ADAPTIVE_AVG_POOL[2], (floats("n", 2, 6, 8, **DOUBLE), [3, 2]), name="even, float64"),
    Row(ADAPTIVE_AVG_POOL[2], (floats("n", 2, 6, 8, **DOUBLE), [1, 1]), name="1, float64"),
    Row(ADAPTIVE_AVG_POOL[3], (floats(0, 2, 6, 8, 5), [3, 5, 4]), name="empty"),
    Row(ADAPTIVE_AVG_POOL[3], (floats("n", 2, "h", 8, 5), [3, 5, 4]), name="e", sizes=EMPTY),
]

ROWS = [*LARGEST, *AVERAGE, *ADAPTIVE, *BY_WINDOWS]


@parametrize(ROWS)
def test_row(row: Row) -> None:
    check(row)


def test_averages_of_doubles_take_little_memory() -> None:
    """Windows of all axes have 1,024 times the elements; so has the padding of both axes."""
    image = torch.rand(2, 3, 64, 64, dtype=torch.float64)
    for x, options in ((image, (32, 1)), (image[..., :2, :2], (64, 1, 31))):
        program = onnx_aot.export(lambda x, o=options: torch.nn.functional.avg_pool2d(x, *o), (x,))
        torch.testing.assert_close(program(x)[0], torch.nn.functional.avg_pool2d(x, *options))
        sizes = [math.prod(v.shape) for node in program.model.graph for v in node.outputs]
        assert max(sizes) <= 32 * x.numel()


def test_an_average_of_doubles_reads_its_window_alone() -> None:
    x = torch.rand(1, 1, 20, dtype=torch.float64)
    x[0, 0, 3], x[0, 0, 15] = math.inf, math.nan
    program = onnx_aot.export(lambda x: torch.nn.functional.avg_pool1d(x, 7, 2), (x,))
    expected = torch.nn.functional.avg_pool1d(x, 7, 2)
    torch.testing.assert_close(program(x)[0], expected, equal_nan=True)
