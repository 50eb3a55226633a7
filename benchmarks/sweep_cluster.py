"""Sweeps 400 rows in local processes and on a cluster of Ray, of which parts are killed.

    python -m benchmarks.sweep_cluster

40 small models are exported at ten opsets, and verified: in local processes; once more with nothing
changed; on a cluster of two nodes with a core each; on one that loses a node after 120 rows; and by
a driver that is killed after 150 rows, whose sweep another one completes. Every way has to give the
results of the first. Results are written to ``benchmarks/results/sweep_cluster.json``.
Needs Ray: ``python -m pip install '.[ray]'``.
"""

from __future__ import annotations

import contextlib
import multiprocessing
import os
import sqlite3
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import torch

from benchmarks.results import machine, write_json
from onnx_aot import sweep
from onnx_aot.sweep.results import FILE

__all__ = ["main", "make_model"]

NAME = "sweep_cluster"
MODELS = 40
OPSETS = [11, 13, 15, 17, 18, 19, 20, 21, 22, 23]
KILL_NODE, KILL_DRIVER = 120, 150  # after so many rows


def make_model(width: int) -> tuple[torch.nn.Module, tuple[torch.Tensor]]:
    """A small network, and its input."""
    layers = torch.nn.Linear(8, width), torch.nn.ReLU(), torch.nn.Linear(width, 4)
    return torch.nn.Sequential(*layers).eval(), (torch.randn(2, 8),)


def _write_plan(folder: Path) -> str:
    functions = (
        f"def model_{number}():\n    return make_model({8 + number})\n" for number in range(MODELS)
    )
    source = "from benchmarks.sweep_cluster import make_model\n\n" + "\n".join(functions)
    (folder / "many_models.py").write_text(source)
    plan = folder / "plan.toml"
    plan.write_text(f'[matrix]\nopset = {OPSETS}\n\n[[models]]\nfactory = "many_models:model_*"\n')
    return str(plan)


@contextlib.contextmanager
def _cluster() -> Iterator[tuple[Any, Any]]:
    """A cluster, and its second node."""
    import ray
    from ray.cluster_utils import Cluster

    head = {"num_cpus": 1, "include_dashboard": False}
    cluster = Cluster(initialize_head=True, head_node_args=head)
    try:
        yield cluster, cluster.add_node(num_cpus=1)
    finally:
        ray.shutdown()
        cluster.shutdown()


def _wait_for_rows(folder: str, rows: int) -> None:
    path = Path(folder, FILE).resolve()
    while not path.exists() or _count_rows(path) < rows:
        time.sleep(0.1)


def _count_rows(path: Path) -> int:
    with contextlib.closing(sqlite3.connect(f"{path.as_uri()}?mode=ro", uri=True)) as file:
        try:
            return int(file.execute("select count(*) from results").fetchone()[0])
        except sqlite3.OperationalError:  # there is no table yet, or a row is being written
            return 0


def _sweep(plan: str, folder: str, **options: Any) -> tuple[float, list[tuple[str, ...]]]:
    """Sweeps; returns the seconds, and what each row gave."""
    begun = time.perf_counter()
    done = sweep.run(plan, folder, progress=False, **options)
    seconds = time.perf_counter() - begun
    return seconds, sorted((r.name, r.status, r.stage, r.reason, r.key) for r in done.results)


def _sweep_on_cluster(plan: str, folder: str, resume: bool = False) -> Any:
    with _cluster() as (cluster, _):
        return _sweep(plan, folder, ray=cluster.address, resume=resume)


def _sweep_with_lost_node(plan: str, folder: str) -> Any:
    with _cluster() as (cluster, second):

        def kill() -> None:
            _wait_for_rows(folder, KILL_NODE)
            cluster.remove_node(second, allow_graceful=False)

        killer = threading.Thread(target=kill, daemon=True)
        killer.start()
        found = _sweep(plan, folder, ray=cluster.address)
        killer.join()
        return found


def _sweep_with_lost_driver(plan: str, folder: str) -> Any:
    with _cluster() as (cluster, _):
        options = {"ray": cluster.address, "progress": False}
        process = multiprocessing.get_context("spawn").Process(
            target=sweep.run, args=(plan, folder), kwargs=options
        )
        process.start()
        _wait_for_rows(folder, KILL_DRIVER)
        process.kill()
        process.join()
        return _sweep(plan, folder, ray=cluster.address, resume=True)


def main() -> None:
    """Measures, writes the results, and prints them."""
    ways: dict[str, Callable[[str], Any]] = {
        "local": lambda plan: _sweep(plan, "local"),
        "local, nothing changed": lambda plan: _sweep(plan, "local", resume=True),
        "cluster": lambda plan: _sweep_on_cluster(plan, "cluster"),
        f"cluster, node killed after {KILL_NODE}": lambda plan: _sweep_with_lost_node(plan, "node"),
        f"cluster, driver killed after {KILL_DRIVER}": (
            lambda plan: _sweep_with_lost_driver(plan, "driver")
        ),
    }
    found: dict[str, Any] = {"rows": MODELS * len(OPSETS), "seconds": {}, "same results": {}}
    root, before = str(Path(__file__).parents[1]), Path.cwd()
    first: Any = None
    with tempfile.TemporaryDirectory() as folder:
        os.chdir(folder)
        os.environ["PYTHONPATH"] = os.pathsep.join((root, folder))
        plan = _write_plan(Path(folder))
        for name, run in ways.items():
            seconds, results = run(plan)
            first = first or results
            assert len({row[0] for row in results}) == len(results) == found["rows"]
            found["seconds"][name] = round(seconds, 1)
            found["same results"][name] = results == first
            print(f"{name}: {seconds:.1f} s, same results: {results == first}", flush=True)
        os.chdir(before)
    write_json(NAME, {"machine": machine(), **found})


if __name__ == "__main__":
    main()
