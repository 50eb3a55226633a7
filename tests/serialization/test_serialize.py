"""Saving: contents of files, and that failures lose nothing."""

from __future__ import annotations

import io
import os
import signal
import subprocess
import sys
import textwrap
from pathlib import Path
from typing import Any

import onnx
import onnxruntime
import pytest
import torch

import onnx_aot
from onnx_aot.errors import InvalidOptionError, SaveError
from onnx_aot.serialization import serialize
from tests.tolerances import assert_close

X = torch.randn(2, 64)


def exported(width: int = 64) -> tuple[torch.nn.Module, onnx_aot.ONNXProgram]:
    torch.manual_seed(0)
    module = torch.nn.Sequential(torch.nn.Linear(64, width), torch.nn.Linear(width, 3))
    return module, onnx_aot.export(module, (X,))


def run(path: Path) -> torch.Tensor:
    (output,) = onnxruntime.InferenceSession(path).run(None, {"input": X.numpy()})
    return torch.from_numpy(output)


@pytest.mark.parametrize("external_data", ["auto", None, False, True])
def test_round_trip(tmp_path: Path, external_data: Any) -> None:
    module, program = exported()
    path = tmp_path / "model.onnx"
    program.save(path, external_data=external_data)
    onnx.checker.check_model(str(path), full_check=True)
    assert_close(run(path), module(X))
    files = sorted(p.name for p in tmp_path.iterdir())
    assert files == ["model.onnx", "model.onnx.data"][: 1 + (external_data is True)]
    for name, tensor in module.state_dict().items():
        assert torch.equal(program.model.graph.initializers[name].const_value.raw, tensor)


def test_the_file_is_what_onnx_serializes() -> None:
    """Weights are streamed into the file; the message equals one with the weights embedded."""
    _, program = exported()
    buffer = io.BytesIO()
    program.save(buffer)
    streamed = onnx.ModelProto.FromString(buffer.getvalue())
    whole = program.model_proto
    key = {tensor.name: tensor for tensor in whole.graph.initializer}
    assert {t.name: t for t in streamed.graph.initializer} == key
    for proto in (streamed, whole):
        del proto.graph.initializer[:]
    assert streamed == whole


def test_large_models_get_a_data_file_by_themselves(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(serialize, "EXTERNAL_THRESHOLD", 10_000)
    module, program = exported()
    program.save(tmp_path / "model.onnx")
    assert (tmp_path / "model.onnx.data").exists()
    assert_close(run(tmp_path / "model.onnx"), module(X))


def test_data_is_aligned_and_named_relatively(tmp_path: Path) -> None:
    _, program = exported()
    program.save(tmp_path / "model.onnx", external_data=True)
    graph = onnx.load(tmp_path / "model.onnx", load_external_data=False).graph
    found = 0
    for tensor in graph.initializer:
        entries = {entry.key: entry.value for entry in tensor.external_data}
        if entries:
            found += 1
            assert entries["location"] == "model.onnx.data"
            assert int(entries["offset"]) % 4096 == 0
    assert found == 1  # the other tensors are smaller than 1 KB


def test_overwriting_with_and_without_a_data_file(tmp_path: Path) -> None:
    path = tmp_path / "model.onnx"
    for round_number, external_data in enumerate((True, True, True, False, True)):
        module, program = exported(width=64 + round_number)
        program.save(path, external_data=external_data)
        assert_close(run(path), module(X))
        assert len(list(tmp_path.iterdir())) == 1 + external_data


def test_limits_are_checked_before_anything_is_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(serialize, "PROTOBUF_LIMIT", 10_000)
    _, program = exported()
    with pytest.raises(SaveError, match=r"2 GB; .*external_data=True"):
        program.save(tmp_path / "model.onnx", external_data=False)
    with pytest.raises(SaveError, match="at most 2 GB"):
        program.save(io.BytesIO())
    assert list(tmp_path.iterdir()) == []


def test_a_file_object_has_no_place_for_a_second_file() -> None:
    _, program = exported()
    with pytest.raises(InvalidOptionError, match="needs a path"):
        program.save(io.BytesIO(), external_data=True)


def test_weights_without_values_are_named(tmp_path: Path) -> None:
    with torch.device("meta"):
        module = torch.nn.Linear(64, 64)
    program = onnx_aot.export(module, (X.to("meta"),))
    with pytest.raises(SaveError, match=r"no values yet: weight, bias.*apply_weights"):
        program.save(tmp_path / "model.onnx")
    program.save(tmp_path / "model.onnx", include_initializers=False)
    real = torch.nn.Linear(64, 64)
    program.apply_weights(real.state_dict())
    program.save(tmp_path / "model.onnx")
    assert_close(run(tmp_path / "model.onnx"), real(X))


# --- failures ------------------------------------------------------------------------------------


class BreaksError(RuntimeError):
    pass


@pytest.mark.parametrize("external_data", [False, True])
@pytest.mark.parametrize("error", [BreaksError, OSError, KeyboardInterrupt])
def test_a_failed_save_leaves_the_old_file_whole(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, external_data: bool, error: type[BaseException]
) -> None:
    path = tmp_path / "model.onnx"
    module, program = exported()
    program.save(path, external_data=external_data)
    before = {p.name: p.read_bytes() for p in tmp_path.iterdir()}
    _, other = exported(width=65)

    def fail(self: Any, file: Any) -> None:
        file.write(b"half")
        raise error("disk full")

    monkeypatch.setattr(serialize.ir.tensor_adapters.TorchTensor, "tofile", fail)
    expected = SaveError if error is OSError else error
    with pytest.raises(expected):
        other.save(path, external_data=external_data)
    monkeypatch.undo()
    assert {p.name: p.read_bytes() for p in tmp_path.iterdir()} == before
    assert_close(run(path), module(X))
    for value in other.model.graph.initializers.values():
        assert isinstance(value.const_value.raw, torch.Tensor)  # the model is unchanged


def test_a_failed_first_save_leaves_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    _, program = exported()

    def fail(self: Any, file: Any) -> None:
        file.write(b"half")
        raise BreaksError

    monkeypatch.setattr(serialize.ir.tensor_adapters.TorchTensor, "tofile", fail)
    for external_data in (False, True):
        with pytest.raises(BreaksError):
            program.save(tmp_path / "model.onnx", external_data=external_data)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("name", "message"),
    [("missing/model.onnx", "there is no folder .*missing; create it"), ("", "it is a folder")],
)
def test_a_destination_that_cannot_be(tmp_path: Path, name: str, message: str) -> None:
    _, program = exported()
    with pytest.raises(SaveError, match=message):
        program.save(tmp_path / name)


@pytest.mark.parametrize("destination", [3, b"model.onnx", None, ""])
def test_a_destination_that_is_none(destination: Any) -> None:
    _, program = exported()
    with pytest.raises(InvalidOptionError, match="give a path, or a file object"):
        program.save(destination)


def test_a_file_for_text_is_refused(tmp_path: Path) -> None:
    _, program = exported()
    with (tmp_path / "model.onnx").open("w") as file:
        for destination in (file, io.StringIO()):
            with pytest.raises(InvalidOptionError, match="open it in binary mode"):
                program.save(destination)


def test_export_looks_at_the_destination_first(tmp_path: Path) -> None:
    def fails(x: torch.Tensor) -> torch.Tensor:
        raise AssertionError("the model was captured")

    with pytest.raises(SaveError, match="there is no folder"):
        onnx_aot.export(fails, (X,), tmp_path / "missing" / "model.onnx")


@pytest.mark.parametrize("external_data", [False, True])
def test_a_killed_process_leaves_the_old_file_whole(tmp_path: Path, external_data: bool) -> None:
    """The process is killed while it writes a weight."""
    path = tmp_path / "model.onnx"
    module, program = exported()
    program.save(path, external_data=external_data)
    before = path.read_bytes()
    script = f"""
        import os, signal, torch, onnx_aot
        from onnx_aot.serialization import serialize

        def die(self, file):
            file.write(b"half")
            file.flush()
            os.kill(os.getpid(), signal.SIGKILL)

        program = onnx_aot.export(torch.nn.Linear(64, 64), (torch.randn(2, 64),))
        serialize.ir.tensor_adapters.TorchTensor.tofile = die
        program.save({str(path)!r}, external_data={external_data})
    """
    done = subprocess.run([sys.executable, "-c", textwrap.dedent(script)], check=False)
    assert done.returncode == -signal.SIGKILL
    assert path.read_bytes() == before
    assert_close(run(path), module(X))


def test_files_that_the_old_model_does_not_refer_to_stay(tmp_path: Path) -> None:
    path = tmp_path / "model.onnx"
    strangers = [tmp_path / "model.onnx.data", tmp_path / "model.onnx.data3"]
    for stranger in strangers:
        stranger.write_bytes(b"of another model")
    module, program = exported()
    for external_data in (True, True, False, True):
        program.save(path, external_data=external_data)
        assert_close(run(path), module(X))
        assert [s.read_bytes() for s in strangers] == [b"of another model"] * 2
        assert len(list(tmp_path.iterdir())) == 3 + external_data


def test_what_is_replaced_may_be_no_model(tmp_path: Path) -> None:
    path = tmp_path / "model.onnx"
    path.write_bytes(b"no model")
    (tmp_path / "model.onnx.data").write_bytes(b"no data")
    module, program = exported()
    program.save(path, external_data=True)
    assert_close(run(path), module(X))


def test_data_lies_beside_the_target_of_a_link(tmp_path: Path) -> None:
    (tmp_path / "store").mkdir()
    link = tmp_path / "model.onnx"
    link.symlink_to(tmp_path / "store" / "v1.onnx")
    module, program = exported()
    for _ in range(2):
        program.save(link, external_data=True)
        actual = run(tmp_path / "store" / "v1.onnx")
        assert_close(actual, module(X))
        assert len(list((tmp_path / "store").iterdir())) == 2


def test_links_and_permissions_are_kept(tmp_path: Path) -> None:
    _, program = exported()
    real = tmp_path / "real.onnx"
    real.write_bytes(b"old")
    real.chmod(0o640)
    link = tmp_path / "link.onnx"
    link.symlink_to(real)
    program.save(link)
    assert link.is_symlink()
    assert os.stat(real).st_mode & 0o777 == 0o640
    onnx.checker.check_model(str(real))
