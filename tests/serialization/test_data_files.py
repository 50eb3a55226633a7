"""Weights in separate files: safetensors format, names and progress."""

from __future__ import annotations

import io
import json
import re
from pathlib import Path
from typing import Any

import onnx
import onnxruntime
import pytest
import torch

import onnx_aot
from onnx_aot.errors import InvalidOptionError, SaveError
from onnx_aot.serialization import atomic, mapped_tensor, progress
from onnx_aot.serialization.checkpoints import read_checkpoint, read_safetensors
from onnx_aot.serialization.data_files import shard_size
from tests.tolerances import assert_close

X = torch.randn(2, 64)


class Net(torch.nn.Module):
    """Weights of several types; ``short`` comes before a weight with larger elements."""

    def __init__(self) -> None:
        super().__init__()
        self.short = torch.nn.Parameter(torch.randn(64, 65).half())
        self.first = torch.nn.Linear(65, 64)
        self.second = torch.nn.Linear(64, 64)
        self.second.weight = torch.nn.Parameter(torch.randn(64, 64))
        self.register_buffer("mask", torch.rand(3, 1025) > 0.5)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = self.second(self.first(x @ self.short.float()))
        return y * self.mask[0].sum()


@pytest.fixture(scope="module")
def net() -> Net:
    torch.manual_seed(0)
    return Net().eval()


@pytest.fixture(scope="module")
def program(net: Net) -> onnx_aot.ONNXProgram:
    return onnx_aot.export(net, (X,), optimize=False)


def check(path: Path, net: Net) -> None:
    onnx.checker.check_model(str(path), full_check=True)
    (y,) = onnxruntime.InferenceSession(path).run(None, {"x": X.numpy()})
    assert_close(torch.from_numpy(y), net(X))


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def test_safetensors(program: onnx_aot.ONNXProgram, net: Net, tmp_path: Path) -> None:
    path = tmp_path / "model.onnx"
    program.save(path, external_data="safetensors")
    assert names(tmp_path) == ["model.onnx", "model.safetensors"]
    check(path, net)
    read = read_safetensors(str(tmp_path / "model.safetensors"))
    assert set(read) == {"short", "first.weight", "second.weight", "mask"}
    for name, tensor in read.items():
        assert torch.equal(tensor.raw, net.state_dict()[name])
    graph = onnx.load(path, load_external_data=False).graph
    places = {t.name: {e.key: e.value for e in t.external_data} for t in graph.initializer}
    begins = {name: int(place["offset"]) for name, place in places.items() if place}
    assert min(begins.values()) == 4096  # the header is padded to a page
    assert all(begins[name] % tensor.raw.itemsize == 0 for name, tensor in read.items())


def test_the_library_reads_them(program: onnx_aot.ONNXProgram, net: Net, tmp_path: Path) -> None:
    library = pytest.importorskip("safetensors.torch")
    program.save(tmp_path / "model.onnx", external_data="safetensors", max_shard_size=20_000)
    for file in tmp_path.glob("*.safetensors"):
        for name, tensor in library.load_file(file).items():
            assert torch.equal(tensor, net.state_dict()[name])


def test_shards(net: Net, tmp_path: Path) -> None:
    path = tmp_path / "model.onnx"
    onnx_aot.export(net, (X,), optimize=False).save(
        path, external_data="safetensors", max_shard_size="24KB"
    )
    shards = [f"model-{n:05d}-of-00003.safetensors" for n in (1, 2, 3)]
    assert names(tmp_path) == [*shards, "model.onnx", "model.safetensors.index.json"]
    check(path, net)
    index = json.loads((tmp_path / "model.safetensors.index.json").read_text())
    assert set(index["weight_map"].values()) == set(shards)
    assert index["metadata"]["total_size"] == 64 * 65 * (2 + 4) + 64 * 64 * 4 + 3 * 1025
    checkpoint = read_checkpoint(tmp_path)  # the folder is a checkpoint
    assert all(torch.equal(t.raw, net.state_dict()[n]) for n, t in checkpoint.items())


def test_what_was_saved_before_is_replaced(
    program: onnx_aot.ONNXProgram, net: Net, tmp_path: Path
) -> None:
    path = tmp_path / "model.onnx"
    ways: list[dict[str, Any]] = [
        {"external_data": "safetensors"},
        {"external_data": "safetensors"},
        {"external_data": "safetensors", "max_shard_size": 20_000},
        {"external_data": True},
        {"external_data": "safetensors", "max_shard_size": 20_000},
        {"external_data": False},
    ]
    for options in ways:
        program.save(path, **options)
        check(path, net)
        count = {True: 2, False: 1}.get(options["external_data"], 2)
        assert len(names(tmp_path)) == (count if "max_shard_size" not in options else 5)
    assert names(tmp_path) == ["model.onnx"]


def test_checkpoints_of_the_user_stay(net: Net, tmp_path: Path) -> None:
    """A user's checkpoint stays even if an older model of another tool refers to one."""
    library = pytest.importorskip("safetensors.torch")
    mine = tmp_path / "model.safetensors"
    library.save_file(dict(net.state_dict()), mine)
    before = mine.read_bytes()
    path = tmp_path / "model.onnx"
    program = onnx_aot.export(net, (X,), optimize=False)
    program.apply_weights(mine)
    for _ in range(2):
        program.save(path, external_data="safetensors")
        left = names(tmp_path)
        assert left[:2] == ["model.onnx", "model.safetensors"]
        assert len(left) == 3
    proto = onnx.load(path, load_external_data=False)
    for tensor in proto.graph.initializer:
        for entry in tensor.external_data:
            entry.value = mine.name if entry.key == "location" else entry.value
    onnx.save(proto, path)
    program.save(path)
    assert mine.read_bytes() == before


def test_a_model_saved_over_the_file_that_it_was_loaded_from(
    program: onnx_aot.ONNXProgram, net: Net, tmp_path: Path
) -> None:
    path = tmp_path / "model.onnx"
    program.save(path, external_data=True)
    loaded = onnx_aot.ONNXProgram.load(path)
    for way in ("safetensors", True, True, False):
        loaded.save(path, external_data=way)
        check(path, net)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"external_data": "pickle"}, "external_data is 'pickle'; accepted"),
        ({"max_shard_size": 5}, 'max_shard_size is for external_data="safetensors"'),
        ({"external_data": "safetensors", "max_shard_size": "5 apples"}, "a number of bytes or a"),
        ({"external_data": "safetensors", "max_shard_size": 0}, "at least one byte"),
    ],
)
def test_options(options: Any, message: str, program: onnx_aot.ONNXProgram, tmp_path: Path) -> None:
    with pytest.raises(InvalidOptionError, match=message):
        program.save(tmp_path / "model.onnx", **options)
    with pytest.raises(InvalidOptionError, match="needs a path"):
        program.save(io.BytesIO(), external_data="safetensors")


def test_sizes_as_texts() -> None:
    sizes = {"5GB": 5 * 10**9, " 2 GiB ": 2**31, "1.5kb": 1500, 7: 7, "7": 7, None: None}
    assert {given: shard_size(given) for given in sizes} == sizes


def test_export_takes_it(net: Net, tmp_path: Path) -> None:
    onnx_aot.export(net, (X,), tmp_path / "model.onnx", external_data="safetensors")
    assert "model.safetensors" in names(tmp_path)
    check(tmp_path / "model.onnx", net)


def test_a_disk_with_too_little_space(
    program: onnx_aot.ONNXProgram, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    usage = type("Usage", (), {"free": 10_000})
    monkeypatch.setattr(atomic.shutil, "disk_usage", lambda _: usage)
    for external_data in (False, True, "safetensors"):
        with pytest.raises(SaveError, match=r"has 0\.00 GB free; nothing was written"):
            program.save(tmp_path / "model.onnx", external_data=external_data)
    assert names(tmp_path) == []


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.mark.parametrize("external_data", [False, True])
def test_progress_on_a_terminal(
    external_data: bool,
    program: onnx_aot.ONNXProgram,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    terminal = Terminal()
    monkeypatch.setattr(progress.sys, "stderr", terminal)
    program.save(tmp_path / "model.onnx", external_data=external_data)
    assert terminal.getvalue() == ""  # saving took less than a second
    monkeypatch.setattr(progress, "QUIET", 0.0)
    monkeypatch.setattr(progress, "INTERVAL", 0.0)
    program.save(tmp_path / "model.onnx", external_data=external_data)
    lines = terminal.getvalue().split("\r")
    assert lines[-1].startswith("saving [##############################] 100%")
    assert terminal.getvalue().endswith("\n")
    monkeypatch.setattr(progress.sys, "stderr", io.StringIO())
    program.save(tmp_path / "model.onnx", external_data=external_data)
    assert progress.sys.stderr.getvalue() == ""


@pytest.mark.parametrize("system_copies", [True, False])
def test_what_lies_in_files_is_copied(
    system_copies: bool, net: Net, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    program = onnx_aot.export(net, (X,), optimize=False)
    program.save(tmp_path / "old.onnx", external_data="safetensors")
    program.apply_weights(tmp_path / "old.safetensors")
    monkeypatch.setattr(mapped_tensor, "CHUNK", 1000)
    if not system_copies:

        def refuse(*_: Any) -> int:
            raise OSError(22, "not here")

        monkeypatch.setattr(mapped_tensor.os, "sendfile", refuse, raising=False)
    for external_data in (False, True):
        program.save(tmp_path / "model.onnx", external_data=external_data)
        check(tmp_path / "model.onnx", net)


# --- names ---------------------------------------------------------------------------------------


def data_names(folder: Path) -> list[str]:
    return [name for name in names(folder) if name != "model.onnx"]


def matches(pattern: str, folder: Path) -> bool:
    return all(re.fullmatch(pattern, name) for name in data_names(folder))


@pytest.mark.parametrize(
    ("options", "plain", "tagged"),
    [
        ({"external_data": True}, r"model\.onnx\.data", r"model\.onnx\.data-[0-9a-f]{16}"),
        (
            {"external_data": "safetensors"},
            r"model\.safetensors",
            r"model_[0-9a-f]{16}\.safetensors",
        ),
        (
            {"external_data": "safetensors", "max_shard_size": "24KB"},
            r"model(-\d{5}-of-00003\.safetensors|\.safetensors\.index\.json)",
            r"model_[0-9a-f]{16}(-\d{5}-of-00003\.safetensors|\.safetensors\.index\.json)",
        ),
    ],
    ids=["data", "safetensors", "shards"],
)
def test_a_name_keeps_its_contents(
    options: Any, plain: str, tagged: str, net: Net, tmp_path: Path
) -> None:
    """Data gets another name exactly when its bytes change, so no reader mixes two saves."""
    path, seen = tmp_path / "model.onnx", {}
    program = onnx_aot.export(net, (X,), optimize=False)
    torch.manual_seed(1)
    other = onnx_aot.export(Net().eval(), (X,), optimize=False)
    for saved, pattern in ((program, plain), (program, plain), (other, tagged), (other, tagged)):
        saved.save(path, **options)
        assert matches(pattern, tmp_path), data_names(tmp_path)
        for name in data_names(tmp_path):
            contents = (tmp_path / name).read_bytes()
            assert seen.setdefault(name, contents) == contents
    check_loads(path, other)
    program.save(path, **options)  # the plain name is free again, but readers may still expect it
    assert matches(tagged, tmp_path)
    check_loads(path, program)


def check_loads(path: Path, program: onnx_aot.ONNXProgram) -> None:
    assert torch.equal(onnx_aot.ONNXProgram.load(path)(X)[0], program(X)[0])
    digest = onnx_aot.ONNXProgram.load(path).hash
    assert digest == program.hash


def test_a_damaged_data_file_is_written_anew(
    program: onnx_aot.ONNXProgram, net: Net, tmp_path: Path
) -> None:
    path = tmp_path / "model.onnx"
    program.save(path, external_data=True)
    data = tmp_path / "model.onnx.data"
    data.write_bytes(bytes(data.stat().st_size))
    program.save(path, external_data=True)
    check(path, net)
    (name,) = data_names(tmp_path)
    (tmp_path / name).write_bytes(b"")
    program.save(path, external_data=True)
    check(path, net)
