"""The journal of a save: what it remembers, and who holds it."""

from __future__ import annotations

import json
import threading
from pathlib import Path

import pytest
import torch

import onnx_aot
from onnx_aot.serialization import journal as journals
from onnx_aot.serialization.journal import journal_of

X = torch.ones(2, 64)


@pytest.fixture(scope="module")
def program() -> onnx_aot.ONNXProgram:
    return onnx_aot.export(torch.nn.Linear(64, 64), (X,))


def identity(path: Path) -> list[int]:
    found = path.stat()
    return [found.st_ino, found.st_size, found.st_mtime_ns]


def test_only_data_files_of_the_model_that_are_still_the_same_go(
    program: onnx_aot.ONNXProgram, tmp_path: Path
) -> None:
    """A journal that somebody else wrote cannot have other files removed."""
    path = tmp_path / "model.onnx"
    names = ["model.onnx.data", "model.safetensors", "notes.txt", "other.onnx.data"]
    for name in names:
        (tmp_path / name).write_bytes(b"contents")
    outside = tmp_path.parent / f"{tmp_path.name}.data"
    outside.write_bytes(b"contents")
    known = {name: identity(tmp_path / name) for name in names}
    known["model.safetensors"][2] += 1  # it has been written since
    known[f"../{outside.name}"] = identity(outside)
    (tmp_path / ".model.onnx.saving").write_text(json.dumps(known))
    program.save(path)
    left = sorted(file.name for file in tmp_path.iterdir())
    assert left == ["model.onnx", "model.safetensors", "notes.txt", "other.onnx.data"]
    assert outside.exists()


@pytest.mark.parametrize(
    "text", ["", "{", "[1]", "[" * 100_000, '{"model.onnx.data": 5}', '{"": 0}']
)
def test_a_journal_that_is_not_one(
    text: str, program: onnx_aot.ONNXProgram, tmp_path: Path
) -> None:
    (tmp_path / ".model.onnx.saving").write_text(text)
    (tmp_path / "model.onnx.data").write_bytes(b"of somebody")
    program.save(tmp_path / "model.onnx")
    assert sorted(file.name for file in tmp_path.iterdir()) == ["model.onnx", "model.onnx.data"]


def test_one_save_at_a_time_holds_it(tmp_path: Path) -> None:
    path, seen = str(tmp_path / "model.onnx"), []

    def wait() -> None:
        with journal_of(path):
            seen.append("second")

    with journal_of(path):
        thread = threading.Thread(target=wait)
        thread.start()
        thread.join(0.1)
        seen.append("first")
    thread.join()
    assert seen == ["first", "second"]
    assert not list(tmp_path.iterdir())


def test_file_systems_without_locks(
    program: onnx_aot.ONNXProgram, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Saves succeed, but nothing can be told to be a leftover."""
    monkeypatch.setattr(journals, "fcntl", None)
    leftover = tmp_path / ".model.onnx.0123456789ab.tmp"
    leftover.touch()
    for external_data in (True, False, True):
        program.save(tmp_path / "model.onnx", external_data=external_data)
    assert leftover.exists()
    assert len(list(tmp_path.iterdir())) == 3
