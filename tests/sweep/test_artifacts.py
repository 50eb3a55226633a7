"""Files of rows go to a folder or to a storage of fsspec."""

from __future__ import annotations

from pathlib import Path

import fsspec
import pytest

from onnx_aot.errors import InvalidOptionError, SweepError
from onnx_aot.sweep import run
from onnx_aot.sweep.artifacts import Store, tidy
from onnx_aot.sweep.rows import Outcome, Row
from tests.sweep.conftest import make_plan


def test_in_memory_and_on_a_local_file_system(folder: Path) -> None:
    for address in ("memory://sweeps/first", (folder / "stored").as_uri()):
        found = run(make_plan("right", "fail"), "out", artifacts=address, again=True)
        failed = found.results[1]
        assert failed.artifacts == f"{address}/fail"
        assert failed.metrics["files"] == ["log.txt", "repeat.py", "report.md", "stack.txt"]
        system, path = fsspec.core.url_to_fs(failed.artifacts)
        names = sorted(name.rpartition("/")[2] for name in system.ls(path, detail=False))
        assert names == failed.metrics["files"]
        assert "no such weight" in system.cat_file(f"{path}/report.md").decode()
    assert not (folder / "out" / "rows").exists()


def test_a_later_try_replaces_the_files(tmp_path: Path) -> None:
    store = Store("memory://sweeps/again")
    row = Row("a")
    (tmp_path / "old.txt").write_text("1")
    store.upload(row, str(tmp_path))
    (tmp_path / "old.txt").rename(tmp_path / "new.txt")
    store.upload(row, str(tmp_path))
    system = fsspec.filesystem("memory")
    found = [name.rpartition("/")[2] for name in system.ls(store.place_of(row), detail=False)]
    assert found == ["new.txt"]


def test_an_unknown_storage() -> None:
    with pytest.raises(InvalidOptionError, match=r"artifacts cannot go to nowhere://a: .* Give a"):
        Store("nowhere://a")


def test_files_from_another_machine(tmp_path: Path) -> None:
    store = Store(str(tmp_path / "rows"))
    outcome = Outcome("a", "failed", files={"report.md": b"why"})
    store.unpack(Row("a"), outcome)
    assert (tmp_path / "rows" / "a" / "report.md").read_bytes() == b"why"
    assert outcome.files == {}


def test_what_stays_of_a_row(tmp_path: Path) -> None:
    for name in ("log.txt", "stack.txt"):
        (tmp_path / name).write_text("")
    outcome = Outcome("a", "right")
    tidy(Row("a"), outcome, str(tmp_path), [])
    assert not tmp_path.exists()
    assert "files" not in outcome.metrics
    tidy(Row("a"), Outcome("a", "crashed", reason="by a signal"), str(tmp_path), [])
    assert "by a signal" in (tmp_path / "report.md").read_text()
    assert (tmp_path / "repeat.py").is_file()


def test_a_place_that_takes_no_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store = Store("memory://sweeps/full")
    (tmp_path / "log.txt").write_text("1")

    def upload(self: Store, row: Row, folder: str) -> None:
        raise OSError("no space left")

    monkeypatch.setattr(Store, "upload", upload)
    with pytest.raises(SweepError, match=r"files of a cannot be written .*: no space left\. Make"):
        store.finish(Row("a"), Outcome("a", "right"), str(tmp_path))
