"""Plans and writes the files with a model's weights: which tensor goes where, and its name."""

from __future__ import annotations

import contextlib
import dataclasses
import hashlib
import itertools
import json
import os
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, BinaryIO

import onnx
import onnx_ir as ir
from google.protobuf.message import DecodeError

from onnx_aot import dtypes
from onnx_aot.errors import InvalidOptionError
from onnx_aot.serialization.checkpoints import read_safetensors_header, safetensors_name

__all__ = [
    "DataFile",
    "choose_names",
    "digest_of",
    "old_data_files",
    "plan_data",
    "plan_safetensors",
    "removable_files",
    "shard_size",
    "write_index",
]

ALIGNMENT = 4096
"""Bytes of a page: tensors begin at multiples of it, so that runtimes can map them."""

UNITS = {"": 1, "B": 1, "KB": 10**3, "MB": 10**6, "GB": 10**9, "TB": 10**12}
UNITS |= {"KIB": 2**10, "MIB": 2**20, "GIB": 2**30, "TIB": 2**40}

PRODUCER = "onnx_aot"
"""Marks the headers of our safetensors files; no others are removed with the model."""

DIGITS = 16
"""Length of the digest in names of data files."""

READ = 1 << 20
"""Bytes that are read at once for a digest."""


@dataclasses.dataclass(frozen=True)
class DataFile:
    """A file to be written.

    Attributes:
        head: Bytes before the tensors.
        places: Offsets and tensors, keyed by initializer name, in order of offset. Gaps between
            them are filled with zeros.
        size: Bytes of the whole file.
    """

    head: bytes
    places: dict[str, tuple[int, ir.TensorProtocol]]
    size: int

    def write(self, file: Any) -> None:
        """Writes the whole file to a binary file object."""
        file.write(self.head)
        end = len(self.head)
        for offset, tensor in self.places.values():
            if offset > end:
                file.write(b"\0" * (offset - end))
            tensor.tofile(file)  # type: ignore[attr-defined]
            end = offset + tensor.nbytes


def plan_data(weights: Sequence[ir.Value]) -> list[DataFile]:
    """Plans one file in which every tensor begins at a page."""
    places: dict[str, tuple[int, ir.TensorProtocol]] = {}
    end = 0
    for value, tensor in _pairs_with_tensors(weights):
        offset = -(-end // ALIGNMENT) * ALIGNMENT
        places[str(value.name)] = (offset, tensor)
        end = offset + tensor.nbytes
    return [DataFile(b"", places, end)]


def plan_safetensors(weights: Sequence[ir.Value], limit: int | None) -> list[DataFile]:
    """Plans safetensors files with at most ``limit`` bytes of tensors each, or one larger tensor.

    The format has no gaps between tensors. In each file the tensors with the widest elements come
    first and their bytes begin at a page, so that each tensor is aligned to its element size.
    """
    groups: list[list[tuple[ir.Value, ir.TensorProtocol]]] = []
    size = 0
    for value, tensor in _pairs_with_tensors(weights):
        if not groups or (limit is not None and size + tensor.nbytes > limit):
            groups.append([])
            size = 0
        groups[-1].append((value, tensor))
        size += tensor.nbytes
    return [_plan_shard(group) for group in groups]


def choose_names(
    path: str, safetensors: bool, contents: Sequence[BinaryIO], digest: str | None
) -> list[str]:
    """Chooses names for the data files of a model, and for their index if there are several.

    The first save of a path uses names that users know: ``model.onnx.data``, ``model.safetensors``.
    When a model is replaced, the new data gets names with a digest of its bytes, unless the old
    data has the same bytes. So a name keeps its content, and a process that has read the model,
    but not yet its data, can never read the data of another save.

    Args:
        path: Path of the model.
        safetensors: The format.
        contents: The new data files.
        digest: Their digest, if it is known.

    Returns:
        Paths in the order of ``contents``, and that of the index at the end.
    """
    plain = _names(path, safetensors, len(contents), "")
    if not os.path.lexists(path) and not any(map(os.path.lexists, plain)):
        return plain
    digest = digest or digest_of(contents)
    old = set(old_data_files(path))
    if old.issuperset(plain) and _has_digest(plain[: len(contents)], contents, digest):
        return plain
    for number in itertools.count(1):
        tag = digest if number == 1 else f"{digest}-{number}"
        names = _names(path, safetensors, len(contents), tag)
        if all(name in old or not os.path.lexists(name) for name in names):
            return names
    raise AssertionError("names do not end")


def digest_of(files: Sequence[BinaryIO]) -> str:
    """Returns the digest of the contents of open files, in the form that is used in names."""
    found = hashlib.sha256()
    for file in files:
        file.seek(0)
        while block := file.read(READ):
            found.update(block)
    return found.hexdigest()[:DIGITS]


def _has_digest(paths: Sequence[str], like: Sequence[BinaryIO], digest: str) -> bool:
    """True if files have the sizes of open files and a digest."""
    sizes = [os.fstat(file.fileno()).st_size for file in like]
    if [os.path.getsize(path) for path in paths] != sizes:
        return False
    with contextlib.ExitStack() as opened:
        return digest_of([opened.enter_context(open(path, "rb")) for path in paths]) == digest


def _names(path: str, safetensors: bool, count: int, tag: str) -> list[str]:
    if not safetensors:
        return [f"{path}.data-{tag}" if tag else f"{path}.data"]
    folder, name = os.path.split(path)
    stem = os.path.join(folder, _strip_extension(name)) + (f"_{tag}" if tag else "")
    if count == 1:
        return [f"{stem}.safetensors"]
    shards = [f"{stem}-{n + 1:05d}-of-{count:05d}.safetensors" for n in range(count)]
    return [*shards, f"{stem}.safetensors.index.json"]


def old_data_files(path: str) -> list[str]:
    """Data files and indexes that a save made and the model at a path refers to."""
    folder, name = os.path.split(path)
    made = _made_by_a_save(name)
    present = {file for file in os.listdir(folder) if made.fullmatch(file)}
    if not present or not os.path.isfile(path):
        return []
    try:
        old = onnx.load_model(path, load_external_data=False)
    except DecodeError:  # the file to be replaced is not a model
        return []
    referred = {
        entry.value
        for tensor in old.graph.initializer
        for entry in tensor.external_data
        if entry.key == "location"
    }
    found = [os.path.join(folder, file) for file in sorted(present & referred)]
    ours = [file for file in found if not file.endswith(".safetensors") or _is_ours(file)]
    indexes = {_index_of(file) for file in ours if re.search(r"-of-\d{5}\.safetensors$", file)}
    return [*ours, *sorted(indexes)]


def removable_files(path: str, names: Iterable[str]) -> list[str]:
    """Data files, of those that killed saves of a path wrote down, that its model does not need."""
    folder, name = os.path.split(path)
    made = _made_by_a_save(name)
    candidates = [os.path.join(folder, file) for file in names if made.fullmatch(file)]
    return sorted(set(candidates).difference(old_data_files(path))) if candidates else []


def _made_by_a_save(name: str) -> re.Pattern[str]:
    """Pattern of the names that saves give to data files and indexes of a model."""
    tag = rf"[0-9a-f]{{{DIGITS}}}(-\d+)?"
    stem = rf"{re.escape(_strip_extension(name))}(_{tag})?"
    safetensors = rf"{stem}(-\d{{5}}-of-\d{{5}}\.safetensors|\.safetensors(\.index\.json)?)"
    return re.compile(rf"{re.escape(name)}\.data(-{tag})?|{safetensors}")


def _index_of(path: str) -> str:
    """Path of the index of several safetensors files, from the path of one of them."""
    return re.sub(r"-\d{5}-of-\d{5}\.safetensors$", ".safetensors.index.json", path)


def shard_size(given: int | str | None) -> int | None:
    """Converts a number of bytes, or a text such as ``"5GB"``, to bytes; None stays None.

    Raises:
        InvalidOptionError: It is none of these, or less than one byte.
    """
    if given is None:
        return None
    text = re.fullmatch(r"\s*(\d+(?:\.\d+)?)\s*([A-Za-z]*)\s*", str(given))
    if isinstance(given, (bool, float)) or text is None or text[2].upper() not in UNITS:
        raise InvalidOptionError(
            f'max_shard_size is {given!r}; expected a number of bytes or a string such as "5GB"',
            code="OA503",
        )
    size = int(float(text[1]) * UNITS[text[2].upper()])
    if size < 1:
        raise InvalidOptionError(
            f"max_shard_size is {given!r}; expected at least one byte", code="OA503"
        )
    return size


def _pairs_with_tensors(
    weights: Sequence[ir.Value],
) -> Iterator[tuple[ir.Value, ir.TensorProtocol]]:
    for value in weights:
        assert value.const_value is not None
        yield value, value.const_value


def _strip_extension(name: str) -> str:
    return name.removesuffix(".onnx") or name


def _plan_shard(group: Sequence[tuple[ir.Value, ir.TensorProtocol]]) -> DataFile:
    header: dict[str, Any] = {"__metadata__": {"format": "pt", "producer": PRODUCER}}
    ordered = sorted(group, key=lambda pair: -_element_bytes(pair[1]))
    end = 0
    offsets: list[int] = []
    for value, tensor in ordered:
        dtype, shape = _describe_tensor(tensor)
        begin, end = end, end + tensor.nbytes
        offsets.append(begin)
        header[str(value.name)] = {"dtype": dtype, "shape": shape, "data_offsets": [begin, end]}
    text = json.dumps(header, separators=(",", ":"), ensure_ascii=False).encode()
    start = -(-(8 + len(text)) // ALIGNMENT) * ALIGNMENT
    head = (start - 8).to_bytes(8, "little") + text.ljust(start - 8)
    places = {
        str(value.name): (start + offset, tensor)
        for offset, (value, tensor) in zip(offsets, ordered, strict=True)
    }
    return DataFile(head, places, start + end)


def _element_bytes(tensor: ir.TensorProtocol) -> int:
    return max(1, tensor.dtype.bitwidth // 8)


def _describe_tensor(tensor: ir.TensorProtocol) -> tuple[str, list[int]]:
    """Element type and shape in the format; types that it lacks are bytes (``U8``)."""
    try:
        name = safetensors_name(dtypes.to_torch(tensor.dtype))
    except TypeError:
        name = None
    if name is None or tensor.dtype.bitwidth < 8:
        return "U8", [tensor.nbytes]
    return name, [int(size) for size in tensor.shape.numpy()]


def _is_ours(path: str) -> bool:
    try:
        metadata = read_safetensors_header(path).get("__metadata__")
    except InvalidOptionError:
        return False
    return isinstance(metadata, Mapping) and metadata.get("producer") == PRODUCER


def write_index(file: Any, files: Mapping[str, DataFile]) -> None:
    """Writes the index of several safetensors files, given by their paths."""
    total = sum(tensor.nbytes for one in files.values() for _, tensor in one.places.values())
    named = {name: os.path.basename(path) for path, one in files.items() for name in one.places}
    index = {"metadata": {"total_size": total}, "weight_map": dict(sorted(named.items()))}
    file.write(json.dumps(index, indent=2, ensure_ascii=False).encode() + b"\n")
