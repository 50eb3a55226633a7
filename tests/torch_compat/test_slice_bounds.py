"""Slices whose bounds may count from the end: ``onnx_aot/torch_compat/slice_bounds.py``."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

import onnx_aot
from onnx_aot.errors import CaptureError, InferenceError
from tests.tolerances import assert_close
from tests.torch_compat.without import absent, shows

ROW = "torch._subclasses.fake_impls:_compute_slice_index"


def weigh_middle(x: Tensor) -> Tensor:
    """Sums the eight columns around the middle, with the weights 1 to 8."""
    middle = x.shape[1] // 2
    kept = x[:, middle - 4 : middle + 4]
    return sum(kept[:, i] * (i + 1) for i in range(kept.shape[1]))


def pair_last(x: Tensor) -> Tensor:
    """Reads the length of a slice that ends before the last columns."""
    kept = x[:, : x.shape[1] // 3 - 2]
    return kept[:, : len(kept[0]) // 2 * 2].unflatten(1, (-1, 2))


def crop_middle(x: Tensor) -> Tensor:
    middle = x.shape[1] // 2
    kept = x[:, middle - 4 : middle + 4]
    return kept * 2 if kept.shape[1] > 3 else kept


X = torch.rand(2, 20)


@shows(ROW)
def test_the_length_is_used() -> None:
    program = onnx_aot.export(weigh_middle, (X,), dynamic_shapes=({1: "n"},))
    for length in (20, 8, 9, 31):
        x = torch.rand(2, length)
        assert_close(program(x)[0], weigh_middle(x))
    with pytest.raises(InferenceError, match="captured for 8 or more"):
        program(X[:, :7])
    with absent(ROW), pytest.raises(CaptureError, match="middle"):
        onnx_aot.export(weigh_middle, (X,), dynamic_shapes=({1: "n"},))


def test_a_bound_below_zero_counts_from_the_end() -> None:
    x = torch.rand(2, 5)  # 5 // 3 - 2 is -1
    program = onnx_aot.export(pair_last, (x,), dynamic_shapes=({1: "n"},))
    assert_close(program(x)[0], pair_last(x))
    assert_close(program(x[:, :4])[0], pair_last(x[:, :4]))


def test_a_length_that_only_a_branch_asks_for_stays_open() -> None:
    program = onnx_aot.export(crop_middle, (X,), dynamic_shapes=({1: "n"},))
    for length in (20, 8, 5, 1):
        x = torch.rand(2, length)
        assert_close(program(x)[0], crop_middle(x))
    assert program.report.conditions == ()
