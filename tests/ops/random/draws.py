"""Rows that hide what they draw, and moments of what is drawn."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import torch

import onnx_aot
from tests.ops.rows import Row

N = 60_000


def hidden(result: Any) -> Any:
    """Zeros of the results' types and shapes, and that they are numbers."""
    results = result if isinstance(result, (list, tuple)) else [result]
    return [(torch.zeros_like(item), item == item) for item in results]  # noqa: PLR0124


def without_values(target: Any, *more: Any, **options: Any) -> Callable[..., Any]:
    """Calls a target and hides what it draws."""
    return lambda *args: hidden(target(*args, *more, **options))


def like(target: Any, x: Any, *more: Any, name: str = "", **options: Any) -> Row:
    """A row without values that is given tensors."""
    tensors = x if isinstance(x, tuple) else (x,)
    return Row(target, tensors, call=without_values(target, *more, **options), name=name)


HALF = torch.float16
WIDE = torch.float64


class Function(torch.nn.Module):
    """Calls a function that draws."""

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
    """Mean and variance of independent numbers within five standard errors."""
    numbers = numbers.double().flatten()
    count = len(numbers)
    assert abs(float(numbers.mean()) - mean) < 5 * math.sqrt(variance / count)
    error = variance * math.sqrt(max(kurtosis - 1, 1e-3) / count)
    assert abs(float(numbers.var()) - variance) < 5 * error


SHAPE = (3, N // 3)


def check_moments(
    function: Callable[[], torch.Tensor], mean: float, variance: float, kurtosis: float
) -> None:
    """Draws with ONNX Runtime; the type is PyTorch's."""
    numbers = drawn(function)
    assert numbers.dtype == function().dtype
    assert_moments(numbers, mean, variance, kurtosis)
