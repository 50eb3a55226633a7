"""Judges samples in processes, which are killed when they hang and replaced when they crash."""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import logging
import multiprocessing
import os
import signal
import time
import warnings
from collections import deque
from collections.abc import Callable, Sequence
from multiprocessing.connection import Connection, wait
from typing import Any

from conformance.other_releases import Release
from conformance.outcome import Result, judge
from conformance.samples import Case, samples_of

__all__ = ["Settings", "run_cases", "serve_chunks"]

STARTUP = 300.0  # seconds for imports and for drawing the samples
LARGEST = 3 << 30  # bytes of memory above which a worker is replaced


@dataclasses.dataclass(frozen=True)
class Settings:
    """Settings of every worker.

    Attributes:
        exporter: One of ``exporters.EXPORTERS``.
        samples: Largest number of samples of each case.
        limit: Seconds for one sample.
        opsets: Each sample is judged at each of these; None is the exporter's default.
        release: The release of ONNX Runtime that runs the models; None is the installed one.
    """

    exporter: str = "onnx_aot"
    samples: int = 3
    limit: float = 60.0
    opsets: tuple[int | None, ...] = (None,)
    release: Release | None = None


# --- in the worker -------------------------------------------------------------------------------


def _serve_cases(connection: Connection, settings: Settings) -> None:
    """Receives ``(case, first sample)``; sends ``(index or None, result or None)``.

    An index without a result announces that its sample begins. The index None ends the case; bytes
    of resident memory come with it.
    """
    import torch

    # torch.export captures attention without the fast path. Eager takes that path when no gradient
    # is required, and its answer differs at padded positions.
    torch.backends.mha.set_fastpath_enabled(False)
    _prepare()
    with contextlib.suppress(EOFError, ConnectionError):
        while True:
            case, first = connection.recv()
            _work_on(connection, case, first, settings)


def _work_on(connection: Connection, case: Case, first: int, settings: Settings) -> None:
    try:
        samples = samples_of(case, settings.samples)
    except Exception as error:
        reason = f"no samples: {type(error).__name__}: {error}"
        connection.send((0, Result("not_captured", reason[:200])))
        samples = []
    judged = [(sample, opset) for sample in samples for opset in settings.opsets]
    for index, (sample, opset) in enumerate(judged):
        if index >= first:
            connection.send((index, None))
            connection.send(
                (index, judge(case, sample, settings.exporter, opset, settings.release))
            )
    connection.send((None, _resident_memory()))


def serve_chunks(judge_one: Callable[[Any, int], Any]) -> Callable[[Connection, Settings], None]:
    """Returns the work of a process whose cases are chunks: each has a ``count`` of parts.

    Args:
        judge_one: Judges one part of a chunk, by its number from 0 on; a function of a module.
    """
    return functools.partial(_serve_chunks, judge_one)


def _serve_chunks(
    judge_one: Callable[[Any, int], Any], connection: Connection, settings: Settings
) -> None:
    _prepare()
    logging.disable(logging.WARNING)
    with contextlib.suppress(EOFError, ConnectionError):
        while True:
            chunk, done = connection.recv()
            for index in range(done, chunk.count):
                connection.send((index, None))
                connection.send((index, judge_one(chunk, index)))
            connection.send((None, _resident_memory()))


def _prepare() -> None:
    """Leaves interrupts to the parent, uses one thread, and drops what ONNX Runtime prints."""
    import torch

    signal.signal(signal.SIGINT, signal.SIG_IGN)
    torch.set_num_threads(1)
    warnings.simplefilter("ignore")
    with open(os.devnull, "w", encoding="utf-8") as nowhere:
        os.dup2(nowhere.fileno(), 1)
        os.dup2(nowhere.fileno(), 2)


def _resident_memory() -> int:
    """Bytes of memory that this process uses."""
    with open("/proc/self/statm", encoding="ascii") as file:
        return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")


# --- in the parent -------------------------------------------------------------------------------


class Worker:
    """One process and the case that it works on."""

    def __init__(self, settings: Settings, work: Callable[[Connection, Settings], None]) -> None:
        self.settings = settings
        self.work = work
        self.case: Any = None
        self.results: list[Any] = []
        self.deadline = float("inf")
        self.started = False
        self.start()

    def start(self) -> None:
        """Starts a process in place of the previous one."""
        context = multiprocessing.get_context("spawn")
        self.connection, theirs = context.Pipe()
        self.process = context.Process(target=self.work, args=(theirs, self.settings), daemon=True)
        self.process.start()
        theirs.close()

    def stop(self) -> None:
        """Ends the process; an idle one exits by itself when its connection is closed."""
        self.connection.close()
        if self.deadline != float("inf"):
            self.process.kill()
        self.process.join(5.0)
        self.process.kill()
        self.process.join()

    def begin(self, case: Any) -> None:
        """Hands a case to the process."""
        self.case, self.results = case, []
        self._resume()

    def _resume(self) -> None:
        self.deadline = time.monotonic() + STARTUP
        self.started = False
        self.connection.send((self.case, len(self.results)))

    def receive(self) -> bool:
        """Receives one message; returns True if the case is done."""
        try:
            index, content = self.connection.recv()
        except (EOFError, ConnectionError):
            self.process.join()
            return self.restart_after("crash", f"the process ended with {self.process.exitcode}")
        self.deadline = time.monotonic() + self.settings.limit
        if index is None:
            self._finish()
            if content > LARGEST:
                self.stop()
                self.start()
            return True
        self.started = content is None
        if content is not None:
            self.results.append(content)
        return False

    def restart_after(self, outcome: str, reason: str) -> bool:
        """Records the outcome of a lost sample and continues with the others in a new process.

        Returns True if no sample had begun, which ends the case.
        """
        self.results.append(Result(outcome, reason))
        at_sample = self.started
        self.stop()
        self.start()
        if at_sample:
            self._resume()
        else:  # while drawing the samples
            self._finish()
        return not at_sample

    def _finish(self) -> None:
        self.deadline = float("inf")


def run_cases(
    cases: Sequence[Any],
    settings: Settings,
    jobs: int,
    done: Callable[[Any, list[Any]], Any],
    work: Callable[[Connection, Settings], None] = _serve_cases,
) -> None:
    """Judges all cases and calls ``done`` with the results of each as soon as it is finished.

    ``work`` is the function that every process runs.
    """
    waiting = deque(cases)
    workers = [Worker(settings, work) for _ in range(min(jobs, len(cases)))]
    try:
        busy = {worker: None for worker in workers if waiting and _begin(worker, waiting)}
        while busy:
            wake = min(worker.deadline for worker in busy) - time.monotonic()
            ready = wait([worker.connection for worker in busy], max(0.0, min(wake, 5.0)))
            for worker in list(busy):
                finished = False
                if worker.connection in ready:
                    finished = worker.receive()
                elif time.monotonic() > worker.deadline:
                    finished = worker.restart_after(
                        "timeout", f"longer than {settings.limit:.0f} s"
                    )
                if finished:
                    assert worker.case is not None
                    done(worker.case, worker.results)
                    if not (waiting and _begin(worker, waiting)):
                        del busy[worker]
    finally:
        for worker in workers:
            worker.stop()


def _begin(worker: Worker, waiting: deque[Any]) -> bool:
    worker.begin(waiting.popleft())
    return True
