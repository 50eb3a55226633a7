"""Code that only validates data: captures pass it by, and ``runtime_checks=True`` keeps it."""

from __future__ import annotations

import contextlib
import inspect
import sys
import warnings
from collections.abc import Callable
from typing import Any

import pytest
import torch

import onnx_aot
from onnx_aot.errors import CaptureError
from tests.capture.sizes import validating_models
from tests.capture.sizes.validating_models import (
    OTHERS,
    RAISING,
    Counting,
    assertion_of_torch,
    both,
    mixed,
    raising,
    raising_twice,
    writing,
)
from tests.releases import TORCH

Tensor = torch.Tensor
FILE = validating_models.__file__
GOOD = torch.linspace(0.1, 0.9, 12).reshape(3, 4)
LOW, HIGH, BOTH = GOOD - 2, GOOD + 2, torch.tensor([[-1.0, 3.0, 0.5, 0.5]])
has_positions = pytest.mark.skipif(
    sys.version_info < (3, 11), reason="code objects of Python 3.10 have lines only"
)


def exported(function: Callable[..., Any], **options: Any) -> Any:
    """Exports with the strategy that traces, which has to follow every branch."""
    return onnx_aot.export(
        function, (GOOD,), dynamic_shapes=({0: "n"},), strategies=("non-strict",), **options
    )


def left_out(program: Any) -> str:
    """The note of the report about what is left out, which is no warning."""
    notes = zip(program.report.notes, program.report.note_codes, strict=True)
    (note,) = [text for text, code in notes if code == "OA102"]
    return str(note)


def result(call: Callable[..., Any], x: Tensor) -> Any:
    """The result, or None if the call raises."""
    with contextlib.suppress(Exception):
        found = call(x)
        return found[0] if isinstance(found, tuple) else found
    return None


@pytest.mark.parametrize("function", RAISING)
def test_checks_are_kept_on_request(function: Any) -> None:
    program = exported(function, runtime_checks=True)
    for x in (GOOD, GOOD[:1], LOW, HIGH, BOTH):
        expected, actual = result(function, x), result(program, x)
        assert (expected is None) == (actual is None), x
        torch.testing.assert_close(actual, expected)


# From torch 2.15 on, torch._assert of a tensor asks for nothing.
ASKING = [each for each in RAISING if each is not assertion_of_torch or TORCH < (2, 15)]


@pytest.mark.parametrize("function", ASKING)
def test_checks_are_left_out(function: Any) -> None:
    program = exported(function)
    message = left_out(program)
    assert message.startswith("the model checks its data, and the ONNX model leaves the checks out")
    assert "runtime_checks=True keeps those that raise errors" in message
    for x in (GOOD, GOOD[:1]):
        torch.testing.assert_close(program(x)[0], function(x))
    assert not {"If", "ReduceMin"} & {node.op_type for node in program.model.graph}


def test_every_line_is_named_once() -> None:
    program = exported(raising_twice)
    _, first = inspect.getsourcelines(raising_twice)
    assert left_out(program).splitlines()[1:] == [
        f"  if x.min() < 0: (raises an error) at {FILE}:{first + 1} in raising_twice",
        f"  if x.max() > 1: (raises an error) at {FILE}:{first + 3} in raising_twice",
    ]


def test_a_failed_check_names_the_line() -> None:
    class Raising(torch.nn.Module):  # of functions, torch 2.12 records no lines
        def forward(self, x: Tensor) -> Tensor:
            if x.min() < 0:
                raise ValueError
            return x * 2

    with pytest.raises(Exception, match=r"check: .* \(if x\.min\(\) < 0:\)"):
        exported(Raising(), runtime_checks=True)(LOW)


def test_without_checks_nothing_fails() -> None:
    program = exported(raising)
    assert "leaves the checks out" in left_out(program)
    torch.testing.assert_close(program(LOW)[0], LOW * 2)


@has_positions
def test_different_answers_on_one_line() -> None:
    program = exported(mixed, runtime_checks=True)
    for x in (GOOD, LOW, HIGH):
        assert (result(mixed, x) is None) == (result(program, x) is None)


def test_numbers_of_data() -> None:
    def between(x: Tensor) -> Tensor:
        largest = x.max().item()
        if not -1 < largest < 2:
            raise ValueError(f"{largest}")
        return x * largest

    program = exported(between)
    assert "-1 < largest < 2" in left_out(program)
    torch.testing.assert_close(program(GOOD[:1])[0], between(GOOD[:1]))


# --- messages ------------------------------------------------------------------------------------


@pytest.mark.parametrize("checks", [False, True])
def test_messages_are_left_out(checks: bool, capfd: pytest.CaptureFixture[str]) -> None:
    program = exported(writing, runtime_checks=checks)
    message = left_out(program)
    assert message.splitlines()[0].endswith("leaves the checks out:")
    assert message.count("(writes a message)") == 4
    for x in (GOOD, LOW, HIGH):
        torch.testing.assert_close(program(x)[0], x * 2)
    assert capfd.readouterr().out == ""


def test_a_message_assumes_nothing() -> None:
    def warned(x: Tensor) -> Tensor:
        chosen = x[x > 0.5]
        if chosen.shape[0] == 0:
            warnings.warn("nothing", stacklevel=1)
        return chosen * 2

    program = exported(warned, runtime_checks=True)
    assert "writes a message" in left_out(program)
    for x in (GOOD, LOW):
        torch.testing.assert_close(program(x)[0], x[x > 0.5] * 2)


# --- branches that have to be followed -----------------------------------------------------------


@pytest.mark.parametrize("checks", [False, True])
@pytest.mark.parametrize("function", OTHERS)
def test_other_branches_are_captured_on_both_sides(function: Any, checks: bool) -> None:
    program = exported(function, runtime_checks=checks)
    for x in (GOOD, GOOD[:1], LOW, HIGH, BOTH):
        expected = result(function, x)
        if expected is not None:
            torch.testing.assert_close(result(program, x), expected)


def test_a_branch_that_changes_the_model_is_refused() -> None:
    with pytest.raises(CaptureError, match=r"the sides leave self\.low.* for the next call"):
        exported(Counting())


def test_an_error_lists_only_what_is_to_be_changed() -> None:
    with pytest.raises(CaptureError, match=r"in one place:\n  1\. return x if") as caught:
        exported(both)
    assert "assert x.min()" not in str(caught.value)


# --- the example ---------------------------------------------------------------------------------


def test_the_example_has_to_pass() -> None:
    with pytest.raises(CaptureError, match="example inputs do not pass a check") as caught:
        onnx_aot.export(raising, (LOW,), strategies=("non-strict",))
    _, first = inspect.getsourcelines(raising)
    assert f"{FILE}:{first + 2} in raising" in str(caught.value)
    assert "ValueError: the smallest is -1.8" in str(caught.value)


def test_source_that_is_not_available() -> None:
    scope: dict[str, Any] = {}
    exec("def hidden(x):\n    if x.min() < 0:\n        raise ValueError\n    return x", scope)
    assert "(raises an error) at <string>:3 in hidden" in left_out(exported(scope["hidden"]))
