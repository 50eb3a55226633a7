"""Errors about models that cannot be captured, in torch's words: which failures are shown."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

import onnx_aot
from onnx_aot.capture.attempts import Failure
from onnx_aot.capture.refusals import _select_telling
from onnx_aot.errors import CaptureError


def mismatch(x: Tensor) -> Tensor:
    return x @ torch.ones(x.shape[1] + 1, 2)


def test_a_model_that_fails_by_itself_is_refused_in_its_own_words() -> None:
    with pytest.raises(CaptureError) as caught:
        onnx_aot.export(mismatch, (torch.ones(2, 3),))
    message = str(caught.value)
    assert "mat1 and mat2 shapes cannot be multiplied" in message
    assert message.count("x @ torch.ones(x.shape[1] + 1, 2)\n  at ") == 1
    assert "strict=True" not in message
    assert "FakeTensor" not in message


def fail(call: str, error: Exception) -> Failure:
    try:
        raise error
    except Exception as raised:
        return Failure(call, raised, ())


def test_a_failure_inside_of_torch_is_left_out_if_another_has_a_line() -> None:
    inside = Failure("strict=False", AssertionError("proxy"), ())
    at_a_line = fail("strict=True", ValueError("rank 3, not 2"))
    assert _select_telling([inside, at_a_line]) == [at_a_line]
    assert _select_telling([at_a_line, inside]) == [at_a_line]
    assert _select_telling([inside, inside]) == [inside, inside]


def test_failures_at_two_lines_are_both_shown() -> None:
    first = fail("strict=False", ValueError("first"))
    try:
        raise TypeError("second")
    except TypeError as error:
        second = Failure("strict=True", error, ())
    assert _select_telling([first, second]) == [first, second]
