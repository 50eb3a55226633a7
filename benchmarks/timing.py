"""Times of calls: alternating, so that what changes meanwhile changes all of them."""

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

MOST, LEAST = 5, 3  # runs; what takes more than twice what may be spent on it gets one
COLOURS = re.compile(r"\x1b\[[0-9;]*m")


class Times(NamedTuple):
    """Seconds of one call."""

    wall: float
    cpu: float


class TooSlow(BaseException):
    """A call took longer than its limit; no ``except Exception`` on the way swallows it."""


@contextlib.contextmanager
def time_limit(seconds: float) -> Iterator[None]:
    """Ends what runs within by ``TooSlow``; for the main thread, on systems with SIGALRM."""

    def end(*_: Any) -> None:
        raise TooSlow(f"takes longer than {seconds:g} s")

    before = signal.signal(signal.SIGALRM, end)
    # Again, should the first one come where Python swallows exceptions, as in a destructor.
    signal.setitimer(signal.ITIMER_REAL, seconds, 5.0)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


def alternate(
    ways: Mapping[str, Callable[[], Any]],
    spend: Mapping[str, float],
    limit: float,
    most: int = MOST,
) -> tuple[dict[str, list[Times]], dict[str, str]]:
    """Calls every way in turn until it has had its runs.

    Args:
        ways: What is called, by name.
        spend: Seconds by name, after which a way that had three runs gets no more.
        limit: Seconds that one call may take.
        most: Runs of each.

    Returns:
        Times of each way that succeeded, and the first line of the error of each that did not.
    """
    times: dict[str, list[Times]] = {way: [] for way in ways}
    errors: dict[str, str] = {}
    for _ in range(most):
        for way, run in ways.items():
            if way in errors or _has_enough(times[way], spend[way]):
                continue
            gc.collect()  # what one way leaves behind is not the next one's to collect
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
    """The kind of an error and the first line of what it says, for a table."""
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
