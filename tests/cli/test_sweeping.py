"""``sweep`` and ``sweep diff``."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from onnx_aot.sweep import runner
from tests.cli.conftest import call
from tests.sweep.conftest import InProcess


@pytest.fixture
def swept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(runner, "_make_engine", lambda *_: InProcess(tmp_path))
    (tmp_path / "my_task.py").write_text("def go(settings, progress):\n    return settings\n")
    for name, status in (("good", "right"), ("bad", "wrong")):
        rows = [
            {"name": "a", "task": "my_task:go", "settings": {"status": status, "reason": name}},
            {"name": "b", "task": "my_task:go"},
        ]
        (tmp_path / f"{name}.json").write_text(json.dumps({"rows": rows}))
    return tmp_path


def test_sweeps_and_their_difference(swept: Path) -> None:
    done = call("sweep", "good.json", "-o", "one", "--markdown", "summary.md")
    assert done.exit_code == 0, done.output
    assert "2 rows: 2 right; 0 unchanged" in done.stdout
    assert "2 of 2 rows are right" in (swept / "summary.md").read_text()
    done = call("sweep", "-o", "two", "bad.json", "--json")
    assert done.exit_code == 1
    assert json.loads(done.stdout)["counts"] == {"wrong": 1, "right": 1}
    done = call("sweep", "diff", "one", "two", "--markdown", "diff.md")
    assert done.exit_code == 1
    assert done.stdout.splitlines()[-1] == "2 rows compared, 1 changes"
    assert "Newly broken" in (swept / "diff.md").read_text()
    assert call("sweep", "diff", "two", "one").exit_code == 0
    assert call("sweep", "diff", "two", "one", "--fail-on", "fixed,slower").exit_code == 1
    found = json.loads(call("sweep", "diff", "two", "one", "--json").stdout)
    assert found["changes"] == [{"name": "a", "kind": "fixed", "text": "was wrong: bad"}]


def test_a_sweep_lists_what_is_newly_broken(swept: Path) -> None:
    assert "newly broken" not in call("sweep", "good.json", "-o", "one").stdout
    done = call("sweep", "bad.json", "-o", "one")
    assert [line for line in done.stdout.splitlines() if line.startswith("newly broken")] == [
        "newly broken: a: wrong: bad"
    ]


def test_what_is_not_accepted(swept: Path) -> None:
    for arguments, message in (
        (["missing.toml", "-o", "out"], "there is no plan missing.toml"),
        (["good.json", "-o", "out", "--jobs", "0"], "not a positive number"),
        (["diff", "one", "none"], "there is no sweep in one"),
        (["diff", "one", "two", "--fail-on", "all"], "known are broken"),
    ):
        done = call("sweep", *arguments)
        assert done.exit_code == 2
        assert message in done.stderr


def test_an_interrupt(swept: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupt(*_: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr(InProcess, "submit", interrupt)
        done = call("sweep", "good.json", "-o", "one")
    assert done.exit_code == 130
    assert "interrupted: the results of the rows that have ended are in one" in done.stderr
    done = call("sweep", "good.json", "-o", "one")
    assert "2 rows: 2 right; 0 unchanged" in done.stdout


def test_help_has_both() -> None:
    done = call("sweep", "--help")
    assert "  diff " in done.stdout
    for command in ("run", "diff"):
        assert call("sweep", command, "--help").exit_code == 0
