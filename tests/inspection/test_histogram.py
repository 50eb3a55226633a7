"""Histograms of differences."""

from __future__ import annotations

import math
from typing import Any

import torch

from onnx_aot.inspection.differences import compare_outputs


def difference(expected: Any, actual: Any, dtype: torch.dtype | None = None) -> Any:
    tensors = (torch.tensor(given, dtype=dtype) for given in (expected, actual))
    (found,) = compare_outputs(["y"], *[[tensor] for tensor in tensors])
    return found


def test_histograms_count_decades_of_the_tolerance() -> None:
    ratios = (0.0, 5e-4, 5e-3, 5e-2, 0.5, 5.0, 50.0, 500.0, 5e3, math.nan)
    found = difference([0.0] * 10, [1e-8 * ratio for ratio in ratios], torch.float64)
    assert [count for _, count in found.histogram] == [1] * 10
    assert [label for label, _ in found.histogram][::3] == [
        "equal",
        "up to 0.1",
        "up to 100",
        "not finite",
    ]
    assert found.worst == (9,)
