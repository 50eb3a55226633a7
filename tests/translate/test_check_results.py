"""Translations whose results do not match the operator's."""

from __future__ import annotations

from typing import Any

import pytest
import torch

import onnx_aot
from onnx_aot.errors import TranslationError
from tests.translate.two_results import RELU, SORT, Tensor, X


class TwoResults(torch.nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        values, indices = x.relu().sort()
        return values + indices


@pytest.mark.parametrize("model", [TwoResults(), torch.nn.ReLU()], ids=["inner", "output"])
@pytest.mark.parametrize(
    ("returned", "described"),
    [
        (lambda value: None, "None"),
        (lambda value: 3, "3"),
        (lambda value: "x", "'x'"),
        (lambda value: (value,), "a list of 1: a value"),
        (lambda value: (value, None), "a list of 2: a value, None"),
    ],
)
def test_one_value_is_wanted(model: torch.nn.Module, returned: Any, described: str) -> None:
    with pytest.raises(TranslationError) as caught:
        onnx_aot.export(
            model, (X,), custom_translation_table={RELU: lambda op, self: returned(self)}
        )
    message = str(caught.value)
    assert f"of aten.relu.default returned {described}; the operator returns one tensor" in message
    assert "%relu : [num_users=1]" in message


@pytest.mark.parametrize(
    ("returned", "described"),
    [
        (lambda values, indices: None, "None"),
        (lambda values, indices: values, "one value"),
        (lambda values, indices: (values,), "a list of 1: a value"),
        (lambda values, indices: (values, None), "a list of 2: a value, None"),
        (lambda values, indices: (values, indices, 1), "a list of 3: a value, a value, 1"),
    ],
)
def test_several_values_are_wanted(returned: Any, described: str) -> None:
    def sort(op: Any, self: Any, dim: int, descending: bool) -> Any:
        return returned(*op.TopK(self, [3], _outputs=2))

    with pytest.raises(TranslationError) as caught:
        onnx_aot.export(TwoResults(), (X,), custom_translation_table={SORT: sort})
    message = str(caught.value)
    assert f"of aten.sort.default returned {described}; the operator returns 2 results" in message


def test_a_result_that_is_not_used_may_be_none() -> None:
    class Values(torch.nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            return x.sort().values

    def sort(op: Any, self: Any, dim: int, descending: bool) -> Any:
        return op.TopK(self, [3], largest=0, _outputs=2)[0], None

    program = onnx_aot.export(Values(), (X,), custom_translation_table={SORT: sort})
    torch.testing.assert_close(program(X)[0], X.sort().values)
