"""Values that no variable has: ``onnx_aot/capture/branches/open_values.py``."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from onnx_aot.capture.branches.open_values import may_hold_values

found: list[bool] = []


def note(*given: Any) -> int:
    """Notes if its caller may hold values."""
    frame = sys._getframe(1)
    found.append(may_hold_values(frame.f_code, frame.f_lasti))
    return len(given)


def other(*given: Any) -> int:
    return len(given)


def numbers() -> Iterator[int]:
    yield 1


def in_a_statement() -> None:
    x = other()
    x = note(x)


def as_argument() -> None:
    other(note())


def of_an_argument() -> None:
    note(other(other()))


def in_a_loop() -> None:
    for i, _ in enumerate(range(1)):
        if note(i) > other(i):
            break


def after_a_condition() -> None:
    if other() or note():
        other()


def before_another() -> None:
    other(note(), other())


def beside_another() -> None:
    other(other(), note())


def in_a_product() -> int:
    return other() * note()


def beside_a_choice() -> int:
    return (1 if found else 2) * note()


def in_a_comprehension() -> None:
    [note(i) for i in range(1)]


def in_a_loop_over_a_generator() -> None:
    for i in numbers():
        note(i)


FREE = (in_a_statement, as_argument, of_an_argument, in_a_loop, after_a_condition, before_another)
HOLDING = (
    *(beside_another, in_a_product, beside_a_choice, in_a_comprehension),
    in_a_loop_over_a_generator,
)

needs_positions = pytest.mark.skipif(
    sys.version_info < (3, 11), reason="Python 3.10 has no columns of instructions"
)


@needs_positions
@pytest.mark.parametrize("function", FREE)
def test_variables_have_all_values(function: Callable[[], Any]) -> None:
    found.clear()
    function()
    assert found == [False]


@pytest.mark.parametrize("function", HOLDING)
def test_a_value_is_in_no_variable(function: Callable[[], Any]) -> None:
    found.clear()
    function()
    assert found == [True]


def test_code_without_a_source_may_hold_any() -> None:
    found.clear()
    exec("note()", {"note": note})
    assert found == [True]
