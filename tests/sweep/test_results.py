"""The file of results: its tables, what was before a run, and Parquet."""

from __future__ import annotations

import sqlite3
from pathlib import Path

import pytest

from onnx_aot.errors import InvalidOptionError, SweepError
from onnx_aot.sweep.page import write_page
from onnx_aot.sweep.results import COLUMNS, FILE, Results
from onnx_aot.sweep.rows import Outcome, Row

COLUMNS_OF_VERSION_1 = """
position model options name run key status stage error reason attempts started seconds
cpu_seconds peak_memory worker limit_seconds limit_memory export_seconds nodes bytes latency_ms
max_absolute metrics artifacts
"""


def _add(results: Results, run: int, name: str, status: str = "right", **metrics: object) -> None:
    outcome = Outcome(name, status, metrics=dict(metrics))
    results.add(run, Row(name), "key", outcome, 1, "rows")


def _begin(results: Results, *names: str, resume: bool = False) -> int:
    rows = [(Row(name, options={"opset": 18}), "key") for name in names]
    return results.begin_run("plan", "engine", {"torch": "2"}, rows, 0, resume)


def test_the_schema_is_stable(tmp_path: Path) -> None:
    """Columns may be added at the end; tools read those that are there."""
    with Results(tmp_path, create=True) as results:
        run = _begin(results, "a")
        _add(results, run, "a", nodes=3, other=1)
    with sqlite3.connect(tmp_path / FILE) as db:
        cursor = db.execute("SELECT * FROM current")
        names = [column[0] for column in cursor.description]
        assert names == COLUMNS_OF_VERSION_1.split()
        line = dict(zip(names, cursor.fetchone(), strict=True))
    db.close()
    assert set(names) == set(COLUMNS)
    assert (line["nodes"], line["metrics"], line["options"]) == (3, '{"other": 1}', '{"opset": 18}')


def test_what_was_before_a_run(tmp_path: Path) -> None:
    with Results(tmp_path, create=True) as results:
        first = _begin(results, "a", "b", "c")
        for name in "abc":
            _add(results, first, name)
        results.end_run(first)
        second = _begin(results, "a", "b")
        _add(results, second, "a", "wrong")
        assert {r.name: r.status for r in results.current()} == {"a": "wrong", "b": "right"}
        assert {r.name for r in results.before(second)} == {"a", "b", "c"}  # c has just gone
        third = _begin(results, "a", "b")
        assert {r.name: r.status for r in results.before(third)} == {"a": "wrong", "b": "right"}
        assert results.counts() == {"right": 1, "wrong": 1}


def test_an_interrupted_run_goes_on_under_its_number(tmp_path: Path) -> None:
    with Results(tmp_path, create=True) as results:
        run = _begin(results, "a", "b")
        _add(results, run, "a", "wrong")
        assert _begin(results, "a", "b", resume=True) == run
        _add(results, run, "a")
        results.end_run(run)
        assert [r.status for r in results.current()] == ["right"]
        assert _begin(results, "a", "b", resume=True) == run + 1


def test_files_that_cannot_be_read(tmp_path: Path) -> None:
    with pytest.raises(InvalidOptionError, match=r"there is no sweep in .*sweep.sqlite is missing"):
        Results(tmp_path)
    (tmp_path / FILE).write_text("not a database, but long enough to look at" * 9)
    with pytest.raises(SweepError, match=r"cannot be read: .* Move the file away"):
        Results(tmp_path)
    (tmp_path / FILE).unlink()
    with sqlite3.connect(tmp_path / FILE) as db:
        db.execute("PRAGMA user_version = 9")
    db.close()
    with pytest.raises(SweepError, match="tables of version 9; this release reads version 1"):
        Results(tmp_path)


def test_a_page_shows_figures_that_json_does_not_have(tmp_path: Path) -> None:
    with Results(tmp_path, create=True) as results:
        run = _begin(results, "a")
        _add(results, run, "a", error=float("nan"), worst=[1.5, float("-inf")])
        write_page(results, tmp_path / "index.html")
    text = (tmp_path / "index.html").read_text(encoding="utf-8")
    assert '"metrics":{"error":"nan","worst":[1.5,"-inf"]}' in text


def test_parquet(tmp_path: Path) -> None:
    parquet = pytest.importorskip("pyarrow.parquet")
    with Results(tmp_path, create=True) as results:
        run = _begin(results, "a", "b")
        _add(results, run, "a", nodes=3)
        _add(results, run, "b", "failed")
        results.write_parquet(tmp_path / "sub" / "sweep.parquet")
    table = parquet.read_table(tmp_path / "sub" / "sweep.parquet").to_pydict()
    assert table["name"] == ["a", "b"]
    assert table["nodes"] == [3, None]
    assert table["options"] == ['{"opset": 18}'] * 2
