"""Random programs, exported once, match eager PyTorch at every size."""

from __future__ import annotations

import collections
import random
from pathlib import Path

import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from tests.properties.check import check, reduce_failure
from tests.properties.generate import generate
from tests.properties.programs import Input
from tests.properties.scope import Scope

OUTCOMES: collections.Counter[str] = collections.Counter()
"""Outcomes of the programs, for the summary at the end of the run."""


@settings(
    max_examples=2 * settings.default.max_examples,
    phases=(Phase.explicit, Phase.generate),  # programs are reduced by leaving lines out
    suppress_health_check=[HealthCheck.too_slow],
)
@given(drawn=st.randoms(use_true_random=True))
def test_programs_equal_eager(drawn: random.Random, pytestconfig: pytest.Config) -> None:
    program = generate(drawn)
    try:
        checked = check(program)
    except Exception as error:
        OUTCOMES["failures"] = 1  # the reduced program runs again to be shown
        smallest = reduce_failure(program, error)
        file = pytestconfig.getoption("--save-program")
        if file:
            Path(file).write_text(repr(smallest))
        raise AssertionError(f"{error}\nA program that fails:\n\n{smallest!r}") from error
    OUTCOMES.update(programs=1, **checked.sizes)
    if checked.refused:
        OUTCOMES[f"refused with {checked.refused.partition(':')[0]}"] += 1


def test_a_write_that_eager_rejects_is_left_out() -> None:
    """The elements of an expanded tensor share memory."""
    inputs = [Input("x", "float32", ("n", "m"), "expanded"), Input("y", "float32", ("n", "m"))]
    scope = Scope(inputs, {"n": 4, "m": 6}, dynamic=True, training=False)
    expanded, plain = scope.values[:2]
    assert not scope.write("x.add_(1)", expanded)
    assert scope.write("y.add_(1)", plain)
    assert scope.lines == ["y.add_(1)"]
