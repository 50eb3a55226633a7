"""Answers about data that only decides whether code raises or writes."""

from __future__ import annotations

import pytest
import torch

import onnx_aot
from onnx_aot.errors import OnnxExporterWarning

Tensor = torch.Tensor
X = torch.tensor([3.0, 1.0, 2.0])


def test_conditions_that_cannot_be_evaluated_are_not_asserted() -> None:
    """The second condition is evaluated only if the first holds, which it never does."""

    def guarded(x: Tensor) -> Tensor:
        if x.min() < 0 and missing(x):  # type: ignore[name-defined]  # noqa: F821
            raise ValueError
        return x * 2

    with pytest.warns(OnnxExporterWarning, match="cannot keep these that raise errors") as caught:
        program = onnx_aot.export(guarded, (X,), runtime_checks=True, strategies=("non-strict",))
    assert len(caught) == 1
    torch.testing.assert_close(program(X)[0], X * 2)


def test_conditions_that_are_known_decide() -> None:
    """With ``strict`` False nothing is ever raised, so nothing is asserted."""

    def lenient(x: Tensor, strict: bool = False) -> Tensor:
        if x.min() < 0 and strict:
            raise ValueError
        return x * 2

    program = onnx_aot.export(lenient, (X,), runtime_checks=True, strategies=("non-strict",))
    torch.testing.assert_close(program(-X)[0], -X * 2)


def test_an_answer_is_not_kept_for_other_lines() -> None:
    def asks_twice(x: Tensor) -> Tensor:
        chosen = x[x > 0]
        if chosen.shape[0] > 100:
            print("many")  # noqa: T201
        assert chosen.shape[0] <= 200
        return chosen * 2

    program = onnx_aot.export(asks_twice, (X,), runtime_checks=True, strategies=("non-strict",))
    many = torch.ones(3).repeat(50)
    assert program(X)[0].tolist() == [6.0, 2.0, 4.0]
    assert many.shape == (150,)
