"""A row that crashes, hangs or takes too much memory is named, and the others are right."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from onnx_aot.errors import SweepError
from onnx_aot.sweep import Limits, Row
from onnx_aot.sweep.host import Host
from onnx_aot.sweep.rows import Outcome


@pytest.fixture
def host(folder: Path) -> Iterator[Host]:
    made = Host([str(folder)])
    yield made
    made.close()


def _run(host: Host, *rows: Row) -> dict[str, Outcome]:
    for row in rows:
        host.submit(row, f"files/{row.name}")
    outcomes = [host.receive() for _ in rows]
    return {outcome.name: outcome for outcome in outcomes}


def _row(task: str, seconds: float = 60, memory: int | None = None) -> Row:
    return Row(task, task=f"swept_tasks:{task}", limits=Limits(seconds, memory))


def test_each_ending_is_named(host: Host) -> None:
    found = _run(
        host,
        _row("right"),
        _row("refuse"),
        _row("fail"),
        _row("crash"),
        _row("leave"),
        _row("hang", seconds=2),
        _row("eat", memory=800_000_000),
        _row("eat_at_once", memory=800_000_000),
        Row("nobody", task="swept_tasks:nobody"),
    )
    assert {name: (outcome.status, outcome.stage) for name, outcome in found.items()} == {
        "right": ("right", "thinking"),
        "refuse": ("wrong", ""),
        "fail": ("failed", ""),
        "crash": ("crashed", "reading"),
        "leave": ("crashed", ""),
        "hang": ("time", "waiting"),
        "eat": ("memory", "eating"),
        "eat_at_once": ("memory", ""),
        "nobody": ("refused", ""),
    }
    assert found["right"].metrics == {"nodes": 3, "answer": 42}
    assert found["right"].peak_memory > 10_000_000
    assert found["fail"].error == "KeyError"
    assert found["crash"].reason == "the process ended by SIGSEGV in reading"
    assert found["leave"].reason == "the process ended with exit code 3 and no result"
    assert found["hang"].reason == "takes longer than 2 s in waiting"
    assert "its limit of 0.80 GB in eating" in found["eat"].reason
    assert "swept_tasks has no 'nobody'" in found["nobody"].reason
    assert not any(outcome.machine for outcome in found.values())


def test_output_and_stacks_are_kept(host: Host) -> None:
    _run(host, _row("fail"), _row("crash"), _row("hang", seconds=1))
    assert Path("files/fail/log.txt").read_text() == "printed before\n"
    assert "KeyError" in Path("files/fail/stack.txt").read_text()
    assert "in crash" in Path("files/crash/stack.txt").read_text()
    assert "in hang" in Path("files/hang/stack.txt").read_text()


def test_processes_that_a_row_leaves_behind_end(host: Host) -> None:
    before = {child.pid for child in psutil.Process().children(recursive=True)}
    assert _run(host, _row("start_others"))["start_others"].status == "right"
    deadline = time.monotonic() + 10
    while time.monotonic() < deadline:
        left = [
            child
            for child in psutil.Process().children(recursive=True)
            if child.pid not in before and child.status() != psutil.STATUS_ZOMBIE
        ]
        if len(left) <= 1:  # the host itself
            return
        time.sleep(0.05)
    pytest.fail(f"{left} are left")


def test_rows_end_with_the_host(host: Host) -> None:
    host.submit(_row("hang"), "files/hang")
    log = Path("files/hang/log.txt")
    while not log.exists():
        time.sleep(0.02)
    running = psutil.Process().children(recursive=True)
    host.close()
    _, alive = psutil.wait_procs(running, timeout=10)
    assert not alive


def test_a_module_that_cannot_be_imported(folder: Path) -> None:
    with pytest.raises(SweepError, match=r"nothing_like_it of the plan's preload cannot"):
        Host([str(folder)], ["nothing_like_it"]).wait_until_ready()


def test_an_interpreter_without_the_package(folder: Path) -> None:
    python = folder / "python"
    python.write_text("#!/bin/sh\nexit 1\n")
    python.chmod(0o755)
    with pytest.raises(SweepError, match=r"does not run onnx_aot.sweep.*Install onnx-aot\[sweep\]"):
        Host([], interpreter=str(python)).wait_until_ready()
