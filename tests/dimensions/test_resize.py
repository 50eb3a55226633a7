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


LAYOUTS = {
    "transposed": (lambda: torch.rand(6, 4).t(), (8, 12), (1, 8)),
    "every second element": (lambda: torch.rand(3, 5, 6)[..., ::2], (6, 7, 3), (42, 6, 2)),
    "part of each row": (lambda: torch.rand(4, 7)[:, :5], (8, 5), (10, 1)),
    "channels last": (
        lambda: torch.rand(2, 3, 4, 5).to(memory_format=torch.channels_last),
        (3, 3, 8, 5),
        (120, 1, 15, 3),
    ),
    "expanded": (lambda: torch.rand(1, 5).expand(4, 5), (8, 6), (0, 1)),
    "one element": (lambda: torch.rand(5, 1).t(), (2, 5), (5, 1)),
    "windows that overlap": (lambda: torch.rand(10).unfold(0, 4, 1), (9, 4), (4, 1)),
}


@pytest.mark.parametrize("name", LAYOUTS)
def test_the_layout_stays(name: str) -> None:
    make, shape, strides = LAYOUTS[name]
    leaf = make()
    resized = resize_leaf(leaf, shape)
    assert (tuple(resized.shape), resized.stride()) == (shape, strides)
    both = tuple(slice(min(sizes)) for sizes in zip(leaf.shape, shape, strict=True))
    torch.testing.assert_close(resized[both], leaf[both])
