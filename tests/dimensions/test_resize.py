"""Example tensors of other sizes."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch._subclasses import FakeTensorMode

from onnx_aot.dimensions.resize import resize_leaf


@pytest.mark.parametrize(
    ("leaf", "shape", "expected"),
    [
        (torch.tensor([[7, 9]]), (3, 2), torch.tensor([[7, 9]] * 3)),
        (torch.tensor([4, 2, 8]), (2,), torch.tensor([4, 2])),
        (torch.tensor([True, False]), (3,), torch.tensor([True, False, True])),
        (torch.tensor([1, 5]), (4,), torch.tensor([1, 1, 5, 5])),  # stays sorted
        (torch.tensor([[0.5]]), (1, 2), torch.tensor([[0.5, 0.5 * 63 / 64]])),
        (torch.ones(0, 2), (2, 2), torch.zeros(2, 2)),
        (3, 8, 8),
        ("a", None, "a"),
    ],
)
def test_elements_are_reused(leaf: Any, shape: Any, expected: Any) -> None:
    resized = resize_leaf(leaf, shape)
    if isinstance(expected, torch.Tensor):
        torch.testing.assert_close(resized, expected)
    else:
        assert resized == expected


def test_tensors_without_values() -> None:
    assert resize_leaf(torch.rand(1, 3, device="meta"), (4, 3)).shape == (4, 3)
    with FakeTensorMode():
        assert resize_leaf(torch.rand(1, 3), (4, 6)).shape == (4, 6)
