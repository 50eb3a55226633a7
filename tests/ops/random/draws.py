"""Rows that hide random values, and moments of random values."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import torch

import onnx_aot
from tests.ops.rows import Row

N = 60_000


def hidden(result: Any) -> Any:
    """Returns zeros with the results' types and shapes, and a test that no result is NaN."""
    results = result if isinstance(result, (list, tuple)) else [result]
    return [(torch.zeros_like(item), item == item) for item in results]  # noqa: PLR0124


def without_values(target: Any, *more: Any, **options: Any) -> Callable[..., Any]:
    """Calls a target and hides its random values."""
    return lambda *args: hidden(target(*args, *more, **options))


def like(target: Any, x: Any, *more: Any, name: str = "", **options: Any) -> Row:
    """Returns a row that takes tensors and hides random values."""
    tensors = x if isinstance(x, tuple) else (x,)
    return Row(target, tensors, call=without_values(target, *more, **options), name=name)


HALF = torch.float16
WIDE = torch.float64


class Function(torch.nn.Module):
    """Calls a function that draws random values."""

    def __init__(self, function: Callable[..., Any]) -> None:
        super().__init__()
        self.function = function

    def forward(self, *args: torch.Tensor) -> Any:
        return self.function(*args)


def drawn(function: Callable[..., Any], *args: torch.Tensor, seed: int | None = 3) -> torch.Tensor:
    program = onnx_aot.export(Function(function), args, seed=seed)
    answer: torch.Tensor = program(*args)[0]
    return answer


def assert_moments(numbers: torch.Tensor, mean: float, variance: float, kurtosis: float) -> None:
    """Checks mean and variance of independent numbers within five standard errors."""
    numbers = numbers.double().flatten()
    count = len(numbers)
    assert abs(float(numbers.mean()) - mean) < 5 * math.sqrt(variance / count)
    error = variance * math.sqrt(max(kurtosis - 1, 1e-3) / count)
    assert abs(float(numbers.var()) - variance) < 5 * error


SHAPE = (3, N // 3)


def check_moments(
    function: Callable[[], torch.Tensor], mean: float, variance: float, kurtosis: float
) -> None:
    """Checks moments of values drawn with ONNX Runtime, and that their type is PyTorch's."""
    numbers = drawn(function)
    assert numbers.dtype == function().dtype
    assert_moments(numbers, mean, variance, kurtosis)
