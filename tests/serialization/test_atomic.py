"""Saves that do not finish or meet others: killed, interrupted, on a full disk, into a pipe."""

from __future__ import annotations

import errno
import json
import os
import random
import signal
import socket
import stat
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import onnxruntime
import pytest
import torch

import onnx_aot
from onnx_aot.errors import InvalidOptionError, SaveError
from onnx_aot.serialization import atomic, mapped_tensor

WAYS = [False, True, "safetensors"]


@pytest.mark.skipif(not hasattr(os, "fork"), reason="saves run in forks")
def test_interrupts_at_random_moments(tmp_path: Path) -> None:
    """Runs few of the saves of ``nox -s conformance``."""
    output, seed = tmp_path / "found.json", str(random.randrange(999))
    options = ["--trials", "6", "--seed", seed, "--output", str(output)]
    subprocess.run(
        [sys.executable, "-m", "conformance.interrupted_saves", *options],
        check=True,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path), "OMP_NUM_THREADS": "1"},
    )
    for found in json.loads(output.read_text())["forms"].values():
        assert found["old"] + found["new"] == 6
        assert found["lost"] == found["leftovers"] == 0


STEPS = ("link", "replace", "unlink", "ftruncate", "pwrite")
"""Functions of ``os`` through which the files of a save take their places."""


@pytest.mark.skipif(not hasattr(os, "fork"), reason="saves run in forks")
@pytest.mark.parametrize("external_data", WAYS)
@pytest.mark.parametrize("nameless", [True, False])
@pytest.mark.parametrize("after", [False, True])
def test_a_kill_at_every_step(
    external_data: Any,
    nameless: bool,
    after: bool,
    programs: list[onnx_aot.ONNXProgram],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Saves are killed before or after each call in turn; the next save leaves only its files."""
    if not nameless:
        monkeypatch.setattr(atomic, "_open_without_name", lambda _: None)
    for first in (None, programs[0]):
        for step in range(40):
            folder = tmp_path / f"{first is None}{step}"
            folder.mkdir()
            path = folder / "model.onnx"
            if first is not None:
                first.save(path, external_data=external_data)
            if not _killed_at(step, after, programs[1], path, external_data):
                break
            if first is not None or path.exists():
                assert answer(path) in (answer_of(programs[0]), answer_of(programs[1]))
            programs[0].save(path, external_data=external_data)
            assert answer(path) == answer_of(programs[0])
            assert len(os.listdir(folder)) == 1 + bool(external_data), os.listdir(folder)
        assert 2 < step < 39


def _killed_at(
    step: int, after: bool, program: onnx_aot.ONNXProgram, path: Path, external_data: Any
) -> bool:
    """Saves in a child that kills itself at a call; returns False if there are fewer calls."""
    child = os.fork()
    if child == 0:
        left = [step]

        def counted(original: Any) -> Any:
            def call(*args: Any, **kwargs: Any) -> Any:
                left[0] -= 1
                if left[0] < 0 and not after:
                    os.kill(os.getpid(), signal.SIGKILL)
                result = original(*args, **kwargs)
                if left[0] < 0:
                    os.kill(os.getpid(), signal.SIGKILL)
                return result

            return call

        for name in STEPS:
            setattr(os, name, counted(getattr(os, name)))
        try:
            program.save(path, external_data=external_data)
        finally:
            os._exit(0)
    return os.WIFSIGNALED(os.waitpid(child, 0)[1])


def answer(path: Path) -> list[float]:
    (y,) = onnxruntime.InferenceSession(path).run(None, {"input": torch.ones(2, 64).numpy()})
    return [round(float(value), 3) for value in y[0, :5]]


def answer_of(program: onnx_aot.ONNXProgram) -> list[float]:
    return [round(float(value), 3) for value in program(torch.ones(2, 64))[0][0, :5]]


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
        monkeypatch.setattr(atomic, "_open_without_name", lambda _: None)
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
    supported = atomic._open_without_name(str(tmp_path))
    programs[0].save(tmp_path / "model.onnx")
    assert seen
    if supported is not None:
        os.close(supported)
        assert not any(seen)


# --- other kinds of destinations -----------------------------------------------------------------


def test_a_pipe_is_written_into(programs: list[onnx_aot.ONNXProgram], tmp_path: Path) -> None:
    pipe, copy = tmp_path / "pipe", tmp_path / "model.onnx"
    os.mkfifo(pipe)
    reader = threading.Thread(target=lambda: copy.write_bytes(pipe.read_bytes()))
    reader.start()
    programs[0].save(pipe)
    reader.join()
    assert stat.S_ISFIFO(pipe.stat().st_mode)
    assert answer(copy) == answer_of(programs[0])
    with pytest.raises(InvalidOptionError, match=r"needs a path .* got .*pipe, a pipe or a device"):
        programs[0].save(pipe, external_data=True)


def test_a_view_is_written_into_a_pipe(
    programs: list[onnx_aot.ONNXProgram], tmp_path: Path
) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    pages: list[str] = []
    reader = threading.Thread(target=lambda: pages.append(pipe.read_text()))
    reader.start()
    programs[0].view(pipe)
    reader.join()
    assert pages[0].rstrip().endswith("</html>")
    assert stat.S_ISFIFO(pipe.stat().st_mode)


def test_sockets_and_links_that_lead_nowhere_are_refused(
    programs: list[onnx_aot.ONNXProgram], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)  # the path of a socket is short
    with socket.socket(socket.AF_UNIX) as opened:
        opened.bind("socket")
        with pytest.raises(SaveError, match="it is a socket; give the name of a file"):
            programs[0].save("socket")
        assert stat.S_ISSOCK(os.stat("socket").st_mode)
    os.symlink("loop", "loop")
    with pytest.raises(SaveError, match="it is a symbolic link that leads to itself"):
        programs[0].save("loop")
    assert os.path.islink("loop")


def test_a_read_only_folder(
    programs: list[onnx_aot.ONNXProgram], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Tests may run as an administrator, for whom no folder is read-only."""
    monkeypatch.setattr(os, "access", lambda path, mode: False)
    with pytest.raises(SaveError, match=r"is read-only for you.* may create files"):
        programs[0].save(tmp_path / "model.onnx")
    with pytest.raises(SaveError, match="is read-only for you"):  # before anything is captured
        onnx_aot.export(torch.nn.Linear(2, 2), (torch.ones(1, 2),), tmp_path / "model.onnx")


@pytest.mark.parametrize("external_data", WAYS)
def test_a_limit_of_the_system(
    external_data: Any, programs: list[onnx_aot.ONNXProgram], tmp_path: Path
) -> None:
    """Files may not grow beyond a size, which is what a full disk is like."""
    resource = pytest.importorskip("resource")
    path = tmp_path / "model.onnx"
    programs[0].save(path, external_data=external_data)
    before, limits = contents(tmp_path), resource.getrlimit(resource.RLIMIT_FSIZE)
    for size in (0, 100, 10_000, 30_000):
        resource.setrlimit(resource.RLIMIT_FSIZE, (size, limits[1]))
        try:
            with pytest.raises(SaveError, match="Nothing that was there has changed"):
                programs[1].save(path, external_data=external_data)
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, limits)
        assert contents(tmp_path) == before


def test_data_is_as_private_as_the_model(
    programs: list[onnx_aot.ONNXProgram], tmp_path: Path
) -> None:
    path = tmp_path / "model.onnx"
    programs[0].save(path)
    path.chmod(0o600)
    programs[1].save(path, external_data=True)
    assert {file.stat().st_mode & 0o777 for file in tmp_path.iterdir()} == {0o600}
    before = os.umask(0o027)
    try:
        programs[1].save(tmp_path / "other.onnx", external_data=True)
    finally:
        os.umask(before)
    assert {file.stat().st_mode & 0o777 for file in tmp_path.glob("other*")} == {0o640}


# --- several processes ---------------------------------------------------------------------------


@pytest.mark.parametrize("external_data", WAYS)
def test_saves_of_one_path_at_the_same_time(
    external_data: Any, programs: list[onnx_aot.ONNXProgram], tmp_path: Path
) -> None:
    """Two processes save different models while a third reads what is there."""
    path = tmp_path / "model.onnx"
    programs[0].save(path, external_data=external_data)
    children = [_start_saving(program, path, external_data) for program in programs]
    running, reads = set(children), 0
    known = [program(torch.ones(2, 64))[0] for program in programs]
    while running:
        running -= {child for child in running if os.waitpid(child, os.WNOHANG)[0]}
        (y,) = onnx_aot.ONNXProgram.load(path)(torch.ones(2, 64))
        assert any(torch.allclose(y, expected, atol=1e-5) for expected in known)
        reads += 1
    assert reads > 3
    programs[0].save(path, external_data=external_data)
    assert answer(path) == answer_of(programs[0])
    assert len(os.listdir(tmp_path)) == 1 + bool(external_data)


def _start_saving(program: onnx_aot.ONNXProgram, path: Path, external_data: Any) -> int:
    child = os.fork()
    if child == 0:
        code = 1
        try:
            for _ in range(25):
                program.save(path, external_data=external_data)
            code = 0
        finally:
            os._exit(code)
    return child


@pytest.mark.parametrize("external_data", WAYS)
def test_the_files_of_a_running_save_stay(
    external_data: Any,
    programs: list[onnx_aot.ONNXProgram],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(atomic, "_open_without_name", lambda _: None)
    path = tmp_path / "model.onnx"
    programs[0].save(path, external_data=external_data)
    with atomic.new_files(str(path), 1) as (running,):
        programs[1].save(path, external_data=external_data)
        assert os.path.exists(running.temporary)
        Path(tmp_path, ".model.onnx.0123456789ab.tmp").touch()  # as a killed save leaves it
        Path(tmp_path, ".other.onnx.0123456789ab.tmp").touch()
        programs[0].save(path, external_data=external_data)
        assert os.path.exists(running.temporary)
    hidden = [name for name in os.listdir(tmp_path) if name.startswith(".")]
    assert hidden == [".other.onnx.0123456789ab.tmp"]
    assert answer(path) == answer_of(programs[0])


@pytest.mark.usefixtures("interruptible")
def test_an_interrupt_between_the_renames(
    programs: list[onnx_aot.ONNXProgram], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Ctrl-C at every call: it is raised, and old files or new files are there, all of them."""
    path = tmp_path / "model.onnx"
    for step in range(30):
        programs[0].save(path, external_data=True)
        left = [step]

        def interrupting(original: Any, left: list[int]) -> Any:
            def call(*args: Any, **kwargs: Any) -> Any:
                left[0] -= 1
                if left[0] == 0:
                    signal.raise_signal(signal.SIGINT)
                return original(*args, **kwargs)

            return call

        with monkeypatch.context() as patch:
            for name in STEPS:
                patch.setattr(os, name, interrupting(getattr(os, name), left))
            try:
                programs[1].save(path, external_data=True)
            except KeyboardInterrupt:
                pass
            else:
                assert left[0] != 0 or step == 0
        assert answer(path) in (answer_of(programs[0]), answer_of(programs[1]))
        assert len(os.listdir(tmp_path)) == 2
    assert left[0] > 0
