"""A sweep from its plan to its folder: what runs, what is skipped, what is tried again."""

from __future__ import annotations

import dataclasses
import importlib
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from onnx_aot.errors import InvalidOptionError, SweepError
from onnx_aot.sweep import Limits, Plan, Results, Row, Sweep, run
from onnx_aot.sweep.runner import _locked
from tests.sweep.conftest import make_plan

ROOT = str(Path(__file__).parents[2])


def _statuses(sweep: Sweep) -> dict[str, str]:
    return {result.name: result.status for result in sweep.results}


def test_exports_of_a_plan(folder: Path) -> None:
    plan = {
        "limits": {"seconds": 120},
        "models": [
            {
                "factory": "swept_models:encoder",
                "inputs": ["ids:int64[batch,seq]=0..99"],
                "matrix": {"dynamic": [True, False]},
                "keep": "always",
            },
            {"factory": "swept_models:mlp", "checks": {"latency": True, "view": True}},
            {"factory": "swept_models:mlp", "name": "checked", "checks": {
                "verify": False, "call": ["swept_models:differs"]}},
            {"factory": "swept_models:mlp", "name": "half", "matrix": {"dtype": "float16"}},
            {"factory": "swept_models:gate"},
            {"factory": "swept_models:encoder", "name": "without inputs"},
        ],
    }  # fmt: skip
    found = run(plan, "out", jobs=2, progress=False)
    assert _statuses(found) == {
        "swept_models:encoder[dynamic=true]": "right",
        "swept_models:encoder[dynamic=false]": "right",
        "swept_models:mlp": "right",
        "checked": "wrong",
        "half": "right",
        "swept_models:gate": "refused",
        "without inputs": "refused",
    }
    by_name = {result.name: result for result in found.results}
    dynamic = by_name["swept_models:encoder[dynamic=true]"]
    static = by_name["swept_models:encoder[dynamic=false]"]
    assert dynamic.metrics["sizes"] > static.metrics["sizes"] == 1
    assert dynamic.nodes
    assert dynamic.bytes
    assert dynamic.metrics["files"] == ["model.onnx", "report.md"]
    assert by_name["swept_models:mlp"].latency_ms
    assert by_name["swept_models:mlp"].metrics["files"] == ["report.md", "view.html"]
    assert by_name["checked"].reason == "swept_models:differs: it is a Tuesday"
    assert by_name["checked"].metrics["asked"] == 1
    assert "has no inputs for swept_models:encoder" in by_name["without inputs"].reason
    gate = Path(by_name["swept_models:gate"].artifacts)
    assert {path.name for path in gate.iterdir()} == {"report.md", "stack.txt", "repeat.py"}
    done = subprocess.run(
        [sys.executable, str(gate / "repeat.py")],
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, "PYTHONPATH": ROOT},
    )
    assert "the model could not be captured" in done.stderr
    assert not found.ok
    assert "4 of 7 rows are right" in found.to_markdown()
    assert Path("out/index.html").stat().st_size > 10_000


@pytest.mark.usefixtures("in_process")
def test_unchanged_rows_are_skipped(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    plan = make_plan("right", "refuse")
    first = run(plan, "out", progress=False)
    assert (first.ran, first.skipped, first.run) == (2, 0, 1)
    second = run(plan, "out", progress=False)
    assert (second.ran, second.skipped) == (0, 2)
    assert second.results == first.results
    assert run(plan, "out", resume=True, progress=False).ran == 1  # the one that is not right
    assert run(plan, "out", again=True, progress=False).ran == 2
    tasks = folder / "swept_tasks.py"
    tasks.write_text(tasks.read_text().replace("off by one", "off by two"))
    monkeypatch.delitem(sys.modules, "swept_tasks")
    importlib.invalidate_caches()
    fourth = run(plan, "out", progress=False)
    assert fourth.ran == 2
    assert [(change.name, change.kind) for change in fourth.difference.changes] == [
        ("refuse", "changed")
    ]


@pytest.mark.usefixtures("in_process", "folder")
@pytest.mark.parametrize("status", ["time", "memory"])
def test_another_limit_runs_a_row_again(status: str) -> None:
    plan = make_plan("refuse", settings={"status": status}, limits=Limits(5, 100))
    assert _statuses(run(plan, "out", progress=False)) == {"refuse": status}
    assert run(plan, "out", progress=False).ran == 0
    limits = Limits(6, 200)
    changed = make_plan("refuse", settings={"status": status}, limits=limits)
    assert run(changed, "out", progress=False).ran == 1


def test_a_row_is_tried_again_where_it_may_be_the_machine(folder: Path) -> None:
    row = Row("killed", task="swept_tasks:once_killed", settings={"mark": str(folder / "mark")})
    found = run(Plan((row,)), "out", progress=False)
    assert [(result.status, result.attempts) for result in found.results] == [("right", 2)]


def _slow_plan(folder: Path, count: int) -> Plan:
    rows = [
        Row(
            f"row {number}",
            task="swept_tasks:slow",
            settings={"mark": str(folder / "ran"), "name": f"row {number}"},
        )
        for number in range(count)
    ]
    return Plan(tuple(rows))


DRIVER = """
from pathlib import Path
from onnx_aot.sweep import run
from tests.sweep.test_runner import _slow_plan
run(_slow_plan(Path.cwd(), 30), "out", jobs=2)
"""


def test_a_driver_that_is_killed_is_resumed(folder: Path) -> None:
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([ROOT, str(folder)])}
    driver = subprocess.Popen(
        [sys.executable, "-c", DRIVER], env=environment, stderr=subprocess.DEVNULL
    )
    ran = folder / "ran"
    while not ran.exists() or len(ran.read_text().split("\n")) < 10:
        time.sleep(0.02)
        assert driver.poll() is None
    driver.send_signal(signal.SIGKILL)
    driver.wait()
    with Results("out") as results:
        kept = len(list(results.current()))
        (unfinished,) = results.runs()
    assert 0 < kept < 30
    assert unfinished["ended"] is None
    found = run(_slow_plan(folder, 30), "out", resume=True, progress=False)
    assert found.ok
    assert len(found.results) == 30
    assert (found.run, found.skipped) == (1, kept)
    with Results("out") as results:
        assert [r["ended"] is not None for r in results.runs()] == [True]


def test_two_sweeps_in_one_folder(folder: Path) -> None:
    (folder / "out").mkdir()
    message = r"another sweep is writing to .*out\. Wait"
    with _locked(str(folder / "out")), pytest.raises(SweepError, match=message):
        run(make_plan("right"), "out", progress=False)


def test_a_release_that_is_not_there(folder: Path) -> None:
    plan = make_plan("right", torch="1.0.0")
    with pytest.raises(InvalidOptionError, match=r"want torch 1.0.0, and .* is installed. Name"):
        run(plan, "out", progress=False)
    named = dataclasses.replace(plan, environments={"1.0.0": sys.executable})
    found = run(named, "out", progress=False)
    assert found.ok


def test_options_that_do_not_fit(folder: Path) -> None:
    with pytest.raises(InvalidOptionError, match="jobs=0 is not a positive number"):
        run(make_plan("right"), "out", jobs=0)
    (folder / "taken").write_text("")
    with pytest.raises(InvalidOptionError, match="cannot write to taken"):
        run(make_plan("right"), "taken")


def test_progress_is_a_line_per_row_where_there_is_no_terminal(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run(make_plan("right", "refuse"), "out", jobs=1)
    lines = capsys.readouterr().err.splitlines()
    assert lines[0] == "2 rows to run, 0 unchanged"
    assert lines[1].startswith("1/2 right ")
    assert lines[2].endswith("refuse  off by one")
