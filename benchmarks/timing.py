"""Times calls alternately, so that changes on the machine affect all of them alike."""

from __future__ import annotations

import contextlib
import gc
import math
import re
import signal
import statistics
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, NamedTuple

__all__ = [
    "COLOURS",
    "TooSlow",
    "alternate",
    "exponent",
    "first_line",
    "geomean",
    "median",
    "time_limit",
]

MOST, LEAST = 5, 3  # runs; a call that takes more than twice its budget gets one
COLOURS = re.compile(r"\x1b\[[0-9;]*m")


class Times(NamedTuple):
    """Seconds of one call."""

    wall: float
    cpu: float


class TooSlow(BaseException):
    """A call took longer than its limit; a BaseException, so no ``except Exception`` hides it."""


@contextlib.contextmanager
def time_limit(seconds: float, cpu: bool = False) -> Iterator[None]:
    """Raises ``TooSlow`` in the block after a time; main thread only, on systems with SIGALRM.

    ``cpu`` counts the seconds that this process computes, which other processes do not change.
    """
    which, number = (
        (signal.ITIMER_PROF, signal.SIGPROF) if cpu else (signal.ITIMER_REAL, signal.SIGALRM)
    )

    def end(*_: Any) -> None:
        raise TooSlow(f"takes longer than {seconds:g} s")

    before = signal.signal(number, end)
    # Repeated, in case the first signal arrives where Python swallows exceptions (a destructor).
    signal.setitimer(which, seconds, 5.0)
    try:
        yield
    finally:
        signal.setitimer(which, 0)
        signal.signal(number, before)


def alternate(
    ways: Mapping[str, Callable[[], Any]],
    spend: Mapping[str, float],
    limit: float,
    most: int = MOST,
) -> tuple[dict[str, list[Times]], dict[str, str]]:
    """Calls all ways in turn until each has had its runs.

    Args:
        ways: Functions to call, by name.
        spend: Budgets in seconds, by name; after three runs, a way gets no run that exceeds it.
        limit: Seconds that one call may take.
        most: Largest number of runs of each way.

    Returns:
        Times of each way that succeeded, and the first line of the error of each that did not.
    """
    times: dict[str, list[Times]] = {way: [] for way in ways}
    errors: dict[str, str] = {}
    for _ in range(most):
        for way, run in ways.items():
            if way in errors or _has_enough(times[way], spend[way]):
                continue
            gc.collect()  # the garbage of one way must not slow down the next
            try:
                with time_limit(limit):
                    times[way].append(_time_call(run))
            except (Exception, TooSlow) as error:
                errors[way] = first_line(error)
    return {way: measured for way, measured in times.items() if measured}, errors


def _has_enough(measured: list[Times], spend: float) -> bool:
    if not measured:
        return False
    slowest = max(times.wall for times in measured)
    spent = sum(times.wall for times in measured)
    least = LEAST if slowest <= 2 * spend else 1
    return len(measured) >= least and spent + slowest > spend


def _time_call(run: Callable[[], Any]) -> Times:
    wall, cpu = time.perf_counter(), time.process_time()
    run()
    return Times(time.perf_counter() - wall, time.process_time() - cpu)


def first_line(error: BaseException) -> str:
    """Returns the type of an error and the first line of its message, for a table."""
    text = COLOURS.sub("", str(error)).partition("\n")[0]
    return (text if isinstance(error, TooSlow) else f"{type(error).__name__}: {text}")[:120]


def median(values: Iterable[float]) -> float:
    """The median of at least one number."""
    return statistics.median(values)


def geomean(values: Iterable[float]) -> float:
    """The geometric mean of at least one positive number."""
    return math.exp(statistics.fmean(map(math.log, values)))


def exponent(points: Mapping[float, float]) -> float:
    """Least-squares slope of log(y) over log(x), for at least two points ``{x: y}``."""
    xs, ys = [math.log(x) for x in points], [math.log(y) for y in points.values()]
    return statistics.linear_regression(xs, ys).slope
