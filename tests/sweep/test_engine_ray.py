"""A cluster of two nodes on this machine: the same results, also if a node dies."""

from __future__ import annotations

import dataclasses
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from onnx_aot.errors import SweepError
from onnx_aot.sweep import Limits, Plan, Result, Row, run
from onnx_aot.sweep.engine_ray import runtime_env_of
from tests.sweep.conftest import make_plan

pytestmark = pytest.mark.filterwarnings("ignore")  # Ray's own

ROOT = str(Path(__file__).parents[2])


@pytest.fixture(scope="module")
def cluster() -> Iterator[Any]:
    """A head with one core; started once, since that takes longest."""
    ray = pytest.importorskip("ray")
    from ray.cluster_utils import Cluster

    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PYTHONPATH", ROOT)
        patch.setenv("RAY_raylet_start_wait_time_s", "180")  # other tests may share the cores
        made = Cluster(
            initialize_head=True, head_node_args={"num_cpus": 1, "include_dashboard": False}
        )
        yield made
        ray.shutdown()
        made.shutdown()


@pytest.fixture
def second_node(cluster: Any) -> Iterator[Any]:
    """Another node with one core."""
    made = cluster.add_node(num_cpus=1)
    yield made
    if made in cluster.worker_nodes:
        cluster.remove_node(made, allow_graceful=False)


def _told(result: Result) -> tuple[str, ...]:
    return (result.name, result.status, result.stage, result.reason, result.key)


def test_a_cluster_gives_the_same_results(cluster: Any, second_node: Any, folder: Path) -> None:
    tasks = ("right", "refuse", "fail", "crash", "leave", "hang", "eat")
    plan = make_plan(*tasks, limits=Limits(3, 800_000_000))
    local = run(plan, "local", progress=False)
    clustered = run(plan, "clustered", ray=cluster.address, progress=False)
    assert list(map(_told, clustered.results[:-1])) == list(map(_told, local.results[:-1]))
    assert clustered.results[-1].status == local.results[-1].status == "memory"
    report = Path("clustered", "rows", "crash", "report.md")
    assert "SIGSEGV" in report.read_text()
    stored = run(plan, "stored", ray=cluster.address, progress=False, artifacts=folder.as_uri())
    assert (folder / "fail" / "stack.txt").is_file()
    assert stored.counts == local.counts


def test_a_node_that_dies_loses_nothing(cluster: Any, second_node: Any, folder: Path) -> None:
    mark = folder / "ran"
    rows = [
        Row(
            f"row {number}",
            task="swept_tasks:slow",
            settings={"mark": str(mark), "name": f"row {number}", "seconds": 0.3},
        )
        for number in range(40)
    ]

    def kill_in_the_middle() -> None:
        while not mark.exists() or len(mark.read_text().splitlines()) < 12:
            time.sleep(0.02)
        cluster.remove_node(second_node, allow_graceful=False)

    killer = threading.Thread(target=kill_in_the_middle)
    killer.start()
    found = run(Plan(tuple(rows)), "out", ray=cluster.address, progress=False)
    killer.join()
    assert found.ok
    assert sorted(r.name for r in found.results) == sorted(row.name for row in rows)
    assert len({r.worker.rpartition(":")[2] for r in found.results}) > 1  # both nodes had rows
    assert set(mark.read_text().splitlines()) == {row.name for row in rows}


def test_rows_that_no_node_can_run(cluster: Any, folder: Path) -> None:
    with pytest.raises(SweepError, match="no node of the cluster has 64 cores, 0 GPUs"):
        run(make_plan("right", cores=64), "out", ray=cluster.address, progress=False)


@pytest.mark.usefixtures("folder")
def test_no_cluster() -> None:
    pytest.importorskip("ray")
    with pytest.raises(SweepError, match=r"no cluster of Ray answers at .* Start one with ray"):
        run(make_plan("right"), "out", ray="127.0.0.1:9", progress=False)


def test_environments_of_releases() -> None:
    plan = dataclasses.replace(
        make_plan("right"),
        environments={"2.14.1": ["torch==2.14.1", "onnx-aot"], "2.12.1": sys.executable},
        runtime_env={"pip": ["timm"], "env_vars": {"A": "1"}},
    )
    assert runtime_env_of(plan, "") == plan.runtime_env
    assert runtime_env_of(plan, "2.14.1")["pip"] == ["torch==2.14.1", "onnx-aot", "timm"]
    assert runtime_env_of(plan, "2.12.1") == plan.runtime_env  # the node starts the interpreter
    assert runtime_env_of(plan, "1.9.0")["pip"] == ["torch==1.9.0", "timm"]
