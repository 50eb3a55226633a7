"""Runs rows on a cluster of Ray: a task per row, which forks the process of the row on its node.

A row is held to its limits by the same ``Host`` as on one machine; Ray places it by its cores,
memory and GPUs, installs its environment, and gives it to another node if its own dies.
"""

from __future__ import annotations

import os
import shutil
import socket
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from onnx_aot.errors import InvalidOptionError, SweepError
from onnx_aot.sweep.artifacts import Store, tidy
from onnx_aot.sweep.engine import is_installed
from onnx_aot.sweep.host import Host
from onnx_aot.sweep.plan import Plan
from onnx_aot.sweep.rows import LOST, Outcome, Row

__all__ = ["RayEngine", "runtime_env_of"]

RETRIES = 3
"""Times that Ray gives a row to another node or worker if its own dies."""

QUEUED = 4
"""Rows per core that are given to Ray ahead of time; more would only fill its memory."""

REACH = 10.0  # seconds to reach the cluster
PATIENCE = 1.0  # seconds that one call of `collect` waits


class RayEngine:
    """Runs rows on a cluster.

    Args:
        plan: The plan.
        store: Where the files of rows go. Those for a folder travel to the driver.
        address: Address of the cluster, or ``"auto"`` for the one that this machine belongs to.

    Raises:
        InvalidOptionError: Ray is not installed.
        SweepError: There is no cluster, or no node of it can run a row of the plan.
    """

    def __init__(self, plan: Plan, store: Store, address: str = "auto") -> None:
        try:
            import ray
        except ImportError:
            raise InvalidOptionError(
                "--ray needs Ray: python -m pip install 'onnx-aot[ray]'", code="OA802"
            ) from None
        self._ray, self._plan, self._store = ray, plan, store
        self._connected = not ray.is_initialized()
        if self._connected:
            try:
                _check_reachable(address)  # Ray itself would try for minutes
                ray.init(address=address, log_to_driver=False, logging_level="ERROR")
            except (OSError, ValueError, RuntimeError) as error:
                raise SweepError(
                    f"no cluster of Ray answers at {address}: {error}. Start one with ray start "
                    "--head, or leave --ray out to use this machine alone"
                ) from None
        self._running: dict[Any, Row] = {}
        try:
            self._check_resources()
        except SweepError:
            self.close()
            raise
        self._task = ray.remote(run_on_node)
        self._cores = max(1, int(ray.cluster_resources().get("CPU", 1)))

    def _check_resources(self) -> None:
        """Refuses a row that no node could ever run: Ray would let it wait for ever."""
        nodes = [node["Resources"] for node in self._ray.nodes() if node["Alive"]]
        for row in self._plan.rows:
            wanted = {"CPU": row.cores, "GPU": row.gpus, "memory": row.limits.memory or 0}
            if not any(all(node.get(k, 0) >= v for k, v in wanted.items()) for node in nodes):
                raise SweepError(
                    f"no node of the cluster has {row.cores} cores, {row.gpus:g} GPUs and "
                    f"{(row.limits.memory or 0) / 1e9:g} GB of memory for the row {row.name!r}. "
                    "Lower its resources and limits in the plan, or start a larger node"
                )

    @property
    def description(self) -> str:
        """Name of the engine with its size."""
        nodes = sum(node["Alive"] for node in self._ray.nodes())
        return f"Ray {self._ray.__version__}, {nodes} nodes, {self._cores} cores"

    def has_room(self, row: Row) -> bool:  # noqa: ARG002
        """True as long as Ray has few rows waiting."""
        return len(self._running) < QUEUED * self._cores

    def submit(self, row: Row) -> None:
        """Gives a row to Ray."""
        options: dict[str, Any] = {"num_cpus": row.cores, "max_retries": RETRIES, "name": row.name}
        if row.gpus:
            options["num_gpus"] = row.gpus
        if row.limits.memory:
            options["memory"] = row.limits.memory
        if environment := runtime_env_of(self._plan, row.torch):
            options["runtime_env"] = environment
        address = self._store.address if self._store.remote else ""
        named = self._plan.environments.get(row.torch)
        reference = self._task.options(**options).remote(
            row.to_json(),
            list(self._plan.search),
            list(self._plan.imported),
            named if isinstance(named, str) else "",
            address,
        )
        self._running[reference] = row

    def collect(self) -> list[Outcome]:
        """Waits until rows have ended, and returns them."""
        some = len(self._running)
        ended, _ = self._ray.wait(list(self._running), num_returns=1, timeout=PATIENCE)
        if ended and some > 1:  # those that have ended too
            ended, _ = self._ray.wait(list(self._running), num_returns=some, timeout=0)
        found = []
        for reference in ended:
            row = self._running.pop(reference)
            try:
                outcome = Outcome(**self._ray.get(reference))
            except self._ray.exceptions.RayError as error:
                reason = f"{type(error).__name__}: {error}"
                outcome = Outcome(row.name, LOST, reason=reason[:4000], machine=True)
                with tempfile.TemporaryDirectory() as folder:
                    tidy(row, outcome, folder, self._store.search)
                    outcome.files = _read_files(folder)
                    if self._store.remote:
                        self._store.upload(row, folder)
            self._store.unpack(row, outcome)
            found.append(outcome)
        return found

    def close(self) -> None:
        """Ends all rows that still run, and leaves the cluster if this engine entered it."""
        for reference in self._running:
            self._ray.cancel(reference, force=True)
        self._running = {}
        if self._connected:
            self._ray.shutdown()


def _check_reachable(address: str) -> None:
    """Raises OSError if nothing listens at ``host:port`` or ``ray://host:port``."""
    host, colon, port = address.rpartition("://")[2].rpartition(":")
    if colon and port.isdigit():
        socket.create_connection((host.strip("[]"), int(port)), timeout=REACH).close()


def runtime_env_of(plan: Plan, release: str) -> dict[str, Any]:
    """Ray's environment for a release of torch: the plan's, with the requirements of the release.

    A release that is not installed and that the plan does not describe is installed by its number.
    An interpreter needs none: the node starts the row with it.
    """
    found = dict(plan.runtime_env)
    described: str | Sequence[str] = plan.environments.get(
        release, [] if is_installed(release) else [f"torch=={release}"]
    )
    if isinstance(described, str) or not described:
        return found
    key = "uv" if "uv" in found else "pip"
    others = found.get(key, [])
    return {**found, key: [*described, *others]}


# --- on a node -----------------------------------------------------------------------------------

_HOSTS: dict[tuple[str, ...], Host] = {}


def run_on_node(
    row: Mapping[str, Any], search: list[str], preload: list[str], interpreter: str, address: str
) -> dict[str, Any]:
    """Runs a row on the node of this task; the host stays for the next row of the same worker."""
    import dataclasses

    made = Row.from_json(row)
    key = (interpreter, *search, "", *preload)
    if key not in _HOSTS:
        _HOSTS[key] = Host(search, preload, interpreter)
    host = _HOSTS[key]
    folder = tempfile.mkdtemp(prefix="onnx-aot-sweep-")
    try:
        host.submit(made, folder, _gpus_of_this_task())
        outcome = host.receive()
    except (EOFError, OSError):
        del _HOSTS[key]
        host.close()
        reason = "the process that rows are forked from has ended, as it does without memory"
        outcome = Outcome(made.name, LOST, reason=reason, machine=True)
    try:
        tidy(made, outcome, folder, search)
        if address:
            Store(address).upload(made, folder)
        else:
            outcome.files = _read_files(folder)
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    return dataclasses.asdict(outcome)


def _gpus_of_this_task() -> dict[str, str]:
    """Ray's choice of GPUs, which the host, started for an earlier task, does not know."""
    name = "CUDA_VISIBLE_DEVICES"
    return {name: os.environ[name]} if name in os.environ else {}


def _read_files(folder: str) -> dict[str, bytes]:
    if not os.path.isdir(folder):
        return {}
    return {path.name: path.read_bytes() for path in Path(folder).iterdir() if path.is_file()}
