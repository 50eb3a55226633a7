"""Judges the parts of cases in rows of a sweep: a part that crashes or hangs costs no other."""

from __future__ import annotations

import contextlib
import dataclasses
import itertools
import logging
import pkgutil
import signal
import tempfile
import warnings
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from onnx_aot import sweep
from onnx_aot.sweep.rows import RIGHT, STATUSES, TIME

__all__ = ["ARTIFACTS", "ROOT", "WARM", "Work", "judge_parts", "run_cases"]

ROOT = Path(__file__).parent.parent
ARTIFACTS = ROOT / "artifacts"
WARM = ("onnx_aot.sweep.warm",)
"""Module that does what every export needs once."""

STARTUP = 300.0  # seconds for imports and for drawing the samples
MOST = 4 * 3600.0  # seconds for all parts of a case; each part has its own limit


@dataclasses.dataclass(frozen=True)
class Work:
    """Describes the work on every case.

    Attributes:
        judge: ``package.module:function``. Called with the settings of a case and the number of the
            first part to judge, it yields the number of parts, and then a result for each part from
            that one on, as JSON.
        name: What the page of the sweep calls it.
        preload: Modules that are imported once, before the processes of the cases are forked.
        limit: Seconds for one part.
        columns: Settings by which the page of the sweep can be filtered.
    """

    judge: str
    name: str
    preload: tuple[str, ...] = ()
    limit: float = 60.0
    columns: tuple[str, ...] = ()


def run_cases(
    cases: Mapping[str, Mapping[str, Any]],
    work: Work,
    jobs: int,
    folder: str | Path | None = None,
    again: bool = False,
) -> Iterator[tuple[str, list[dict[str, Any]]]]:
    """Judges all cases, each in a process of its own.

    Args:
        cases: Settings by the name of a case; can be written as JSON.
        work: What is done with each.
        jobs: Processes at a time.
        folder: Folder of the sweep, which does not repeat what it has judged with the same code;
            None: a temporary one.
        again: Whether it repeats it all the same.

    Yields:
        The name of each case, and the results of its parts in order. ``{"outcome": ..., "reason":
        ...}`` with ``crash`` or ``timeout`` stands for a part that ended its process. If that
        happens before the first part, it is the only one.

    Raises:
        RuntimeError: A function of ``work`` raised an error.
    """
    with tempfile.TemporaryDirectory() as temporary:
        place = Path(folder or temporary)
        results: dict[str, list[dict[str, Any]]] = {name: [] for name in cases}
        pending = dict.fromkeys(cases, 0)
        for number in itertools.count():
            plan = _make_plan({name: (cases[name], first) for name, first in pending.items()}, work)
            into = place if number == 0 else place / f"again-{number}"
            done = sweep.run(plan, into, jobs=jobs, again=again)
            unfinished = {}
            for row in done.results:
                first = _add_results(row, pending[row.name], results[row.name], work.limit)
                if first is not None:
                    unfinished[row.name] = first
            pending = unfinished
            if not pending:
                break
    yield from results.items()


def _make_plan(cases: Mapping[str, tuple[Mapping[str, Any], int]], work: Work) -> sweep.Plan:
    judged_by = work.judge.partition(":")[0]
    rows = [
        sweep.Row(
            name,
            task=f"{__name__}:{judge_parts.__name__}",
            settings={"judge": work.judge, "limit": work.limit, "first": first, "case": settings},
            options={column: settings[column] for column in work.columns},
            limits=sweep.Limits(seconds=MOST),
            code=(judged_by,),
        )
        for name, (settings, first) in cases.items()
    ]
    return sweep.Plan(tuple(rows), (*work.preload, judged_by), folder=str(ROOT), name=work.name)


def _add_results(
    row: sweep.Result, first: int, results: list[dict[str, Any]], limit: float
) -> int | None:
    """Adds the results of a row; returns the number of the part to go on with, or None."""
    parts: Sequence[dict[str, Any]] = row.metrics.get("parts", ())
    results += parts
    reached, count = first + len(parts), row.metrics.get("count")
    if reached == count:
        return None
    if row.error:
        raise RuntimeError(f"{row.name}, part {reached}: {row.error}: {row.reason}")
    hung = row.status == TIME or signal.SIGALRM.name in row.reason
    lost = {"outcome": "timeout", "reason": f"longer than {limit:g} s"}
    results.append(lost if hung else {"outcome": "crash", "reason": row.reason})
    return reached + 1 if count is not None and reached + 1 < count else None


# --- in the process of a case --------------------------------------------------------------------


def judge_parts(settings: Mapping[str, Any], progress: sweep.Progress) -> dict[str, Any]:
    """Judges the parts of a case; those that were judged are kept if the process ends."""
    import torch

    torch.set_num_threads(1)
    # torch.export captures attention without the fast path. Eager takes that path when no gradient
    # is required, and its answer differs at padded positions.
    torch.backends.mha.set_fastpath_enabled(False)
    warnings.simplefilter("ignore")
    logging.disable(logging.WARNING)
    judge = pkgutil.resolve_name(settings["judge"])
    parts: list[Any] = []
    with _ended_after(STARTUP):
        judged = judge(settings["case"], settings["first"])
        count = next(judged)
    progress.note(count=count)
    for index in range(settings["first"], count):
        progress.begin(f"part {index}")
        with _ended_after(settings["limit"]):
            parts.append(next(judged))
        progress.note(parts=parts)
    order = list(STATUSES)
    return {"status": max((p.get("status", RIGHT) for p in parts), key=order.index, default=RIGHT)}


@contextlib.contextmanager
def _ended_after(seconds: float) -> Iterator[None]:
    """Ends the process by a signal, also in compiled code, if a block takes longer."""
    signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
