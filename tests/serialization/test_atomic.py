"""Saves that do not finish: killed, on a full disk, interrupted."""

from __future__ import annotations

import errno
import json
import os
import random
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch

import onnx_aot
from onnx_aot.errors import SaveError
from onnx_aot.serialization import atomic, mapped_tensor

TRIALS = int(os.environ.get("ONNX_AOT_KILLS", "12"))
WAYS = [False, True, "safetensors"]


@pytest.mark.skipif(not hasattr(os, "fork"), reason="the script forks")
def test_killed_at_random_points(tmp_path: Path) -> None:
    """Either the old or the new model is intact; kills interrupt saves in the middle."""
    script = Path(__file__).parent / "crashing.py"
    arguments = [str(tmp_path), str(TRIALS), str(random.randrange(999))]
    done = subprocess.run(
        [sys.executable, str(script), *arguments],
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path), "OMP_NUM_THREADS": "1"},
    )
    assert done.returncode == 0, f"{arguments}\n{done.stderr}"
    counts = json.loads(done.stdout)
    assert set(counts) == {"one file", "data", "shards"}
    for of_way in counts.values():
        assert of_way["old"] + of_way["new"] == TRIALS
        assert of_way["killed"] > 0


@pytest.fixture(scope="module")
def programs() -> list[onnx_aot.ONNXProgram]:
    return [
        onnx_aot.export(torch.nn.Sequential(torch.nn.Linear(64, w), torch.nn.Linear(w, 64)), (x,))
        for w, x in ((64, torch.ones(2, 64)), (65, torch.ones(2, 64)))
    ]


def contents(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.iterdir()}


@pytest.mark.parametrize("external_data", WAYS)
@pytest.mark.parametrize("room", [0, 1000, 20_000])
def test_a_disk_that_is_full_while_it_is_written(
    external_data: Any,
    room: int,
    programs: list[onnx_aot.ONNXProgram],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    path = tmp_path / "model.onnx"
    programs[0].save(path, external_data=external_data)
    before = contents(tmp_path)
    left = [room]
    write = mapped_tensor.Sink.write

    def limited(self: mapped_tensor.Sink, data: Any) -> int:
        left[0] -= memoryview(data).nbytes
        if left[0] < 0:
            raise OSError(errno.ENOSPC, "No space left on device")
        return write(self, data)

    monkeypatch.setattr(mapped_tensor.Sink, "write", limited)
    message = "No space left .* Nothing that was there has changed"
    with pytest.raises(SaveError, match=message):
        programs[1].save(path, external_data=external_data)
    assert contents(tmp_path) == before
    with pytest.raises(SaveError, match=message):
        programs[1].save(tmp_path / "other.onnx", external_data=external_data)
    assert contents(tmp_path) == before


@pytest.mark.parametrize("external_data", WAYS)
@pytest.mark.parametrize("nameless", [True, False])
@pytest.mark.parametrize("call", ["os.link", "os.replace"])
def test_a_failure_at_the_very_end(
    external_data: Any,
    nameless: bool,
    call: str,
    programs: list[onnx_aot.ONNXProgram],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Each call fails in turn: the first, the second, and so on."""
    if not nameless:
        monkeypatch.setattr(atomic, "_without_name", lambda _: None)
    path = tmp_path / "model.onnx"
    programs[0].save(path, external_data=external_data)
    before = contents(tmp_path)
    name = call.removeprefix("os.")
    original = getattr(os, name)
    left = [0]

    def fail(*args: Any, **kwargs: Any) -> Any:
        left[0] -= 1
        if left[0] < 0:
            raise OSError(errno.ENOSPC, "No space left on device")
        return original(*args, **kwargs)

    for succeed in range(4):
        left[0] = succeed
        with monkeypatch.context() as patch:
            patch.setattr(atomic.os, name, fail)
            try:
                programs[1].save(path, external_data=external_data)
            except SaveError:
                assert contents(tmp_path) == before
            else:  # there were fewer calls
                assert left[0] >= 0
                break
    assert succeed > 0 or (call == "os.link" and not nameless)


def test_files_without_names_are_used_where_there_are_some(
    programs: list[onnx_aot.ONNXProgram], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Unnamed files ensure that a process killed while writing leaves nothing behind."""
    seen: list[list[str]] = []
    write = mapped_tensor.Sink.write

    def observed(self: mapped_tensor.Sink, data: Any) -> int:
        seen.append(os.listdir(tmp_path))
        return write(self, data)

    monkeypatch.setattr(mapped_tensor.Sink, "write", observed)
    supported = atomic._without_name(str(tmp_path))
    programs[0].save(tmp_path / "model.onnx")
    assert seen
    if supported is not None:
        os.close(supported)
        assert not any(seen)
