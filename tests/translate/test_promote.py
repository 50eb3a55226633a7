"""The promotion rule matches eager PyTorch for every pointwise operator of two tensors."""

from __future__ import annotations

import itertools
from typing import Any

import pytest
import torch

import onnx_aot
from onnx_aot.ops import registry
from onnx_aot.torch_compat import aten
from onnx_aot.translate.promote import PROMOTED, SELECTORS, needs_promotion
from tests.tolerances import assert_close

DTYPES = (
    torch.bool,
    torch.uint8,
    torch.int8,
    torch.int16,
    torch.int32,
    torch.int64,
    torch.float16,
    torch.bfloat16,
    torch.float32,
    torch.float64,
)


def operands(target: Any) -> list[Any]:
    return [a for a in target._schema.arguments if str(a.type) in ("Tensor", "Optional[Tensor]")]


def takes_two_tensors(target: Any) -> bool:
    names = {argument.name for argument in operands(target)}
    return len(names) == 2 and not SELECTORS & names


BINARY = [
    target
    for target in registry.translations()
    if needs_promotion(target) and takes_two_tensors(target) and target != aten.lerp.Scalar
]


def test_operators_that_promote_are_pointwise() -> None:
    assert BINARY
    assert all(needs_promotion(target) for target in PROMOTED)
    assert not needs_promotion(aten.logical_and.default)
    assert not needs_promotion(aten.matmul.default)


def values(dtype: torch.dtype, scalar: bool) -> torch.Tensor:
    numbers = torch.tensor(2 if scalar else [1, 2, 3])
    return numbers.to(dtype)


@pytest.mark.parametrize("target", BINARY, ids=str)
def test_casting_first_gives_what_eager_gives(target: Any) -> None:
    """Eager gives the same result for the operands and for operands that the rule has cast."""
    compared = 0
    for left, right in itertools.product(DTYPES, DTYPES):
        for scalars in ((False, False), (False, True), (True, False)):
            a, b = values(left, scalars[0]), values(right, scalars[1])
            arguments = {"rounding_mode": "floor"} if target == aten.div.Tensor_mode else {}
            try:
                expected = target(a, b, **arguments)
            except RuntimeError:
                continue  # eager rejects the types
            boolean = expected.dtype == torch.bool
            dtype = torch.result_type(a, b) if boolean else expected.dtype
            actual = target(a.to(dtype), b.to(dtype), **arguments)
            assert actual.dtype == expected.dtype, (left, right, scalars)
            assert_close(actual, expected)
            compared += 1
    assert compared > 20


@pytest.mark.parametrize("dtype", [torch.int32, torch.int64, torch.bool, torch.float32])
@pytest.mark.parametrize("number", [2, 1.5, True])
def test_python_numbers(dtype: torch.dtype, number: Any) -> None:
    def arithmetic(x: torch.Tensor) -> tuple[torch.Tensor, ...]:
        return x * number, number + x, x > number, torch.where(x > 1, x, number)

    x = values(dtype, scalar=False)
    program = onnx_aot.export(arithmetic, (x,))
    for actual, expected in zip(program(x), arithmetic(x), strict=True):
        assert actual.dtype == expected.dtype
        torch.testing.assert_close(actual, expected)


def test_symbolic_numbers() -> None:
    def arithmetic(x: torch.Tensor) -> tuple[torch.Tensor, ...]:
        n = x.shape[0]
        return x * n, x / n, x > n - 1, x + n // 2

    for dtype in (torch.float32, torch.int64):
        x = values(dtype, scalar=False)
        program = onnx_aot.export(arithmetic, (x,), dynamic_shapes=({0: "n"},))
        x = torch.cat([x, x])
        for actual, expected in zip(program(x), arithmetic(x), strict=True):
            assert actual.dtype == expected.dtype
            torch.testing.assert_close(actual, expected)


def test_mixed_lists_are_concatenated_in_the_common_type() -> None:
    def joined(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
        return torch.cat([a, b, a > 1])

    a, b = values(torch.int64, scalar=False), values(torch.float32, scalar=False)
    program = onnx_aot.export(joined, (a, b))
    torch.testing.assert_close(program(a, b)[0], joined(a, b))
