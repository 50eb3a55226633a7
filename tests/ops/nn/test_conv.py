"""Convolutions and transposed convolutions: ``onnx_aot/ops/nn/conv.py``."""

from __future__ import annotations

from typing import Any

import torch

from onnx_aot.torch_compat import aten
from tests.ops.rows import Row, T, bools, check, floats, ints, parametrize

EMPTY = ({"n": 0},)

CONV = {1: aten.conv1d.default, 2: aten.conv2d.default, 3: aten.conv3d.default}
CONV_PADDING = {1: aten.conv1d.padding, 2: aten.conv2d.padding, 3: aten.conv3d.padding}
CONV_TRANSPOSE = {
    1: aten.conv_transpose1d.default,
    2: aten.conv_transpose2d.input,
    3: aten.conv_transpose3d.input,
}


def image(spatial: int, channels: int = 4) -> T:
    """A batch of images; the first two spatial sizes are dynamic."""
    return floats("n", channels, *("h", "w", 5)[:spatial])


def kernel(spatial: int, out: int, channels: int, *sizes: int) -> T:
    return floats(out, channels, *(sizes or (3, 2, 4))[:spatial], low=-1, high=1)


PLAIN = [
    Row(CONV[spatial], args, kwargs, name=name, sizes=EMPTY)
    for spatial in (1, 2, 3)
    for name, args, kwargs in (
        ("plain", (image(spatial), kernel(spatial, 6, 4)), {}),
        ("bias", (image(spatial), kernel(spatial, 6, 4), floats(6)), {}),
        (
            "groups",
            (image(spatial), kernel(spatial, 6, 2), floats(6)),
            {"groups": 2, "padding": [1]},
        ),
        ("depthwise", (image(spatial), kernel(spatial, 8, 1)), {"groups": 4}),
        (
            "stride",
            (image(spatial), kernel(spatial, 6, 4), floats(6)),
            {"stride": [2], "padding": [1, 2, 0][:spatial]},
        ),
        (
            "dilation",
            (image(spatial), kernel(spatial, 3, 4, 2, 3, 2)),
            {"dilation": [2, 3, 1][:spatial], "stride": [1, 2, 1][:spatial]},
        ),
        (
            "unbatched",
            (floats(4, *("h", "w", 5)[:spatial]), kernel(spatial, 6, 4), floats(6)),
            {"padding": [1]},
        ),
    )
] + [
    Row(aten.conv1d.default, (floats(2, 3, "h"), floats(4, 3, "k")), name="dynamic kernel"),
    Row(aten.conv2d.default, (floats("n", 3, 4, 5), floats(2, 3, 1, 1)), name="1 by 1"),
]

STRINGS = [
    Row(CONV_PADDING[spatial], args, {"padding": padding, **kwargs}, name=f"{padding}, {name}")
    for spatial in (1, 2, 3)
    for padding in ("same", "valid")
    for name, args, kwargs in (
        ("odd", (image(spatial), kernel(spatial, 6, 4, 3, 5, 3), floats(6)), {}),
        ("even", (image(spatial), kernel(spatial, 6, 4, 2, 4, 4)), {}),
        (
            "even, dilation",
            (image(spatial), kernel(spatial, 6, 2, 2, 4, 2)),
            {"dilation": [3, 1, 3][:spatial], "groups": 2},
        ),
        ("dilation", (image(spatial), kernel(spatial, 6, 4, 2, 3, 2)), {"dilation": [2]}),
        (
            "unbatched",
            (floats(4, *("h", "w", 5)[:spatial]), kernel(spatial, 6, 4, 2, 3, 2), floats(6)),
            {},
        ),
    )
] + [
    Row(
        CONV_PADDING[spatial],
        (image(spatial), kernel(spatial, 6, 4)),
        {"padding": "valid", "stride": [2]},
        name="valid, stride",
    )
    for spatial in (1, 2, 3)
]

TRANSPOSED = [
    Row(CONV_TRANSPOSE[spatial], args, kwargs, name=name, sizes=EMPTY)
    for spatial in (1, 2, 3)
    for name, args, kwargs in (
        ("plain", (image(spatial), kernel(spatial, 4, 6)), {}),
        ("bias", (image(spatial), kernel(spatial, 4, 6), floats(6)), {}),
        (
            "groups",
            (image(spatial), kernel(spatial, 4, 3), floats(6)),
            {"groups": 2, "padding": [1]},
        ),
        (
            "stride",
            (image(spatial), kernel(spatial, 4, 6), floats(6)),
            {"stride": [2], "padding": [1, 0, 2][:spatial]},
        ),
        (
            "output padding",
            (image(spatial), kernel(spatial, 4, 6, 3, 2, 3)),
            {"stride": [2, 3, 2][:spatial], "output_padding": [1, 2, 0][:spatial]},
        ),
        (
            "dilation",
            (image(spatial), kernel(spatial, 4, 3, 2, 3, 2)),
            {"dilation": [2, 3, 1][:spatial], "stride": [3, 1, 2][:spatial]},
        ),
        (
            "unbatched",
            (floats(4, *("h", "w", 5)[:spatial]), kernel(spatial, 4, 6), floats(6)),
            {"stride": [2], "padding": [1], "output_padding": [1]},
        ),
    )
]

GENERAL = [
    Row(
        aten.convolution.default,
        (image(spatial), weight, bias, [2], [1], [1], transposed, [0], groups),
        name=f"{spatial}, {name}",
        sizes=EMPTY,
    )
    for spatial in (1, 2, 3)
    for name, weight, bias, transposed, groups in (
        ("bias", kernel(spatial, 6, 4), floats(6), False, 1),
        ("groups", kernel(spatial, 6, 2), None, False, 2),
        ("transposed", kernel(spatial, 4, 6), floats(6), True, 1),
        ("transposed, groups", kernel(spatial, 4, 3), None, True, 2),
    )
]

# Types without convolutions in ONNX or ONNX Runtime, and paddings that ONNX Runtime rejects.
BY_WINDOWS = [
    Row(
        aten.conv2d.default,
        (tensor("n", 4, "h", "w", **kind), tensor(6, 2, 2, 3, **kind), tensor(6, **kind)),
        {"stride": [2, 1], "padding": [1, 2], "dilation": [1, 2], "groups": 2},
        name=name,
        sizes=EMPTY,
    )
    for name, tensor, kind in (
        ("int64", ints, {}),
        ("float64", floats, {"dtype": torch.float64}),
    )
] + [
    Row(
        aten.conv1d.padding,
        (floats(2, 4, "h"), floats(3, 4, "k")),
        {"padding": "same", "dilation": [3]},
        name="dynamic kernel",
    ),
    Row(
        aten.conv1d.padding,
        (ints(4, "h"), ints(3, 4, 4)),
        {"padding": "same"},
        name="int64, unbatched",
    ),
    Row(
        aten.conv_transpose2d.input,
        (floats("n", 4, "h", "w"), floats(4, 3, 3, 2), floats(6)),
        {
            "stride": [3, 2],
            "padding": [1, 2],
            "output_padding": [2, 3],
            "dilation": [4, 4],
            "groups": 2,
        },
        name="output padding beyond the stride",
    ),
    Row(
        aten.conv_transpose1d.default,
        (ints("n", 4, "h"), ints(4, 3, "k"), ints(3)),
        {"stride": [2], "padding": [1], "output_padding": [1]},
        name="int64",
    ),
    Row(
        aten.conv_transpose3d.input,
        (
            floats(4, "h", 3, 4, dtype=torch.float64),
            floats(4, 3, 2, 1, 3, dtype=torch.float64),
            floats(6, dtype=torch.float64),
        ),
        {"stride": [2, 1, 2], "padding": [3, 0, 1], "groups": 2},
        name="float64, unbatched",
    ),
]


def of_own_kernels(
    images: torch.Tensor, kernels: torch.Tensor, bias: torch.Tensor | None = None, **options: Any
) -> torch.Tensor:
    """Convolves each image with kernels of its own, as hypernetworks do: a group per image."""
    count, channels, *sizes = images.shape
    joined = images.reshape(1, count * channels, *sizes)
    bias = None if bias is None else bias.reshape(-1)
    weight = kernels.flatten(0, 1)
    value = torch.nn.functional.conv2d(joined, weight, bias, groups=count, **options)
    return value.unflatten(1, (count, kernels.shape[1]))


def transposed_of_own_kernels(images: torch.Tensor, kernels: torch.Tensor) -> torch.Tensor:
    count = images.shape[0]
    value = torch.nn.functional.conv_transpose2d(
        images.flatten(0, 1)[None], kernels.flatten(0, 1), groups=count, stride=2
    )
    return value.unflatten(1, (count, kernels.shape[2]))


def own_kernels(*sizes: int, dtype: torch.dtype = torch.float32) -> tuple[T, T]:
    return floats("n", 3, "h", "w", dtype=dtype), floats("n", *sizes, 3, 2, dtype=dtype)


DYNAMIC_GROUPS = [
    Row(aten.conv2d.default, own_kernels(5, 3), call=of_own_kernels, name="groups of the batch"),
    Row(
        aten.conv2d.padding,
        (*own_kernels(5, 3), floats("n", 5)),
        {"padding": "same"},
        call=of_own_kernels,
        name="groups of the batch, same",
    ),
    Row(
        aten.conv2d.default,
        own_kernels(5, 3, dtype=torch.float16),
        {"dilation": 2, "padding": 1, "stride": (1, 2)},
        call=of_own_kernels,
        name="groups of the batch, float16",
    ),
    Row(
        aten.conv_transpose2d.input,
        own_kernels(3, 4),
        call=transposed_of_own_kernels,
        name="groups of the batch, transposed",
    ),
]

COLUMNS = [
    Row(aten.im2col.default, (value, *arguments), name=name, sizes=EMPTY)
    for name, value, arguments in (
        ("plain", image(2), ([3, 2], [1, 1], [0, 0], [1, 1])),
        ("all that there is", image(2), ([2, 3], [2, 1], [1, 2], [1, 2])),
        ("unbatched", floats(4, "h", "w"), ([3, 3], [1, 1], [1, 1], [2, 2])),
        (
            "float64",
            floats("n", 4, "h", "w", dtype=torch.float64),
            ([2, 2], [1, 1], [1, 0], [1, 1]),
        ),
    )
]


def fold_wide(columns: torch.Tensor) -> torch.Tensor:
    """The output grows with the number of windows, ``[n, 2 * 3, w]`` to ``[n, 2, 1, 2 w + 1]``."""
    return torch.nn.functional.fold(columns, (1, 2 * columns.shape[2] + 1), (1, 3), stride=(1, 2))


JOINED = [
    Row(
        aten.col2im.default,
        (columns, [4, 5], [2, 3], [1, 1], [1, 0], [2, 1]),
        name=name,
        sizes=EMPTY,
    )
    for name, columns in (
        ("float32", floats("n", 12, 9)),
        ("float64", floats("n", 12, 9, dtype=torch.float64)),
        ("float16", floats("n", 12, 9, dtype=torch.float16)),
        ("bfloat16", floats("n", 12, 9, dtype=torch.bfloat16)),
        ("bool", bools("n", 12, 9)),
        ("unbatched", floats(12, 9)),
    )
] + [
    Row(aten.col2im.default, (columns,), call=fold_wide, name=f"any width, {columns.dtype}")
    for columns in (floats("n", 6, "w"), floats("n", 6, "w", dtype=torch.float64))
]

ROWS = [*PLAIN, *STRINGS, *TRANSPOSED, *DYNAMIC_GROUPS, *GENERAL, *BY_WINDOWS, *COLUMNS, *JOINED]


@parametrize(ROWS)
def test_row(row: Row) -> None:
    check(row)
