"""Runs a sweep: which rows have to run, again or at all, and what becomes of their outcomes."""

from __future__ import annotations

import collections
import contextlib
import dataclasses
import json
import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from onnx_aot.errors import InvalidOptionError, SweepError
from onnx_aot.sweep.artifacts import ROWS, Store
from onnx_aot.sweep.code import Dependencies
from onnx_aot.sweep.difference import Difference, compare_results
from onnx_aot.sweep.engine import Engine, interpreter_for, is_installed
from onnx_aot.sweep.engine_local import LocalEngine
from onnx_aot.sweep.live import Live
from onnx_aot.sweep.page import write_page
from onnx_aot.sweep.plan import Plan, load_plan
from onnx_aot.sweep.results import Result, Results
from onnx_aot.sweep.rows import LOST, MEMORY, RIGHT, TIME, Row, key_of
from onnx_aot.sweep.summary import summarize

__all__ = ["PAGE", "Sweep", "run"]

PAGE = "index.html"
LOCK = ".lock"
TRIES = 2
"""Tries of a row where the machine may be at fault."""


@dataclasses.dataclass(frozen=True)
class Sweep:
    """Result of ``run``.

    Attributes:
        folder: Folder with the results and the page.
        run: Number of the run in the results.
        ran: Number of rows that ran.
        skipped: Number of rows for which nothing that matters has changed.
        results: The last result of every row, in the order of the plan.
        difference: What the run changed.
    """

    folder: str
    run: int
    ran: int
    skipped: int
    results: tuple[Result, ...]
    difference: Difference

    @property
    def ok(self) -> bool:
        """True if every row is right."""
        return all(result.status == RIGHT for result in self.results)

    @property
    def counts(self) -> dict[str, int]:
        """Number of rows by status, the most frequent first."""
        return dict(collections.Counter(r.status for r in self.results).most_common())

    def to_markdown(self) -> str:
        """A summary for a pull request."""
        return summarize(self.results, self.difference)


def run(
    plan: Plan | Mapping[str, Any] | str | os.PathLike[str],
    folder: str | os.PathLike[str],
    *,
    resume: bool = False,
    again: bool = False,
    jobs: int | None = None,
    ray: str | None = None,
    artifacts: str | os.PathLike[str] | None = None,
    progress: bool = True,
) -> Sweep:
    """Exports every row of a plan in a process of its own, and keeps the results in a folder.

    A row is skipped if it has run with the same code, versions and options. A row that fails,
    crashes, hangs or takes too much memory is a result like others.

    Example::

        sweep = onnx_aot.sweep.run("plan.toml", "nightly")
        assert sweep.ok, sweep.to_markdown()

    Args:
        plan: Path of a plan, ``package.module:name`` of one, or its contents.
        folder: Folder for ``sweep.sqlite``, ``index.html`` and the files of rows. A folder of an
            earlier sweep is continued.
        resume: Also run the rows that are not right; a run that was interrupted goes on.
        again: Run all rows.
        jobs: Cores of this machine to use; all by default.
        ray: Address of a cluster of Ray, or ``"auto"``; None: processes of this machine.
        artifacts: Folder, or address for fsspec, of the files of rows; ``rows`` in the folder by
            default.
        progress: Whether to show the progress on stderr.

    Raises:
        InvalidOptionError: The plan or an option is not accepted.
        SweepError: No process or cluster for the rows starts, or the folder is in use.
    """
    if jobs is not None and jobs < 1:
        raise InvalidOptionError(f"jobs={jobs!r} is not a positive number of cores", code="OA803")
    loaded = load_plan(plan)
    try:
        os.makedirs(folder, exist_ok=True)
    except OSError as error:
        raise InvalidOptionError(
            f"cannot write to {folder}: {error}. Give a folder", code="OA803"
        ) from None
    place = os.path.abspath(folder)
    store = Store(os.fspath(artifacts or os.path.join(place, ROWS)), loaded.search)
    keys = _keys(loaded, ray is not None)
    with _locked(place), Results(place, create=True) as results:
        known = results.known()
        pending = [
            row
            for row in loaded.rows
            if again or _has_to_run(row, keys[row.name], known.get(row.name), resume)
        ]
        engine = _make_engine(loaded, store, jobs, ray) if pending else None
        skipped = len(loaded.rows) - len(pending)
        number = results.begin_run(
            loaded.name,
            engine.description if engine else "nothing to run",
            Dependencies().of(Row("", task="onnx_aot")),
            [(row, keys[row.name]) for row in loaded.rows],
            skipped,
            resume,
        )
        try:
            if engine is not None:
                with contextlib.closing(engine), Live(len(pending), skipped, progress) as live:
                    _run_rows(engine, pending, keys, number, results, store, live)
            results.end_run(number)
        finally:
            write_page(results, Path(place) / PAGE)
        found = tuple(results.current())
        difference = compare_results(results.before(number), found)
    return Sweep(place, number, len(pending), skipped, found, difference)


def _keys(plan: Plan, cluster: bool) -> dict[str, str]:
    """The key of each row by name; also finds releases of torch that nothing provides."""
    releases = {row.torch for row in plan.rows}
    interpreters = {
        release: named
        for release in releases
        if not is_installed(release)
        for named in [plan.environments.get(release, "")]
        if isinstance(named, str)
    }
    if not cluster:
        for release in releases:
            interpreter_for(plan, release)
    dependencies = Dependencies(plan.search, interpreters)
    found = {}
    for row in plan.rows:
        depends_on = dependencies.of(row)
        if row.torch in plan.environments:
            depends_on["environment"] = json.dumps(plan.environments[row.torch])
        found[row.name] = key_of(row, depends_on)
    return found


def _has_to_run(
    row: Row, key: str, known: tuple[str, str, float, int | None] | None, resume: bool
) -> bool:
    """True unless the row has a result that would come again."""
    if known is None:
        return True
    before, status, seconds, memory = known
    if before != key or status == LOST or (resume and status != RIGHT):
        return True
    limits = row.limits
    return (status == TIME and seconds != limits.seconds) or (
        status == MEMORY and memory != limits.memory
    )


def _make_engine(plan: Plan, store: Store, jobs: int | None, ray: str | None) -> Engine:
    if ray is None:
        return LocalEngine(plan, store, jobs)
    if jobs is not None:
        raise InvalidOptionError(
            "jobs is for this machine, and ray for a cluster; give one of them", code="OA803"
        )
    from onnx_aot.sweep.engine_ray import RayEngine

    return RayEngine(plan, store, ray)


def _run_rows(
    engine: Engine,
    pending: list[Row],
    keys: Mapping[str, str],
    number: int,
    results: Results,
    store: Store,
    live: Live,
) -> None:
    """Runs the rows; each gets one result, also if it was tried twice."""
    queue = collections.deque(pending)
    rows = {row.name: row for row in pending}
    tries: collections.Counter[str] = collections.Counter()
    running: set[str] = set()
    while queue or running:
        while queue and engine.has_room(queue[0]):
            row = queue.popleft()
            tries[row.name] += 1
            running.add(row.name)
            live.begin(row.name)
            engine.submit(row)
        for outcome in engine.collect():
            row = rows[outcome.name]
            running.discard(row.name)
            if outcome.machine and tries[row.name] < TRIES:
                live.try_again(row.name, outcome)
                queue.append(row)
                continue
            results.add(number, row, keys[row.name], outcome, tries[row.name], store.place_of(row))
            live.end(outcome)


@contextlib.contextmanager
def _locked(folder: str) -> Iterator[None]:
    """Keeps other sweeps out of a folder; the lock goes with the process, however it ends."""
    try:
        import fcntl
    except ImportError:  # the engine says that this system cannot fork
        yield
        return
    with open(os.path.join(folder, LOCK), "w", encoding="utf-8") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            raise SweepError(
                f"another sweep is writing to {folder}. Wait for its end, or give another folder",
                code="OA803",
            ) from None
        yield
