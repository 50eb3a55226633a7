"""Shapes of convolutions and pools are numbers where the input sizes are numbers."""

from __future__ import annotations

from typing import Any

import pytest

from onnx_aot.builder.builder import Builder
from tests.builder.made_values import value


@pytest.fixture
def op() -> Builder:
    return Builder(20)


@pytest.mark.parametrize(
    ("attributes", "size"),
    [
        ({}, 7),
        ({"strides": [2, 2]}, 4),
        ({"pads": [1, 1, 1, 1]}, 9),
        ({"dilations": [3, 3]}, 3),
        ({"strides": [2, 2], "pads": [1, 0, 2, 0]}, 4),
    ],
    ids=str,
)
def test_a_convolution_counts_positions_of_its_kernel(
    attributes: dict[str, Any], size: int, op: Builder
) -> None:
    """The last axis has size 9, its kernel size 3 and its padding entries 1 and 3."""
    shape = op.Conv(value("n", 3, "h", 9), value(4, 3, 3, 3), **attributes).shape
    assert (shape[0], shape[1], shape[3]) == ("n", 4, size)
    assert shape[2] not in ("h", "n")  # unknown, and not one of the other sizes


def test_an_unknown_kernel_or_automatic_padding_gives_unknown_sizes(op: Builder) -> None:
    for weight, attributes in (
        (value(4, 3, "k", "k"), {}),
        (value(4, 3, 3, 3), {"auto_pad": "SAME_UPPER"}),
    ):
        shape = op.Conv(value(2, 3, 9, 9), weight, **attributes).shape
        assert list(shape[:2]) == [2, 4]
        assert not any(isinstance(size, int) for size in shape[2:])
        assert shape[2] != shape[3]


def test_pools_keep_batch_and_channels(op: Builder) -> None:
    x = value("n", 3, 8, 9)
    pooled = op.AveragePool(x, kernel_shape=[2, 3], strides=[2, 2])
    assert list(pooled.shape) == ["n", 3, 4, 4]
    rounded_up = op.MaxPool(x, kernel_shape=[2, 2], ceil_mode=1).shape
    assert list(rounded_up[:2]) == ["n", 3]
    assert not any(isinstance(size, int) for size in rounded_up[2:])


def test_a_transposed_convolution_has_channels_per_group(op: Builder) -> None:
    x, weight = value("n", 4, 5, 9), value(4, 3, 3, 3)
    options = {"strides": [2, 2], "pads": [1, 1, 1, 1], "output_padding": [1, 0]}
    assert list(op.ConvTranspose(x, weight, group=2, **options).shape) == ["n", 6, 10, 17]
