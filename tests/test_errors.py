"""Codes of errors and warnings: ``tests/explanations`` has their pages."""

from __future__ import annotations

import copy
import pickle

import pytest

from onnx_aot.errors import (
    CaptureError,
    ConversionError,
    FunctionalizationError,
    OnnxExporterError,
    OnnxExporterWarning,
    SourceLocation,
    add_line,
    innermost_message,
    message_of,
    warn,
)


def test_a_class_has_a_code_and_an_error_may_have_another() -> None:
    assert CaptureError("no").code == CaptureError.code == "OA199"
    assert str(CaptureError("no", code="OA101")) == "no\nSee: onnx-aot explain OA101"
    assert CaptureError("no", code="OA101").message == "no"
    assert str(OnnxExporterError("no")) == "no"  # the base has no page


def test_the_page_stays_the_last_line() -> None:
    error = CaptureError("no", code="OA101")
    add_line(error, "The report is in here.md")
    assert str(error) == "no\nThe report is in here.md\nSee: onnx-aot explain OA101"


def test_an_error_in_the_text_of_another() -> None:
    inner = CaptureError("no", code="OA101")
    outer = ConversionError("not either")
    outer.__cause__ = inner
    assert innermost_message(outer) == "CaptureError: no"
    assert message_of(inner) == "no"
    assert message_of(ValueError("no")) == "no"


@pytest.mark.parametrize("repeat", [copy.copy, lambda one: pickle.loads(pickle.dumps(one))])
@pytest.mark.parametrize("kind", [CaptureError, OnnxExporterWarning])
def test_copies_have_the_code(repeat: object, kind: type[CaptureError]) -> None:
    """Sweeps send errors from process to process."""
    made = kind("no", code="OA101")
    repeated = repeat(made)  # type: ignore[operator]
    assert (repeated.code, str(repeated)) == ("OA101", str(made))


def test_a_line_that_is_added_keeps_the_code() -> None:
    line = SourceLocation("model.py", 3, "forward")
    error = FunctionalizationError("no", torch_has_one=False, code="OA120").with_line(line)
    assert error.message == "no (at model.py:3 in forward)"
    assert (error.code, error.torch_has_one) == ("OA120", False)


def test_a_warning_is_shown_for_the_line_of_the_caller() -> None:
    with pytest.warns(OnnxExporterWarning, match=r"^no\nSee: onnx-aot explain OA101$") as caught:
        warn("no", "OA101")
    assert caught[0].filename == __file__
