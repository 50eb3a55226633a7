"""Differences of two tensors: types with a tolerance, and the definition of equality."""

from __future__ import annotations

from typing import Any

import torch

from onnx_aot.inspection.differences import compare_outputs


def difference(expected: Any, actual: Any, dtype: torch.dtype | None = None) -> Any:
    tensors = (torch.tensor(given, dtype=dtype) for given in (expected, actual))
    (found,) = compare_outputs(["y"], *[[tensor] for tensor in tensors])
    return found


def counted(found: Any) -> dict[str, int]:
    return {label: count for label, count in found.histogram if count}


def test_types_that_have_to_be_equal() -> None:
    found = difference([1, 2, 3, 900], [1, 3, 53, 0])
    assert counted(found) == {"equal": 1, "up to 10": 1, "up to 100": 1, "up to 1000": 1}
    assert found.accepted == "equal"
    assert found.worst == (3,)
    assert found.bars.splitlines()[0] == "elements by difference, in multiples of 1:"
    assert counted(difference([True, False], [True, True])) == {"equal": 1, "up to 10": 1}


def test_complex_numbers_and_empty_tensors() -> None:
    found = difference([1 + 1j, 2j], [1 + 1j, 2j + 1e-5])
    assert counted(found) == {"equal": 1, "up to 0.01": 1}
    assert found.within
    assert found.bars.endswith("up to 0.01 1 ########################################")
    assert difference([], []).histogram == ()
    assert difference([], []).bars == ""
