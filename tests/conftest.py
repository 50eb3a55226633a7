"""Settings of all tests: everything runs on the CPU, reproducibly.

``--fast`` runs the tests listed in ``tests/smoke.py``, which take minutes.
``--thorough`` adds those of ``tests/thorough.py``, which take longest or repeat others.
``HYPOTHESIS_PROFILE=conformance`` runs 2,000 random programs in place of 60 from a random seed, and
``--save-program FILE`` saves the smallest one that fails.
"""

from __future__ import annotations

import logging
import os
import sys
from typing import Any

import hypothesis
import pytest
import torch
from _pytest.logging import LogCaptureHandler

from tests.releases import failure_expected
from tests.smoke import is_smoke
from tests.thorough import find_thorough, is_default_run

hypothesis.settings.register_profile(
    "tests", max_examples=60, deadline=None, derandomize=True, database=None
)
hypothesis.settings.register_profile(
    "conformance", max_examples=2000, deadline=None, print_blob=True
)
hypothesis.settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "tests"))


COUNTS = "random programs"
"""Key under which a worker sends its counts to the process that collects the results."""


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--fast", action="store_true", help="run the tests of tests/smoke.py alone")
    parser.addoption("--thorough", action="store_true", help="add the tests of tests/thorough.py")
    parser.addoption("--save-program", help="file for the smallest random program that fails")


def pytest_configure(config: pytest.Config) -> None:
    """Makes ``--fast`` mean ``-m smoke``, combined with any other ``-m``."""
    if config.getoption("--fast"):
        given = config.option.markexpr
        config.option.markexpr = f"smoke and ({given})" if given else "smoke"


@pytest.hookimpl(tryfirst=True)  # after pytest adds its handlers, before the test
def pytest_runtest_call() -> None:
    """Keeps torch's trace from pytest, which collects what loggers record that do not propagate.

    A trace that someone reads walks the stack each time that torch asks for a size.
    """
    trace = logging.getLogger("torch.__trace")
    for handler in [h for h in trace.handlers if isinstance(h, LogCaptureHandler)]:
        trace.removeHandler(handler)


@pytest.hookimpl(tryfirst=True)  # before -m smoke is evaluated
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    if is_default_run(config):
        thorough = find_thorough(item.nodeid for item in items)
        config.hook.pytest_deselected(items=[i for i in items if i.nodeid in thorough])
        items[:] = [item for item in items if item.nodeid not in thorough]
    for item in items:
        expected = failure_expected(item.nodeid)
        if expected is not None:
            reason, runs = expected
            item.add_marker(pytest.mark.xfail(reason=reason, run=runs, strict=True))
        if is_smoke(item.nodeid):
            item.add_marker(pytest.mark.smoke)


def _outcomes() -> dict[str, int]:
    module = sys.modules.get("tests.properties.test_programs")
    return dict(module.OUTCOMES) if module is not None else {}


def pytest_sessionfinish(session: pytest.Session) -> None:
    if hasattr(session.config, "workeroutput"):
        session.config.workeroutput[COUNTS] = _outcomes()


@pytest.hookimpl(optionalhook=True)
def pytest_testnodedown(node: Any) -> None:
    found = getattr(node, "workeroutput", {}).get(COUNTS)
    if found:
        node.config.stash[OF_WORKERS] = found


OF_WORKERS = pytest.StashKey[dict[str, int]]()


def pytest_terminal_summary(
    terminalreporter: pytest.TerminalReporter, config: pytest.Config
) -> None:
    """Reports the number of random programs, their seed and their outcomes."""
    outcomes = config.stash.get(OF_WORKERS, _outcomes())
    if outcomes:
        count, failures = outcomes.pop("programs", 0), outcomes.pop("failures", 0)
        seed = config.getoption("--hypothesis-seed", default=None)
        more = ", ".join(f"{number} {outcome}" for outcome, number in sorted(outcomes.items()))
        drawn = "fixed" if seed is None else seed
        terminalreporter.write_line(f"{count} programs, seed {drawn}, {failures} failures: {more}")


@pytest.fixture(autouse=True)
def _reproducible() -> None:
    torch.default_generator.manual_seed(0)  # torch.manual_seed also asks each kind of device
