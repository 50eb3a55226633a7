"""Runs rows in processes of this machine."""

from __future__ import annotations

import contextlib
import os
from multiprocessing.connection import wait

from onnx_aot.sweep.artifacts import Store
from onnx_aot.sweep.engine import interpreter_for
from onnx_aot.sweep.host import Host
from onnx_aot.sweep.plan import Plan
from onnx_aot.sweep.rows import LOST, Outcome, Row

__all__ = ["LocalEngine"]


class LocalEngine:
    """Runs as many rows at a time as there are cores for.

    Args:
        plan: The plan, whose modules are imported once per interpreter.
        store: Where the files of rows go.
        cores: Cores to use; None: those of the machine.
    """

    def __init__(self, plan: Plan, store: Store, cores: int | None = None) -> None:
        self._plan, self._store = plan, store
        self._cores = cores or _usable_cores()
        self._used = 0
        self._hosts: dict[str, Host] = {}
        self._running: dict[str, tuple[Row, str, Host]] = {}

    @property
    def description(self) -> str:
        """Name of the engine with its size."""
        return f"processes of this machine, {self._cores} cores"

    def has_room(self, row: Row) -> bool:
        """True if the cores of the row are free; a row that wants more than there are gets all."""
        return self._used == 0 or self._used + row.cores <= self._cores

    def submit(self, row: Row) -> None:
        """Starts a row."""
        interpreter = interpreter_for(self._plan, row.torch)
        if interpreter not in self._hosts:
            self._hosts[interpreter] = Host(self._plan.search, self._plan.imported, interpreter)
        host = self._hosts[interpreter]
        folder = self._store.working_folder(row)
        self._running[row.name] = (row, folder, host)
        self._used += row.cores
        with contextlib.suppress(OSError):  # the host has ended, which `collect` finds
            host.submit(row, folder)

    def collect(self) -> list[Outcome]:
        """Waits until rows have ended, and returns them."""
        hosts = {host.connection: host for host in self._hosts.values()}
        found = []
        for connection in wait(list(hosts)):
            host = hosts[connection]
            try:
                found.append(host.receive())
                while host.connection.poll():
                    found.append(host.receive())
            except EOFError:
                found += self._give_up(host)
        for outcome in found:
            row, folder, _ = self._running.pop(outcome.name)
            self._used -= row.cores
            self._store.finish(row, outcome, folder)
        return found

    def _give_up(self, host: Host) -> list[Outcome]:
        """Outcomes for the rows of a host that has ended; the next row starts another one."""
        self._hosts = {key: other for key, other in self._hosts.items() if other is not host}
        host.close()
        reason = "the process that rows are forked from has ended, as it does without memory"
        return [
            Outcome(row.name, LOST, reason=reason, machine=True)
            for row, _, of in self._running.values()
            if of is host
        ]

    def close(self) -> None:
        """Ends all rows that still run."""
        for host in self._hosts.values():
            host.close()
        self._hosts = {}


def _usable_cores() -> int:
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1
