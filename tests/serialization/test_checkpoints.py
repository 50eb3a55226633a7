"""Checkpoints in memory and in files: formats, and files that cannot be read."""

from __future__ import annotations

import json
import struct
from pathlib import Path
from typing import Any

import pytest
import torch

from onnx_aot.errors import InvalidOptionError
from onnx_aot.serialization.checkpoints import read_checkpoint, read_safetensors
from tests.serialization.checkpoint_files import X, write_safetensors


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "length of its header is invalid"),
        (struct.pack("<Q", 10**12) + b"{}", "length of its header is invalid"),
        (struct.pack("<Q", 4) + b"nono", "Expecting value"),
        (
            b'{"a":{"dtype":"F32","shape":[4],"data_offsets":[0,16]}}',
            "ends before the tensor at byte",
        ),
        (b'{"a":{"dtype":"F32","shape":[4],"data_offsets":[0,15]}}', "a has 15 bytes for"),
        (b'{"a":{"dtype":"F3","shape":[4],"data_offsets":[0,16]}}', "type F3, which is not known"),
        (b'{"a":{"shape":[4],"data_offsets":[0,16]}}', "it has no 'dtype'"),
    ],
)
def test_files_that_are_not_whole(content: bytes, message: str, tmp_path: Path) -> None:
    path = tmp_path / "model.safetensors"
    path.write_bytes(struct.pack("<Q", len(content)) + content if content[:1] == b"{" else content)
    with pytest.raises(InvalidOptionError, match=f"not a complete safetensors file: .*{message}"):
        read_checkpoint(tmp_path)


def test_paths_that_hold_no_weights(tmp_path: Path) -> None:
    with pytest.raises(InvalidOptionError, match=r"has none of model.safetensors.index.json, "):
        read_checkpoint(tmp_path)
    with pytest.raises(InvalidOptionError, match="there is no file"):
        read_checkpoint(tmp_path / "missing.safetensors")
    with pytest.raises(InvalidOptionError, match="pass a dict of tensors by name"):
        read_checkpoint(3)  # type: ignore[arg-type]
    with pytest.raises(InvalidOptionError, match="ndarray under 'a'; expected tensors"):
        read_checkpoint({"a": X.numpy()})
    (tmp_path / "weights.h5").write_bytes(b"")
    with pytest.raises(InvalidOptionError, match="unknown format"):
        read_checkpoint(tmp_path / "weights.h5")
    (tmp_path / "weights.pt").write_bytes(b"no")
    with pytest.raises(InvalidOptionError, match="is not a file of tensors"):
        read_checkpoint(tmp_path / "weights.pt")
    index = tmp_path / "model.safetensors.index.json"
    index.write_text('{"weight_map": {"a": "other.safetensors"}}')
    with pytest.raises(InvalidOptionError, match=r"not beside it: other\.safetensors"):
        read_checkpoint(tmp_path)
    write_safetensors(tmp_path / "other.safetensors", {"b": X})
    with pytest.raises(InvalidOptionError, match="tensors that its files do not have: a"):
        read_checkpoint(index)


def test_the_format_is_that_of_safetensors(tmp_path: Path) -> None:
    library = pytest.importorskip("safetensors.torch")
    tensors = {
        str(dtype): torch.ones(3, 5).to(dtype)
        for dtype in (torch.float64, torch.bfloat16, torch.float8_e4m3fn, torch.int8, torch.bool)
    }
    tensors |= {"empty": torch.empty(0, 3), "scalar": torch.tensor(3)}
    library.save_file(tensors, tmp_path / "a.safetensors")
    read = read_safetensors(str(tmp_path / "a.safetensors"))
    assert set(read) == set(tensors)
    for name, tensor in tensors.items():
        assert read[name].raw.dtype == tensor.dtype
        assert read[name].raw.shape == tensor.shape
        assert torch.equal(read[name].raw.float(), tensor.float())


@pytest.mark.parametrize(
    "name", ["../outside.safetensors", "{absolute}", "link.safetensors", "index.json", "a\0b", 5]
)
def test_an_index_names_only_weights_in_its_folder(name: Any, tmp_path: Path) -> None:
    folder, outside = tmp_path / "folder", tmp_path / "outside.safetensors"
    folder.mkdir()
    outside.write_bytes(b"")
    (folder / "link.safetensors").symlink_to(outside)
    written = name.format(absolute=outside) if isinstance(name, str) else name
    index = folder / "index.json"
    index.write_text(json.dumps({"weight_map": {"weight": written}}))
    with pytest.raises(InvalidOptionError, match=r"not weights in its folder|not an index"):
        read_checkpoint(index)


def test_an_index_may_be_a_link_of_a_cache(tmp_path: Path) -> None:
    library = pytest.importorskip("safetensors.torch")
    weights = {"weight": torch.ones(3)}
    library.save_file(weights, tmp_path / "blob1")
    (tmp_path / "blob2").write_text(json.dumps({"weight_map": {"weight": "a.safetensors"}}))
    folder = tmp_path / "snapshot"
    folder.mkdir()
    (folder / "a.safetensors").symlink_to("../blob1")
    (folder / "a.index.json").symlink_to("../blob2")
    (read,) = read_checkpoint(folder / "a.index.json").values()
    assert torch.equal(read.raw, weights["weight"])
