"""Runs rows in processes forked from one that has imported torch, and holds them to their limits.

``Host`` starts this module as a process of its own and talks to it through a pipe. It has one
thread and imports the modules of a plan once. Each row is a process group of its own, whose output
goes to a file. If a row crashes, hangs or takes too much memory, its group ends and the others go
on. If the driver goes away, all of them end.
"""

from __future__ import annotations

import contextlib
import dataclasses
import faulthandler
import gc
import importlib
import os
import signal
import socket
import subprocess
import sys
import time
import traceback
from collections.abc import Mapping, Sequence
from multiprocessing.connection import Connection, Pipe, wait
from pathlib import Path
from typing import Any

from onnx_aot.errors import SweepError
from onnx_aot.sweep.code import hash_package
from onnx_aot.sweep.rows import LOST, MEMORY, TIME, Outcome, Row
from onnx_aot.sweep.worker import LOG, STACK, call_task, merge

__all__ = ["Host"]

TICK = 0.05  # seconds between two looks at time and memory
FAMILY = 1.0  # seconds between two looks for processes that a row started
GRACE = 0.5  # seconds that a row has to write where it hangs
START = 300.0  # seconds that the imports may take

BY_MACHINE = {signal.SIGKILL, signal.SIGTERM, signal.SIGBUS}
"""Signals that end a process for the sake of the machine, unless this module sent them."""


class Host:
    """The process that rows fork from, as the driver sees it.

    Args:
        search: Folders that are searched for modules before the others.
        preload: Modules that are imported before the first row.
        interpreter: Python to run; "" for this one.
        threads: Threads that torch computes with if a row does not say otherwise.
    """

    def __init__(
        self,
        search: Sequence[str] = (),
        preload: Sequence[str] = (),
        interpreter: str = "",
        threads: int = 1,
    ) -> None:
        if not hasattr(os, "fork"):
            raise SweepError(
                "a sweep forks a process for each row, which this system cannot. Run it on Linux, "
                "on macOS or in WSL"
            )
        self._connection, theirs = Pipe()
        environment = {**os.environ, "PYTHONPATH": _python_path(search, interpreter)}
        environment.setdefault("OMP_NUM_THREADS", str(threads))
        start = "from onnx_aot.sweep.host import main; main()"
        self._process = subprocess.Popen(
            [interpreter or sys.executable, "-c", start, str(theirs.fileno())],
            pass_fds=[theirs.fileno()],
            stdin=subprocess.DEVNULL,
            env=environment,
            start_new_session=True,  # Ctrl-C in a terminal goes to the driver alone
        )
        theirs.close()
        self._interpreter = interpreter or sys.executable
        self._ready = False
        with contextlib.suppress(OSError):  # it has ended already; `wait_until_ready` says so
            self._connection.send({"preload": list(preload), "search": list(search)})

    @property
    def connection(self) -> Any:
        """The pipe, to wait for."""
        return self._connection

    def wait_until_ready(self) -> None:
        """Waits until the modules of the plan are imported.

        Raises:
            SweepError: One could not be imported.
        """
        if self._ready:
            return
        try:
            if not self._connection.poll(START):
                raise EOFError
            told = self._connection.recv()
        except (EOFError, OSError):
            self.close()
            raise SweepError(
                f"{self._interpreter} does not run onnx_aot.sweep, as its output says. "
                "Install onnx-aot[sweep] in its environment"
            ) from None
        if told["package"] != hash_package():
            told["error"] = (
                f"{self._interpreter} has another onnx_aot than this process, so its results would "
                "not be those of the code that is swept. Install the same one in its environment"
            )
        if told["error"]:
            self.close()
            raise SweepError(told["error"])
        self._ready = True

    def submit(self, row: Row, folder: str, environment: Mapping[str, str] | None = None) -> None:
        """Starts a row, whose files go to a folder; it sees further environment variables."""
        self.wait_until_ready()
        self._connection.send(
            {"row": row.to_json(), "folder": folder, "environment": dict(environment or {})}
        )

    def receive(self) -> Outcome:
        """Waits for the next row that has ended.

        Raises:
            EOFError: The host itself has ended.
        """
        try:
            return Outcome(**self._connection.recv())
        except OSError as error:
            raise EOFError from error

    def close(self) -> None:
        """Ends the host and all its rows."""
        self._connection.close()  # the host ends its rows and then itself
        try:
            self._process.wait(5)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()


def _python_path(search: Sequence[str], interpreter: str) -> str:
    """Folders for another process: those given, and that of this package if it is not installed."""
    own = str(Path(__file__).parents[2])
    known = os.environ.get("PYTHONPATH", "").split(os.pathsep)
    in_source = (Path(own) / "pyproject.toml").is_file() or not interpreter
    return os.pathsep.join(dict.fromkeys([*search, *([own] if in_source else []), *known]))


# --- in the process of the host ------------------------------------------------------------------


@dataclasses.dataclass
class _Running:
    """A row that runs."""

    row: Row
    outcome: Outcome
    process: int
    messages: Connection
    begun: float
    looked: float = 0.0
    others: int = 0
    open: bool = True
    killed: str = ""
    why: str = ""
    kill_at: float = 0.0


def _serve(driver: Connection) -> None:
    """Runs rows until the driver closes the pipe."""
    first = driver.recv()
    sys.path[:0] = [path for path in first["search"] if path not in sys.path]
    error = ""
    for name in first["preload"]:
        try:
            importlib.import_module(name)
        except Exception as raised:
            error = (
                f"the module {name} of the plan's preload cannot be imported: "
                f"{type(raised).__name__}: {raised}. Correct it, or leave it out"
            )
            break
    gc.collect()
    gc.freeze()  # a collection in a row would copy the pages of what is imported
    running: list[_Running] = []
    try:
        driver.send({"error": error, "package": hash_package()})
        while True:
            sources: list[Any] = [driver, *(one.messages for one in running if one.open)]
            ending = any(not one.open for one in running)
            ready = wait(sources, 0.001 if ending else TICK if running else None)
            if driver in ready:
                told = driver.recv()
                row = Row.from_json(told["row"])
                try:
                    running.append(_start(row, told["folder"], told["environment"], driver))
                except OSError as raised:  # no process or no room on the disk
                    reason = f"the row does not start: {raised}"
                    outcome = Outcome(row.name, LOST, reason=reason, machine=True)
                    driver.send(dataclasses.asdict(outcome))
            for one in running:
                if one.messages in ready:
                    _read(one)
                _hold_to_limits(one)
            for one in [one for one in running if _has_ended(one)]:
                running.remove(one)
                driver.send(dataclasses.asdict(one.outcome))
    except (EOFError, OSError):
        pass  # the driver is gone
    finally:
        for one in running:
            _kill(one)


def _start(row: Row, folder: str, environment: dict[str, str], driver: Connection) -> _Running:
    receiver, sender = Pipe(duplex=False)
    os.makedirs(folder, exist_ok=True)
    process = os.fork()
    if process == 0:
        driver.close()
        receiver.close()
        os.environ.update(environment)
        _run_in_child(row, folder, sender)
    sender.close()
    worker = f"{socket.gethostname()}:{os.getpid()}"
    outcome = Outcome(row.name, "crashed", started=time.time(), worker=worker)
    return _Running(row, outcome, process, receiver, time.monotonic())


def _run_in_child(row: Row, folder: str, sender: Connection) -> None:
    """Runs a row and ends the process without the handlers that the host has for its own end."""
    try:
        os.setsid()
        _end_with_parent()
        log = os.open(os.path.join(folder, LOG), os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o666)
        nothing = os.open(os.devnull, os.O_RDONLY)
        for target, source in ((0, nothing), (1, log), (2, log)):
            os.dup2(source, target)
        stack = open(os.path.join(folder, STACK), "w", encoding="utf-8")  # noqa: SIM115
        faulthandler.enable(stack)
        if hasattr(faulthandler, "register"):
            faulthandler.register(signal.SIGUSR1, stack)
        _limit_allocations(row.limits.memory)
        import torch

        torch.set_num_threads(row.cores)
        call_task(row, folder, sender.send)
        sys.stdout.flush()
        sys.stderr.flush()
    except BaseException:
        traceback.print_exc()
    finally:
        os._exit(0)


def _end_with_parent() -> None:
    """Asks Linux to end this process if its parent, the host, is killed."""
    if sys.platform == "linux":
        import ctypes

        ctypes.CDLL(None).prctl(1, signal.SIGKILL)  # 1: PR_SET_PDEATHSIG
        if os.getppid() == 1:
            os._exit(1)


def _limit_allocations(memory: int | None) -> None:
    """Refuses an allocation beyond the limit, so that the row raises an error with its place.

    The limit on data is above that on resident memory by what is mapped already.
    """
    if memory is None or sys.platform != "linux":
        return
    import resource

    import psutil

    mapped = psutil.Process().memory_info().data
    hard = resource.getrlimit(resource.RLIMIT_DATA)[1]
    soft = mapped + memory
    if hard == resource.RLIM_INFINITY or soft < hard:
        resource.setrlimit(resource.RLIMIT_DATA, (soft, hard))


def _read(one: _Running) -> None:
    try:
        merge(one.outcome, one.messages.recv())
    except (EOFError, OSError):
        one.open = False


def _hold_to_limits(one: _Running) -> None:
    """Ends a row that takes too long or too much memory."""
    now = time.monotonic()
    if one.killed:
        if now > one.kill_at:
            _kill(one)
        return
    seconds, memory = one.row.limits.seconds, one.row.limits.memory
    if now - one.begun > seconds:
        _end(one, TIME, f"takes longer than {seconds:g} s", now)
    elif memory is not None and one.open:
        used = _resident(one, now)
        if used > memory:
            amount = f"takes {used / 1e9:.2f} GB, more than its limit of {memory / 1e9:.2f} GB"
            _end(one, MEMORY, amount, now)


def _resident(one: _Running, now: float) -> int:
    """Resident bytes of a row; processes that it starts are looked up once a second."""
    import psutil

    try:
        process = psutil.Process(one.process)
        if now - one.looked > FAMILY:
            one.looked = now
            one.others = sum(child.memory_info().rss for child in process.children(recursive=True))
        return int(process.memory_info().rss + one.others)
    except psutil.Error:
        return 0


def _end(one: _Running, status: str, reason: str, now: float) -> None:
    """Lets a row write its stack, and kills it soon."""
    one.killed = status
    stage = f" in {one.outcome.stage}" if one.outcome.stage else ""
    one.why = f"{reason}{stage}"
    one.kill_at = now + GRACE
    try:
        os.kill(one.process, signal.SIGUSR1)
    except ProcessLookupError:
        one.kill_at = now


def _kill(one: _Running) -> None:
    for kill, target in ((os.killpg, one.process), (os.kill, one.process)):
        try:
            kill(target, signal.SIGKILL)
        except (ProcessLookupError, PermissionError):
            continue


def _has_ended(one: _Running) -> bool:
    """True if the process has ended; completes the outcome."""
    process, code, usage = os.wait4(one.process, os.WNOHANG)
    if process == 0:
        return False
    while one.open and one.messages.poll():
        _read(one)
    one.messages.close()
    _kill(one)  # what the row started and left behind
    outcome = one.outcome
    outcome.seconds = time.monotonic() - one.begun
    outcome.cpu_seconds = usage.ru_utime + usage.ru_stime
    outcome.peak_memory = usage.ru_maxrss * (1 if sys.platform == "darwin" else 1024)
    if one.killed:
        outcome.status, outcome.error, outcome.reason = one.killed, "", one.why
    elif outcome.status == "crashed":
        _describe_crash(outcome, os.waitstatus_to_exitcode(code))
    return True


def _describe_crash(outcome: Outcome, code: int) -> None:
    stage = f" in {outcome.stage}" if outcome.stage else ""
    if code < 0:
        name = signal.Signals(-code).name
        outcome.reason = f"the process ended by {name}{stage}"
        outcome.machine = -code in BY_MACHINE
    else:
        outcome.reason = f"the process ended with exit code {code} and no result{stage}"


def main() -> None:
    """Serves the driver that started this process."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    _serve(Connection(int(sys.argv[1])))
